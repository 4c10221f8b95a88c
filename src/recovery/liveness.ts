// Liveness: each process holds an advisory lock, named by its owner id, for as long as one connection of its own lives (design
// section 9). A killed process frees it at once, so its claims need not wait for their leases. A free lock alone proves nothing, as a
// restarted database frees all of them: it counts once this process has seen it free for the grace, over one unbroken connection. After the
// database was away (it has started anew, or this process lost its own way to it) an owner that is not known to have come back since has
// longer: one process finds the way back seconds before the other.
//
//   closed ──connect──► connected ──own lock granted──► held ──ping unanswered for 3/4 grace──► held, not proven
//     ▲                     │                            │ ▲──────────── answered ────────────────┘
//     └──── connection lost, all that was seen is forgotten ◄┘

import { Client, type QueryResultRow } from 'pg'
import { boundWire } from '../bounded-session.ts'
import { boundedSockets, keepAliveInitialDelayMillis } from '../bounded-socket.ts'
import { sqlStateOf } from '../db.ts'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'
import { createStandstill } from '../standstill.ts'

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
  /** How long an owner may take to come back after the database was away. */
  returnsWithinMs?: number
  /** Monotonic ms. */
  now?: () => number
  /** Ms of the wall clock: it goes on where the monotonic one stands still. */
  wall?: () => number
}

const silentMsDefault = 10_000
const reconnectMsMax = 2_000
const lockWaitMs = 5_000
/** To notice that the wire is silent, to give a connection up that cannot be made, and to make another. */
const returnsWithinMsDefault = 30_000

/** Names the owner, whose id no other process has: by this name a process finds its own sessions, and no others. */
const nameOf = (owner: string) => `holdfast liveness ${owner}`

/**
 * Ends the sessions of earlier connections of this very process that hold its lock, or stand before this one in its queue: if their wire
 * went silent, the server has not heard that they are gone. A process that takes this owner over has another name, and is waited for.
 */
async function endGhosts(live: Client, owner: string): Promise<number> {
  const { rows } = await live.query(
    `SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
      WHERE a.application_name = $1 AND a.usename = current_user AND a.datname = current_database() AND a.pid <> pg_backend_pid()
        AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')`,
    [nameOf(owner)],
  )
  return rows.length
}

export function createLiveness({
  url,
  owner,
  graceMs,
  log,
  silentMs = silentMsDefault,
  returnsWithinMs = returnsWithinMsDefault,
  now: monotonic,
  wall,
}: LivenessOptions): Liveness {
  const now = monotonic ?? (() => performance.now())
  const standstill = createStandstill(now, wall ?? monotonic)
  let client: Client | null = null
  let isGranted = false
  let provenAt = Number.NEGATIVE_INFINITY
  let failures = 0
  let closed = false
  let timer: NodeJS.Timeout | undefined
  const freeSince = new Map<string, number>()
  /** Owners whose lock this connection has seen held: they were back, and what frees their lock from now on is no absence of the database. */
  const seenHeld = new Set<string>()
  /** Since when, by the database's clock, it has not been away; and from when on, by ours, everybody has had the time to come back. */
  let thereSince = new Date(0)
  let allBackAt = Number.POSITIVE_INFINITY
  let wasHeld = false
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
  // After a standstill of the machine it may have, whatever the monotonic clock says. That clock alone counts how long other locks are free.
  const isHeld = () => isGranted && now() - provenAt <= graceMs * 0.75 && provenAt > standstill.noticedAt()

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
    seenHeld.clear()
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

  /**
   * A way that was lost tells nothing of what others have lost: the same as if the database had started just now. A server that has started
   * itself anew, as one of its processes was killed, keeps its postmaster; its WAL writer tells. Who may not see that one (NULL) knows of the
   * postmaster alone.
   */
  async function lookSinceWhen(live: Client) {
    const askedAt = now()
    const { rows } = await live.query<{ since: Date; ms: number }>(
      `SELECT since, extract(epoch FROM clock_timestamp() - since)::float8 * 1000 AS ms
         FROM (SELECT CASE WHEN $1 THEN clock_timestamp() ELSE greatest(
                pg_postmaster_start_time(),
                (SELECT max(backend_start) FROM pg_stat_activity WHERE backend_type = 'walwriter')) END AS since) s`,
      [wasHeld],
    )
    const [{ since, ms }] = rows as [{ since: Date; ms: number }]
    thereSince = since
    allBackAt = askedAt + returnsWithinMs - ms
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
      application_name: nameOf(owner),
    })
    client = next
    asked = Promise.resolve()
    next.on('error', (error) => lose(next, error))
    next.on('end', () => lose(next, new Error('the liveness connection ended')))
    try {
      await next.connect()
      await boundWire(next)
      await lookSinceWhen(next)
      // Another process may hold it while it takes this owner's claims over. The server cuts the wait up, so that it says something now
      // and then: a wire that stays silent for longer than that is dead.
      await next.query(`SET lock_timeout = '${Math.min(lockWaitMs, silentMs / 2)}ms'`)
      for (;;) {
        const ghosts = await endGhosts(next, owner)
        if (ghosts > 0)
          log.warn({ ghosts }, 'earlier liveness connections of this process were ended: they had gone silent')
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
        wasHeld = true
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

  /**
   * Every other owner of a claim that is not set aside, and whether any session of this database holds its lock. Only looks: taking it would
   * disturb. `isBack`: it has taken a claim since the database was away, and nobody does that without the lock.
   */
  async function locksOfOthers(live: Client): Promise<{ owner: string; held: boolean; isBack: boolean }[]> {
    return ask<{ owner: string; held: boolean; isBack: boolean }>(
      live,
      `SELECT d.owner, d."isBack", EXISTS (
                SELECT 1 FROM pg_locks l
                 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND l.classid::bigint = (d.k >> 32) & 4294967295 AND l.objid::bigint = d.k & 4294967295) AS held
         FROM (SELECT c.owner, hashtextextended(c.owner, 0) AS k, bool_or(c."startedAt" > $2) AS "isBack" FROM "Claim" c
                WHERE c.owner <> $1 AND NOT EXISTS (
                  SELECT 1 FROM "Quarantine" q
                   WHERE q."sessionId" = c."sessionId" AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')
                GROUP BY c.owner) d`,
      [owner, thereSince],
    )
  }

  async function observe(): Promise<{ dead: string[]; lookAgainInMs: number | null }> {
    const live = client
    if (live === null || !isHeld()) return { dead: [], lookAgainInMs: null }
    const sentAt = now()
    const locks = await locksOfOthers(live)
    if (client !== live) return { dead: [], lookAgainInMs: null }
    const free = new Map(locks.filter(({ held }) => !held).map((lock) => [lock.owner, lock]))
    const owners = new Set(locks.map((lock) => lock.owner))
    for (const known of [...seenHeld]) if (!owners.has(known)) seenHeld.delete(known)
    for (const lock of locks) if (lock.held) seenHeld.add(lock.owner)
    for (const known of [...freeSince.keys()]) if (!free.has(known)) freeSince.delete(known)
    const seenAt = now()
    for (const other of free.keys()) if (!freeSince.has(other)) freeSince.set(other, seenAt)
    const dead: string[] = []
    let left: number | null = null
    for (const [other, since] of freeSince) {
      const away = seenHeld.has(other) || free.get(other)?.isBack ? 0 : allBackAt - sentAt
      const missing = Math.max(graceMs - (sentAt - since), away)
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
