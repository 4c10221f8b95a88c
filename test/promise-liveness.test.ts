import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { boundWire } from '../src/bounded-session.ts'
import { event } from '../src/events.ts'
import { whyNotReady } from '../src/http/health.ts'
import { newOwnerId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import { beside } from './support/beside.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { silentWire } from './support/silent-wire.ts'

// Who lives, when wires go silent and when the database was away.

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database?.drop())

const silent = createLog('silent')

describe('a liveness connection that goes silent, unheard by the server', () => {
  it('PROMISE-020: its process ends the session that it left behind, and holds its lock again', async () => {
    const wire = await silentWire(database.url)
    const owner = newOwnerId()
    const bystander = createLiveness({ url: database.url, owner: newOwnerId(), graceMs: 60_000, log: silent })
    const live = createLiveness({ url: wire.url, owner, graceMs: 2000, silentMs: 1000, log: silent })
    const outside = await beside(database.url)
    const holders = async () =>
      (await outside.query(
        `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database() AND a.application_name LIKE $1`,
        [`%${owner}`],
      )) as { pid: number }[]
    try {
      expect(await live.whenHeld()).toBe(true)
      expect(await bystander.whenHeld()).toBe(true)
      const before = await holders()
      expect(before).toHaveLength(1)
      expect(wire.silence('pg_advisory_lock')).toBe(1)
      const again = await eventually('another session to hold the lock', async () =>
        (await holders()).find(({ pid }) => pid !== before[0]!.pid),
      )
      expect(await live.whenHeld()).toBe(true)
      expect(await holders()).toEqual([again])
      // Nobody else's session was touched.
      expect(bystander.isHeld()).toBe(true)
      expect(wire.silent()).toBe(1)
    } finally {
      await live.close()
      await bystander.close()
      await outside.close()
      await wire.close()
    }
  })

  it('PROMISE-021: the server itself watches the wires of such sessions, so that what a dead machine held is free after half a minute', async () => {
    const client = new pg.Client({ connectionString: database.url })
    await client.connect()
    await boundWire(client)
    const { rows } = await client.query(
      `SELECT name, setting::int FROM pg_settings WHERE name LIKE 'tcp%' OR name = 'client_connection_check_interval' ORDER BY name`,
    )
    await client.end()
    // The server reads these back from its socket.
    expect(rows).toEqual([
      { name: 'client_connection_check_interval', setting: 10_000 },
      { name: 'tcp_keepalives_count', setting: 4 },
      { name: 'tcp_keepalives_idle', setting: 10 },
      { name: 'tcp_keepalives_interval', setting: 5 },
      { name: 'tcp_user_timeout', setting: 30_000 },
    ])
  })
})

it('PROMISE-022: a process that does not hold its liveness lock says that it is not ready, and why; with the lock it is', async () => {
  const running = await startCore({ url: database.url })
  const rival = new pg.Client({ connectionString: database.url })
  await rival.connect()
  try {
    expect(await whyNotReady(running.core)).toBeNull()
    // First in the queue, so that it has the lock when the connection breaks.
    const taken = rival.query('SELECT pg_advisory_lock(hashtextextended($1, 0))', [running.core.owner])
    const outside = await beside(database.url)
    await outside.blocked()
    await outside.close()
    running.link.cut()
    running.link.mend()
    await taken
    await eventually('the loss', () => !running.liveness.isHeld())
    const reason = await eventually('a database that answers', async () => {
      const said = await whyNotReady(running.core)
      return said?.startsWith('the database') ? null : said
    })
    expect(reason).toMatch(/^the liveness lock is not held/)
    await rival.end()
    await running.liveness.whenHeld()
    expect(await whyNotReady(running.core)).toBeNull()
  } finally {
    await rival.end().catch(() => {})
    await running.stop()
  }
})

describe('after the database was away', () => {
  /** A core whose claims others look at, and its neighbour, which looks; by a clock of its own. */
  async function neighbours() {
    let time = 0
    const a = await startCore({ url: database.url })
    const b = await startCore({
      url: database.url,
      livenessNow: () => time,
      returnsWithinMs: 30_000,
      config: { livenessGraceMs: 2000 },
    })
    quiet(b.core)
    const deadAt = async (at: number) => {
      time = at
      await b.liveness.whenHeld()
      return (await b.liveness.observe()).dead
    }
    return { a, b, deadAt }
  }
  /** Nothing of it is left for the next test to find. */
  const clear = async ({ core }: TestCore, { sessionId, executionId, append }: CutOff) => {
    await core.db.claim.delete({ where: { sessionId } })
    await append([event('execution.settled', { executionId, outcome: 'CLEARED', retryAt: null })])
  }
  const freeLocks = async (...cores: TestCore[]) => {
    const outside = await beside(database.url)
    const ended = await outside.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'holdfast liveness%'`,
    )
    await outside.close()
    for (const { liveness } of cores) await eventually('the loss', () => !liveness.isHeld())
    return ended.length
  }

  it('PROMISE-139: an owner that comes back later than its neighbour keeps its claims; one that does not come back loses them in half a minute', async () => {
    const { a, b, deadAt } = await neighbours()
    const { owner } = a.core
    const cut = await cutOff(b.core, { owner, leaseMs: 600_000 })
    try {
      expect(await deadAt(0)).toEqual([])
      // Both lose their way; the neighbour is back at once.
      a.link.cut()
      expect(await freeLocks(a)).toBeGreaterThanOrEqual(1)
      await eventually('the neighbour to have lost and found it', async () => {
        await b.liveness.whenHeld()
        return (await b.liveness.observe()).lookAgainInMs !== null
      })
      for (const at of [1000, 3001, 10_000, 29_000]) expect(await deadAt(at), `${at}`).not.toContain(owner)
      a.link.mend()
      await a.liveness.whenHeld()
      expect(await deadAt(31_000)).not.toContain(owner)
      // Now it is gone for good, and nobody else is.
      await a.kill()
      await eventually('its lock to be free', async () => {
        expect(await deadAt(31_001)).not.toContain(owner)
        return (await b.liveness.observe()).lookAgainInMs !== null
      })
      expect(await deadAt(33_001)).toContain(owner)
    } finally {
      await clear(b, cut)
      await a.stop()
      await b.stop()
    }
  })

  it('PROMISE-1310: an owner whose lock was seen held since then was back, too, without a new claim', async () => {
    const { a, b, deadAt } = await neighbours()
    const { owner } = a.core
    const cut = await cutOff(b.core, { owner, leaseMs: 600_000 })
    try {
      expect(await freeLocks(a, b)).toBeGreaterThanOrEqual(2)
      await b.liveness.whenHeld()
      await a.liveness.whenHeld()
      expect(await deadAt(0)).toEqual([])
      await a.kill()
      await eventually('its lock to be free', async () => (await b.liveness.observe()).lookAgainInMs !== null)
      expect(await deadAt(1999)).not.toContain(owner)
      expect(await deadAt(2001)).toContain(owner)
    } finally {
      await clear(b, cut)
      await b.stop()
    }
  })

  it('PROMISE-129: an owner that has taken a claim since then was back: its free lock counts after the grace', async () => {
    const { a, b, deadAt } = await neighbours()
    const { owner } = a.core
    expect(await freeLocks(a, b)).toBeGreaterThanOrEqual(2)
    await b.liveness.whenHeld()
    await a.liveness.whenHeld()
    const cut = await cutOff(b.core, { owner, leaseMs: 600_000 })
    try {
      await a.kill()
      await eventually('its lock to be free', async () => (await b.liveness.observe()).lookAgainInMs !== null)
      expect(await deadAt(1999)).not.toContain(owner)
      expect(await deadAt(2001)).toContain(owner)
    } finally {
      await clear(b, cut)
      await b.stop()
    }
  })
})
