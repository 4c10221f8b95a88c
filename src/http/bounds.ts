/**
 * What connections may take of the process, whoever they belong to. A test passes smaller ones; how many connections of nobody there may be is
 * a setting (HOLDFAST_MAX_UNAUTHENTICATED).
 */
export const bounds = {
  /** Bytes of a WebSocket, frames and all, until its connection_init is acknowledged. */
  firstBytes: 65_536,
  /** From the upgrade to connection_init. */
  initMs: 3000,
  /** From a connection's first byte, or the end of the request before, to the end of a request's headers. */
  headersMs: 10_000,
  /** To the end of its body: 40 MB in this time are 350 kB/s. */
  requestMs: 120_000,
  /** How often the two are looked at. */
  lookMs: 1000,
  /** Bytes of all bodies together that are being read or parsed. */
  bodiesBytes: 200_000_000,
  /** Bytes and messages that wait for a WebSocket's peer. Beyond them nothing more is read from it until it has taken some. */
  unsentBytes: 1_000_000,
  unsentMessages: 1000,
}

export type Bounds = typeof bounds
