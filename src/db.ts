// The database client, and which of its errors are worth another try.

import { setTimeout as sleep } from 'node:timers/promises'
import { PrismaPg } from '@prisma/adapter-pg'
import { boundSession } from './bounded-session.ts'
import { boundedSockets, keepAliveInitialDelayMillis } from './bounded-socket.ts'
import { withConnectionTurns } from './connection-turns.ts'
import { isTransientState } from './database-fault.ts'
import { asError } from './errors.ts'
import { type Prisma, PrismaClient } from './generated/prisma/client.ts'
import type { Places } from './places.ts'
import { withSerialTransactions } from './serial-transactions.ts'

export type Db = PrismaClient
/** A client inside an interactive transaction, or the plain one. */
export type Tx = Prisma.TransactionClient

/** A statement that waits for a lock is silent too, but none of ours waits for so long. Idle connections are closed long before. */
const silentMsDefault = 30_000
const idleMsDefault = 10_000
/** How long a tenant's turn for a connection may take; with the wait for the connection itself it is less than what a transaction waits to begin. */
const turnMs = 4_000

/**
 * Connects lazily. `pool`: the largest number of connections (design section 12, HOLDFAST_DB_POOL). `silentMs`: how long a connection
 * may be silent before it counts as broken; what the server bounds of its statements and transactions follows from it. `idleMs`: how long
 * a connection is kept that nobody needs. `turns`: of the connections, for what is asked on behalf of tenants.
 */
export function connect(
  url: string,
  pool: number,
  silentMs = silentMsDefault,
  idleMs = idleMsDefault,
  turns?: Places,
): Db {
  const adapter = new PrismaPg(
    {
      // Before anything else is asked on it; a connection that cannot be bounded is not used.
      onConnect: (client) => boundSession(client, silentMs),
      idleTimeoutMillis: idleMs,
      connectionString: url,
      max: pool,
      connectionTimeoutMillis: 10_000,
      keepAlive: true,
      keepAliveInitialDelayMillis,
      stream: boundedSockets(silentMs),
      application_name: 'holdfast',
    },
    { onPoolError: () => {}, onConnectionError: () => {} },
  )
  const serial = withSerialTransactions(adapter)
  return new PrismaClient({
    adapter: turns === undefined ? serial : withConnectionTurns(serial, turns, turnMs),
    transactionOptions: { maxWait: 15_000, timeout: 60_000 },
  })
}

interface DriverCause {
  originalCode?: unknown
  code?: unknown
  kind?: unknown
  cause?: unknown
}

/** The SQLSTATE of a database error, wherever Prisma or the driver keeps it; null if it is not one. */
export function sqlStateOf(thrown: unknown): string | null {
  let error = thrown as (DriverCause & { meta?: { code?: unknown; driverAdapterError?: unknown } }) | undefined
  for (let depth = 0; error !== undefined && error !== null && depth < 6; depth++) {
    for (const code of [error.originalCode, error.meta?.code, error.code])
      if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !/^P\d{4}$/.test(code)) return code
    error = (error.meta?.driverAdapterError ?? error.cause) as typeof error
  }
  return null
}

// Prisma: refused, unreachable, timed out, no such database, closed, pool timeout, transaction API, write conflict, too many connections
const transientPrisma = new Set([
  'P1000',
  'P1001',
  'P1002',
  'P1003',
  'P1008',
  'P1010',
  'P1017',
  'P2024',
  'P2028',
  'P2034',
  'P2037',
])
const transientSystem = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'])
const transientKinds = new Set([
  'ConnectionClosed',
  'DatabaseNotReachable',
  'SocketTimeout',
  'TransactionWriteConflict',
])

/**
 * Could the same operation succeed later? True for serialization failures (inside a statement P2034, at COMMIT a raw driver error),
 * deadlocks, lock timeouts, lost or refused connections, and whatever else the database cannot do now (database-fault.ts).
 */
export function isTransient(thrown: unknown): boolean {
  const state = sqlStateOf(thrown)
  if (state !== null && isTransientState(state)) return true
  let error = thrown as (DriverCause & { message?: unknown; meta?: { driverAdapterError?: unknown } }) | undefined
  for (let depth = 0; error !== undefined && error !== null && depth < 6; depth++) {
    if (typeof error.code === 'string' && (transientPrisma.has(error.code) || transientSystem.has(error.code)))
      return true
    if (typeof error.kind === 'string' && transientKinds.has(error.kind)) return true
    // The driver reports a connection that ended under a query by text only.
    const text = typeof error.message === 'string' ? error.message : ''
    if (
      /^(Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect)/.test(
        text,
      )
    )
      return true
    error = (error.meta?.driverAdapterError ?? error.cause) as typeof error
  }
  return false
}

/** Full jitter around a doubling base, in ms: attempt 0, 1, 2 … gives about 10, 20, 40 … up to 1 000. */
export const backoffMs = (attempt: number, random = Math.random) => Math.min(1000, 10 * 2 ** attempt) * (0.5 + random())

/**
 * How long the owner of a claim waits, with what it has in hand, for a database that cannot do it now; its lease ends that earlier if
 * renewals fail too.
 */
export const ownersPatienceMs = 5 * 60_000

/** A read is tried as often as an append is. */
const readsMax = 7

/**
 * Runs `operation` again after transient failures, a bounded number of times. `operation` must be repeatable (a read, or one that
 * decides again on what it finds). Once the signal is aborted it is not tried again: its reason is thrown. `patienceMs`: at least for
 * so long.
 */
export async function retrying<T>(
  operation: () => Promise<T>,
  signal?: AbortSignal,
  patienceMs: number | (() => number) = 0,
): Promise<T> {
  const patience = typeof patienceMs === 'number' ? () => patienceMs : patienceMs
  const since = performance.now()
  for (let attempt = 0; ; attempt++) {
    try {
      return await operation()
    } catch (thrown) {
      const isSpent = attempt + 1 >= readsMax && performance.now() - since >= patience()
      if (isSpent || !isTransient(thrown)) throw asError(thrown)
      await sleep(backoffMs(attempt), undefined, signal && { signal }).catch(() => {})
      signal?.throwIfAborted()
    }
  }
}

/**
 * A read of an owner that nobody else can make in its place: tried as often as any, and beyond that for minutes while `patience` is not
 * aborted, as its appends are.
 */
export const patiently = <T>(read: () => Promise<T>, patience: AbortSignal): Promise<T> =>
  retrying(read, undefined, () => (patience.aborted ? 0 : ownersPatienceMs))

/** The database's time through its one SQL function (design section 3): leases, expiries and ages are judged by it alone. */
export async function databaseNow(db: Tx): Promise<Date> {
  const rows = await db.$queryRaw<{ now: Date }[]>`SELECT holdfast_now() AS now`
  return rows[0]!.now
}
