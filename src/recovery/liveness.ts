// Liveness: each process holds an advisory lock, named by its owner id, for as long as one connection of its own lives (design
// section 9). A killed process frees it at once, so its claims need not wait for their leases. A free lock alone proves nothing, as a
// restarted database frees all of them: it counts once this process has seen it free for the grace, over one unbroken connection.
//
//   closed ──connect──► connected ──own lock granted──► held ──ping unanswered for 3/4 grace──► held, not proven
//     ▲                     │                            │ ▲──────────── answered ────────────────┘
//     └──── connection lost, all that was seen is forgotten ◄┘

import { Client, type QueryResultRow } from 'pg'
import { boundedSockets, keepAliveInitialDelayMillis } from '../bounded-socket.ts'
import { sqlStateOf } from '../db.ts'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'

export interface Liveness {
  /** Is this process's lock held, as proven within the last three quarters of the grace? Before anything is started for a claim. */
  isHeld(): boolean
  /** Resolves with true once the lock is held, with false when the signal aborts or the lock is given up for good. */
  whenHeld(signal?: AbortSignal): Promise<boolean>
  /**
   * Looks at the locks of all other owners of claims. `dead`: free for the grace. `lookAgainInMs`: when a look can tell more, null
   * if no lock is free. Empty while this process does not hold its own.
   */
  observe(): Promise<{ dead: string[]; lookAgainInMs: number | null }>
  /**
   * Runs `work` while holding the lock of a dead owner, so that it cannot come back meanwhile (CLAIM-28); null if another process
   * holds it. `isStill` tells `work` whether the lock is still held.
   */
  holding<T>(owner: string, work: (isStill: () => boolean) => Promise<T>): Promise<T | null>
  /** Gives the lock back: after it others take the claims of this owner over within the grace. */
  close(): Promise<void>
}

export interface LivenessOptions {
  /** Of the database; one connection beside the pool (design section 12, HOLDFAST_DB_POOL). */
  url: string
  owner: string
  graceMs: number
  log: Log
  /** How long the connection may be silent before it is given up. Slow is not dead: the server still holds the lock for it. */
  silentMs?: number
  /** Monotonic ms. */
  now?: () => number
}

const silentMsDefault = 10_000
const reconnectMsMax = 2_000

export function createLiveness({
  url,
  owner,
  graceMs,
  log,
  silentMs = silentMsDefault,
  now = () => performance.now(),
}: LivenessOptions): Liveness {
  let client: Client | null = null
  let isGranted = false
  let provenAt = Number.NEGATIVE_INFINITY
  let failures = 0
  let closed = false
  let timer: NodeJS.Timeout | undefined
  const freeSince = new Map<string, number>()
  const waiting = new Set<(held: boolean) => void>()
  const pingMs = Math.max(10, graceMs / 4)

  let asked: Promise<unknown> = Promise.resolve()
  /** One query after the other, as the connection takes them. */
  function ask<R extends QueryResultRow>(live: Client, sql: string, values: unknown[] = []): Promise<R[]> {
    const answer = asked.then(async () => (await live.query<R>(sql, values)).rows)
    asked = answer.catch(() => {})
    return answer
  }

  // The server cannot have freed the lock before the last proof was sent, and others wait for the whole grace from then on.
  const isHeld = () => isGranted && now() - provenAt <= graceMs * 0.75

  function prove(sentAt: number) {
    provenAt = sentAt
    if (!isHeld()) return
    for (const resolve of [...waiting]) resolve(true)
  }

  function lose(failed: Client, error: Error) {
    if (client !== failed) return
    client = null
    if (isGranted && !closed)
      log.warn({ err: error }, 'the liveness lock is lost: nothing is started until it is held again')
    isGranted = false
    freeSince.clear()
    clearTimeout(timer)
    failed.removeAllListeners()
    failed.on('error', () => {})
    void failed.end().catch(() => {})
    if (closed) return
    timer = setTimeout(() => void open(), Math.min(reconnectMsMax, 20 * 2 ** failures++))
    timer.unref()
  }

  function ping(live: Client) {
    timer = setTimeout(async () => {
      const silent = setTimeout(() => lose(live, new Error('the liveness connection does not answer')), silentMs)
      try {
        const sentAt = now()
        await ask(live, 'SELECT 1')
        if (client !== live) return
        prove(sentAt)
        ping(live)
      } catch (thrown) {
        lose(live, asError(thrown))
      } finally {
        clearTimeout(silent)
      }
    }, pingMs)
    timer.unref()
  }

  async function open() {
    if (closed) return
    const next = new Client({
      connectionString: url,
      keepAlive: true,
      keepAliveInitialDelayMillis,
      connectionTimeoutMillis: silentMs,
      // Bounds whatever is asked, also before the first ping. Between two pings it is silent with reason.
      stream: boundedSockets(silentMs + pingMs),
      application_name: 'holdfast liveness',
    })
    client = next
    asked = Promise.resolve()
    next.on('error', (error) => lose(next, error))
    next.on('end', () => lose(next, new Error('the liveness connection ended')))
    try {
      await next.connect()
      // Another process may hold it while it takes this owner's claims over. The server cuts the wait up, so that it says something now
      // and then: a wire that stays silent for longer than that is dead.
      await next.query(`SET lock_timeout = '5s'`)
      for (;;) {
        const sentAt = now()
        const granted = await next.query('SELECT pg_advisory_lock(hashtextextended($1, 0))', [owner]).then(
          () => true,
          (thrown) => {
            if (sqlStateOf(thrown) === '55P03') return false
            throw thrown
          },
        )
        if (client !== next) return
        if (!granted) continue
        isGranted = true
        failures = 0
        prove(sentAt)
        // A grant that came after a wait is proven by the first answer.
        ping(next)
        return
      }
    } catch (thrown) {
      lose(next, asError(thrown))
    }
  }

  /** Every other owner of a claim that is not set aside, and whether any session of this database holds its lock. Only looks: taking it would disturb. */
  async function locksOfOthers(live: Client): Promise<{ owner: string; held: boolean }[]> {
    return ask<{ owner: string; held: boolean }>(
      live,
      `SELECT d.owner, EXISTS (
                SELECT 1 FROM pg_locks l
                 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND l.classid::bigint = (d.k >> 32) & 4294967295 AND l.objid::bigint = d.k & 4294967295) AS held
         FROM (SELECT DISTINCT c.owner, hashtextextended(c.owner, 0) AS k FROM "Claim" c
                WHERE c.owner <> $1 AND NOT EXISTS (
                  SELECT 1 FROM "Quarantine" q
                   WHERE q."sessionId" = c."sessionId" AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')) d`,
      [owner],
    )
  }

  async function observe(): Promise<{ dead: string[]; lookAgainInMs: number | null }> {
    const live = client
    if (live === null || !isHeld()) return { dead: [], lookAgainInMs: null }
    const sentAt = now()
    const locks = await locksOfOthers(live)
    if (client !== live) return { dead: [], lookAgainInMs: null }
    const free = new Set(locks.filter(({ held }) => !held).map((lock) => lock.owner))
    for (const known of [...freeSince.keys()]) if (!free.has(known)) freeSince.delete(known)
    const seenAt = now()
    for (const other of free) if (!freeSince.has(other)) freeSince.set(other, seenAt)
    const dead: string[] = []
    let left: number | null = null
    for (const [other, since] of freeSince) {
      const missing = graceMs - (sentAt - since)
      if (missing <= 0) dead.push(other)
      else left = Math.min(left ?? missing, missing)
    }
    return { dead, lookAgainInMs: left === null ? null : Math.ceil(Math.min(left, pingMs)) }
  }

  async function holding<T>(other: string, work: (isStill: () => boolean) => Promise<T>): Promise<T | null> {
    const live = client
    if (live === null || !isHeld()) return null
    const rows = await ask<{ got: boolean }>(live, 'SELECT pg_try_advisory_lock(hashtextextended($1, 0)) AS got', [
      other,
    ])
    if (!rows[0]!.got) return null
    try {
      return await work(() => client === live)
    } finally {
      // A lost connection has freed it already.
      if (client === live)
        await ask(live, 'SELECT pg_advisory_unlock(hashtextextended($1, 0))', [other]).catch(() => {})
    }
  }

  void open()
  return {
    isHeld,
    whenHeld: (signal) =>
      new Promise<boolean>((resolve) => {
        if (isHeld()) return resolve(true)
        if (closed || signal?.aborted) return resolve(false)
        const done = (held: boolean) => {
          waiting.delete(done)
          signal?.removeEventListener('abort', stop)
          resolve(held)
        }
        const stop = () => done(false)
        waiting.add(done)
        signal?.addEventListener('abort', stop, { once: true })
      }),
    observe,
    holding,
    async close() {
      closed = true
      clearTimeout(timer)
      for (const resolve of [...waiting]) resolve(false)
      isGranted = false
      const last = client
      client = null
      last?.removeAllListeners()
      last?.on('error', () => {})
      await last?.end().catch(() => {})
    },
  }
}
