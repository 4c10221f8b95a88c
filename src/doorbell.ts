// The doorbell: a hint that a session's log or live text may have moved, never data that correctness needs (design section 10).
// It rings in process after a commit, over LISTEN/NOTIFY from other processes, and by a poll behind both, one statement for all
// sessions that somebody listens to. A lost ring costs at most the poll interval.

import { Client } from 'pg'
import { boundWire } from './bounded-session.ts'
import { boundedSockets, keepAliveInitialDelayMillis } from './bounded-socket.ts'
import type { Db } from './db.ts'
import { asError } from './errors.ts'

export interface Doorbell {
  /** Calls `heard` whenever the session may have moved; returns how to stop. `heard` must be quick and must not throw. */
  listen(sessionId: string, heard: () => void): () => void
  /** Calls `heard` for every session that rings; for lists, dashboards and owners. `foreign`: another process committed. */
  listenAll(heard: (sessionIds: string[], foreign: boolean) => void): () => void
  ring(sessionIds: readonly string[], foreign?: boolean): void
  /** How many are listening now: nothing may be left behind (STREAM-15). */
  listeners(): number
  close(): Promise<void>
}

export interface DoorbellOptions {
  db: Db
  /** Of the database; one connection of its own for LISTEN. Null: in-process rings and the poll only. */
  url: string | null
  /** This process: its own notifications have rung in process already. */
  origin: string
  pollMs: number
  warn?: (error: Error, what: string) => void
}

export function createDoorbell({ db, url, origin, pollMs, warn }: DoorbellOptions): Doorbell {
  const bySession = new Map<string, Set<() => void>>()
  const all = new Set<(sessionIds: string[], foreign: boolean) => void>()
  const polledSeq = new Map<string, number>()
  let closed = false
  let polling = false

  /** One listener that throws keeps no other from hearing, and does not take the process down with a notification. */
  function tell(heard: () => void) {
    try {
      heard()
    } catch (thrown) {
      warn?.(asError(thrown), 'doorbell listener')
    }
  }

  function ring(sessionIds: readonly string[], foreign = false) {
    for (const id of sessionIds) for (const heard of [...(bySession.get(id) ?? [])]) tell(heard)
    for (const heard of [...all]) tell(() => heard([...sessionIds], foreign))
  }

  async function poll() {
    if (polling || closed) return
    const ids = [...bySession.keys()]
    if (ids.length === 0) return
    polling = true
    try {
      const rows = await db.$queryRaw<
        { id: string; seq: number }[]
      >`SELECT id, seq FROM "Session" WHERE id = ANY (${ids})`
      const moved = rows.filter(({ id, seq }) => bySession.has(id) && polledSeq.get(id) !== seq)
      for (const { id, seq } of moved) polledSeq.set(id, seq)
      ring(
        moved.map(({ id }) => id),
        true,
      )
    } catch (thrown) {
      if (!closed) warn?.(asError(thrown), 'doorbell poll')
    } finally {
      polling = false
    }
  }

  const timer = setInterval(() => void poll(), pollMs)
  timer.unref()
  const connection =
    url === null ? null : listenForever(url, origin, ring, (error) => !closed && warn?.(error, 'LISTEN'))

  return {
    listen(sessionId, heard) {
      const heards = bySession.get(sessionId) ?? new Set()
      bySession.set(sessionId, heards)
      heards.add(heard)
      return () => {
        heards.delete(heard)
        if (heards.size === 0 && bySession.get(sessionId) === heards) {
          bySession.delete(sessionId)
          polledSeq.delete(sessionId)
        }
      }
    },
    listenAll(heard) {
      all.add(heard)
      return () => all.delete(heard)
    },
    ring,
    listeners: () => [...bySession.values()].reduce((sum, heards) => sum + heards.size, 0) + all.size,
    async close() {
      closed = true
      clearInterval(timer)
      await connection?.close()
    },
  }
}

/** How often the silent connection is asked whether it still lives, and how long it may take to answer. */
const aliveEveryMs = 10_000
const aliveAnswerMs = 5_000
const reconnectMsMax = 5_000

/** One LISTEN connection, kept alive and reconnected with back-off until it is closed. */
function listenForever(
  url: string,
  origin: string,
  ring: (sessionIds: string[], foreign: boolean) => void,
  warn: (error: Error) => void,
): { close(): Promise<void> } {
  let client: Client | null = null
  let closed = false
  let failures = 0
  let timer: NodeJS.Timeout | undefined

  function heard(payload: string) {
    const bar = payload.indexOf('|')
    if (payload.slice(0, bar) === origin) return
    ring(payload.slice(bar + 1).split(','), true)
  }

  function reconnect(failed: Client, error: Error) {
    if (closed || client !== failed) return
    client = null
    clearTimeout(timer)
    warn(error)
    failed.removeAllListeners()
    failed.on('error', () => {})
    void failed.end().catch(() => {})
    timer = setTimeout(() => void open(), Math.min(reconnectMsMax, 50 * 2 ** failures++))
    timer.unref()
  }

  function keepAlive(live: Client) {
    timer = setTimeout(async () => {
      const late = setTimeout(() => reconnect(live, new Error('the LISTEN connection does not answer')), aliveAnswerMs)
      try {
        await live.query('SELECT 1')
        if (client === live) keepAlive(live)
      } catch (thrown) {
        reconnect(live, asError(thrown))
      } finally {
        clearTimeout(late)
      }
    }, aliveEveryMs)
    timer.unref()
  }

  async function open() {
    if (closed) return
    const next = new Client({
      connectionString: url,
      connectionTimeoutMillis: aliveAnswerMs,
      keepAlive: true,
      keepAliveInitialDelayMillis,
      // Also where nobody asks whether it still lives: until it listens.
      stream: boundedSockets(aliveEveryMs + aliveAnswerMs),
      application_name: 'holdfast listen',
    })
    client = next
    next.on('error', (error) => reconnect(next, error))
    next.on('end', () => reconnect(next, new Error('the LISTEN connection ended')))
    next.on('notification', ({ payload }) => heard(payload ?? ''))
    try {
      await next.connect()
      // A listener that takes nothing any more would keep the server's queue of notifications from being emptied.
      await boundWire(next)
      await next.query('LISTEN holdfast; LISTEN holdfast_chunk')
      failures = 0
      keepAlive(next)
    } catch (thrown) {
      reconnect(next, asError(thrown))
    }
  }

  void open()
  return {
    async close() {
      closed = true
      clearTimeout(timer)
      const last = client
      client = null
      last?.removeAllListeners()
      last?.on('error', () => {})
      await last?.end().catch(() => {})
    },
  }
}
