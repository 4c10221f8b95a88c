// What moves, for all activity streams of a process together. Whoever rings, one statement says whose sessions they are and how far they have
// come, and only the streams of their tenants hear of it: what a change costs does not depend on how many streams others have. A change of a
// tenant that nobody watches costs one statement the first time, and none after it.

import { type PollSources, pollActivity } from './activity-poll.ts'
import { onOwnBehalf } from './behalf.ts'
import { type Db, isTransient } from './db.ts'
import type { Doorbell } from './doorbell.ts'
import { asError, OverloadedError, UnavailableError } from './errors.ts'
import { realTimers, type Timers } from './pull.ts'

/** A session that has moved. One object for all streams that are told of the same change. */
export interface Moved {
  readonly sessionId: string
}

export interface Watcher {
  moved(session: Moved): void
  /** It cannot be told any more: it was let go. */
  failed(error: Error): void
}

export interface HubSources extends PollSources {
  doorbell: Pick<Doorbell, 'listenAll'>
  clock?: Timers
}

/** Rung sessions that are looked at in one statement. */
const batchMax = 500
/** Rung sessions that wait to be looked at; a process further behind lets its streams go, whose readers come back. */
const rungMax = 100_000
/** Sessions remembered: whose they are, and what was told of them; forgetting one costs a read, and a repeat at most. */
const knownMax = 100_000
/** Watchers that are told in one turn of the event loop: each answers with an item. */
const sliceMax = 100
const retryMs = 500

interface Tenant {
  /** Since when each watches, in ms of this process's clock. */
  watchers: Map<Watcher, number>
  /** Told in the next round: the latest change of each session, and when it was if the poll has found it. */
  news: Map<string, { session: Moved; at: number }>
  /** The round that is under way: the watchers that are left, and what they are told. */
  round: { left: [Watcher, number][]; news: { session: Moved; at: number }[] } | null
}

/** How a watcher goes on. */
export interface Watching {
  /** It has nothing to give to its reader, who waits. While nobody waits nothing is read, as far as what rings has room. */
  ask(): void
  /** Resolves when what has rung meanwhile was read, as far as one statement goes: what waits and has moved once more is the same change. */
  catchUp(): Promise<void>
  stop(): void
}

interface Hub {
  watch(tenant: string, watcher: Watcher): Watching
}

const hubs = new WeakMap<Db, Hub>()

/** The oldest entry makes room. */
function remember<V>(map: Map<string, V>, key: string, value: V, most: number): void {
  map.delete(key)
  map.set(key, value)
  if (map.size > most) map.delete(map.keys().next().value!)
}

function createHub({ db, doorbell, config, clock = realTimers }: HubSources): Hub {
  const tenants = new Map<string, Tenant>()
  const rung = new Set<string>()
  /** A session has the same tenant for ever. `told`: the seq of the change that was told last, 0 if none was. */
  const known = new Map<string, { tenant: string; told: number }>()
  /** Those whose readers wait. */
  const asking = new Set<Watcher>()
  /** Tenants whose watchers are being told, in the order of their turns. */
  const line = new Set<Tenant>()
  let isLooking = false
  let reading: Promise<void> | null = null
  let nextTurn: NodeJS.Immediate | null = null
  let cancelRetry: (() => void) | null = null
  let stops: (() => void)[] = []

  function failAll(error: Error): void {
    rung.clear()
    for (const { watchers } of [...tenants.values()]) for (const watcher of [...watchers.keys()]) watcher.failed(error)
  }

  /** Finds out whose the rung sessions are and how far they have come. */
  async function look(): Promise<void> {
    if (isLooking || cancelRetry !== null) return
    isLooking = true
    try {
      while (rung.size > 0 && cancelRetry === null && (asking.size > 0 || rung.size >= batchMax)) {
        const ids = [...rung].slice(0, batchMax)
        // Taken out before the read: what rings while it runs is looked at again.
        for (const id of ids) rung.delete(id)
        // For all that listen, whoever was the first to ask.
        reading = onOwnBehalf(() => read(ids))
        await reading
      }
    } catch (thrown) {
      failAll(asError(thrown))
    } finally {
      isLooking = false
      reading = null
    }
  }

  async function read(ids: string[]): Promise<void> {
    try {
      const rows = await db.$queryRaw<{ id: string; tenant: string; seq: number }[]>`
        SELECT id, tenant, seq FROM "Session" WHERE id = ANY (${ids})`
      for (const { id, tenant, seq } of rows) {
        if (!known.has(id)) remember(known, id, { tenant, told: 0 }, knownMax)
        note(tenant, id, seq, Number.POSITIVE_INFINITY)
      }
    } catch (thrown) {
      if (!isTransient(thrown) && !(thrown instanceof OverloadedError)) throw thrown
      if (tenants.size === 0) return rung.clear()
      for (const id of ids) rung.add(id)
      if (rung.size > rungMax) throw new UnavailableError('this activity stream is too far behind')
      cancelRetry = clock.setTimeout(() => {
        cancelRetry = null
        void look()
      }, retryMs)
    }
  }

  /** `at`: when it changed; whoever watches since later need not know. */
  function note(name: string, id: string, seq: number, at: number): void {
    const tenant = tenants.get(name)
    if (tenant === undefined || (known.get(id)?.told ?? 0) >= seq) return
    remember(known, id, { tenant: name, told: seq }, knownMax)
    tenant.news.delete(id)
    tenant.news.set(id, { session: { sessionId: id }, at })
    line.add(tenant)
    if (nextTurn === null) turn()
  }

  /** Tells some watchers of the tenant whose turn it is: thousands of them must not keep those of another waiting. */
  function turn(): void {
    nextTurn = null
    const [tenant] = line
    if (tenant === undefined) return
    line.delete(tenant)
    const round = tenant.round ?? { left: [...tenant.watchers], news: [...tenant.news.values()] }
    if (tenant.round === null) tenant.news.clear()
    for (const [watcher, since] of round.left.splice(0, sliceMax))
      if (tenant.watchers.has(watcher))
        for (const { session, at } of round.news) if (at >= since) watcher.moved(session)
    tenant.round = round.left.length > 0 ? round : null
    if (tenant.round !== null || tenant.news.size > 0) line.add(tenant)
    if (line.size > 0) nextTurn = setImmediate(turn)
  }

  function begin(): void {
    stops = [
      doorbell.listenAll((ids) => {
        for (const id of ids) if (tenants.has(known.get(id)?.tenant ?? '') || !known.has(id)) rung.add(id)
        if (rung.size > rungMax) failAll(new UnavailableError('this activity stream is too far behind'))
        void look()
      }),
      pollActivity(
        { db, config },
        clock,
        () => [...tenants.keys()],
        (sessions) => {
          for (const { tenant, id, seq, at } of sessions) note(tenant, id, seq, at)
        },
      ),
    ]
  }

  function end(): void {
    for (const stop of stops) stop()
    cancelRetry?.()
    cancelRetry = null
    rung.clear()
  }

  return {
    watch(name, watcher) {
      const tenant = tenants.get(name) ?? { watchers: new Map(), news: new Map(), round: null }
      if (tenants.size === 0) begin()
      tenants.set(name, tenant)
      tenant.watchers.set(watcher, clock.now())
      return {
        ask() {
          if (!tenant.watchers.has(watcher)) return
          asking.add(watcher)
          void look()
        },
        async catchUp() {
          if (rung.size > 0) {
            asking.add(watcher)
            void look()
          }
          // Also a read that was under way: what it has taken out rings no more. Once, so that there is an end to it. Its failure is told to all.
          await reading?.catch(() => {})
          // Until it has nothing to give and its reader waits, it asks for no more.
          asking.delete(watcher)
        },
        stop() {
          asking.delete(watcher)
          if (!tenant.watchers.delete(watcher) || tenant.watchers.size > 0) return
          tenants.delete(name)
          line.delete(tenant)
          if (tenants.size === 0) end()
        },
      }
    },
  }
}

/**
 * Calls `watcher.moved` after each change of a session of the tenant from now on, at the latest one poll interval after its commit; several changes that come
 * quickly may be one.
 */
export function watchActivity(sources: HubSources, tenant: string, watcher: Watcher): Watching {
  let hub = hubs.get(sources.db)
  if (hub === undefined) {
    hub = createHub(sources)
    hubs.set(sources.db, hub)
  }
  return hub.watch(tenant, watcher)
}
