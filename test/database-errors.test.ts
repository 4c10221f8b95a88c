import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { backoffMs, connect, type Db, isTransient, retrying, sqlStateOf, type Tx } from '../src/db.ts'
import { UnavailableError } from '../src/errors.ts'
import { type Beside, beside } from './support/beside.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { databaseProxy } from './support/database-proxy.ts'
import { fault } from './support/faults.ts'
import { created } from './support/story.ts'
import { newSessionId, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

// Which errors are worth another try: the real ones of server, driver and client, one by one; and what an append does about them.

let database: TestDatabase
let db: Db
let here: StreamProcess
let outside: Beside
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, 5)
  here = streamProcess(database.url)
  outside = await beside(database.url)
  await outside.query('CREATE TABLE spot (id int PRIMARY KEY, n int NOT NULL CHECK (n < 1000))')
})
afterAll(async () => {
  await outside?.close()
  await here?.close()
  await db?.$disconnect()
  await database?.drop()
})
afterEach(async () => {
  await outside.query('DELETE FROM spot')
  await outside.query('INSERT INTO spot VALUES (1, 0), (2, 0)')
})

const thrownBy = async (work: () => Promise<unknown>): Promise<unknown> => {
  try {
    await work()
  } catch (thrown) {
    return thrown
  }
  throw new Error('nothing was thrown')
}
const read = (tx: Tx, id: number) => tx.$queryRaw`SELECT n FROM spot WHERE id = ${id}`
const write = (tx: Tx, id: number, n = 1) => tx.$executeRaw`UPDATE spot SET n = n + ${n} WHERE id = ${id}`
/** A promise and what fulfils it: two transactions take turns. */
const turn = () => {
  let go = () => {}
  const promise = new Promise<void>((resolve) => {
    go = resolve
  })
  return { promise, go }
}

describe('DB-01: the classifier and the real errors of the driver', () => {
  it('DB-01: a serialization failure inside a statement', async () => {
    await outside.query('INSERT INTO spot VALUES (1, 0), (2, 0) ON CONFLICT DO NOTHING')
    for (const level of ['RepeatableRead', 'Serializable'] as const) {
      const thrown = await thrownBy(() =>
        db.$transaction(
          async (tx) => {
            await read(tx, 1)
            await outside.query('UPDATE spot SET n = n + 1 WHERE id = 1')
            await write(tx, 1)
          },
          { isolationLevel: level },
        ),
      )
      expect(isTransient(thrown), level).toBe(true)
    }
    // By a call of the model, where Prisma has a code of its own for it.
    const sessionId = newSessionId()
    await here.eventLog.append({ sessionId, events: [created()] })
    const thrown = await thrownBy(() =>
      db.$transaction(
        async (tx) => {
          await tx.session.findUniqueOrThrow({ where: { id: sessionId } })
          await here.eventLog.append({ sessionId, events: [titled('meanwhile')] })
          await tx.session.update({ where: { id: sessionId }, data: { title: 'x' } })
        },
        { isolationLevel: 'RepeatableRead' },
      ),
    )
    expect(thrown).toMatchObject({ code: 'P2034' })
    expect(isTransient(thrown)).toBe(true)
  })

  it('DB-01: a serialization failure at COMMIT', async () => {
    const [first, second] = [turn(), turn()]
    const skew = async (reads: number, writes: number, mine: () => void, other: Promise<void>) =>
      db.$transaction(
        async (tx) => {
          await read(tx, reads)
          await write(tx, writes)
          mine()
          await other
        },
        { isolationLevel: 'Serializable' },
      )
    const both = await Promise.allSettled([skew(1, 2, first.go, second.promise), skew(2, 1, second.go, first.promise)])
    const failed = both.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
    expect(failed).toHaveLength(1)
    expect(sqlStateOf(failed[0])).toBe('40001')
    expect(isTransient(failed[0])).toBe(true)
  })

  it('DB-01: a deadlock', async () => {
    const [first, second] = [turn(), turn()]
    const cross = (a: number, b: number, mine: () => void, other: Promise<void>) =>
      db.$transaction(async (tx) => {
        await write(tx, a)
        mine()
        await other
        await write(tx, b)
      })
    const both = await Promise.allSettled([
      cross(1, 2, first.go, second.promise),
      cross(2, 1, second.go, first.promise),
    ])
    const failed = both.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
    expect(failed).toHaveLength(1)
    expect(isTransient(failed[0])).toBe(true)
  })

  it('DB-01: a lock that is not granted in time, and one that is not waited for', async () => {
    await outside.query('BEGIN')
    await outside.query('UPDATE spot SET n = 0 WHERE id = 1')
    for (const sql of [`SET LOCAL lock_timeout = '20ms'`, null]) {
      const thrown = await thrownBy(() =>
        db.$transaction(async (tx) => {
          if (sql === null) await tx.$queryRaw`SELECT n FROM spot WHERE id = 1 FOR UPDATE NOWAIT`
          else {
            await tx.$executeRawUnsafe(sql)
            await write(tx, 1)
          }
        }),
      )
      expect(sqlStateOf(thrown)).toBe('55P03')
      expect(isTransient(thrown)).toBe(true)
    }
    await outside.query('ROLLBACK')
  })

  it('DB-01: a backend that is ended under a query, in a transaction and at rest', async () => {
    const own = connect(database.url, 1)
    const kill = (pid: number) => outside.query('SELECT pg_terminate_backend($1)', [pid])
    const pidOf = async (tx: Tx) => (await tx.$queryRaw<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`)[0]!.pid
    const pid = await pidOf(own)
    const sleeping = thrownBy(() => own.$queryRaw`SELECT pg_sleep(20)`)
    for (;;) {
      const [row] = await outside.query('SELECT wait_event FROM pg_stat_activity WHERE pid = $1', [pid])
      if (row?.wait_event === 'PgSleep') break
    }
    await kill(pid)
    expect(isTransient(await sleeping)).toBe(true)
    const inTransaction = await thrownBy(() =>
      own.$transaction(async (tx) => {
        await kill(await pidOf(tx))
        await read(tx, 1)
      }),
    )
    expect(isTransient(inTransaction), String(inTransaction)).toBe(true)
    // The next one finds a connection again.
    expect(await retrying(() => pidOf(own))).toBeGreaterThan(0)
    await own.$disconnect()
  })

  it('DB-01: a server that is out of reach, a wire that breaks, a role that has too many connections', async () => {
    const proxy = await databaseProxy(database.url)
    const far = connect(proxy.url, 2)
    await read(far, 1)
    const waiting = thrownBy(() => far.$queryRaw`SELECT pg_sleep(20)`)
    const committing = thrownBy(() =>
      far.$transaction(async (tx) => {
        await write(tx, 1)
        await proxy.down()
      }),
    )
    expect(isTransient(await waiting), 'broken under a query').toBe(true)
    expect(isTransient(await committing), 'broken before COMMIT').toBe(true)
    const refused = await thrownBy(() => read(far, 1))
    expect(isTransient(refused), `refused: ${refused}`).toBe(true)
    const begun = await thrownBy(() => far.$transaction((tx) => read(tx, 1)))
    expect(isTransient(begun), `refused at BEGIN: ${begun}`).toBe(true)
    await far.$disconnect()
    await proxy.close()
    const role = `crowded_${process.pid}`
    await outside.query(`CREATE ROLE ${role} LOGIN PASSWORD 'x' CONNECTION LIMIT 0`)
    try {
      const url = new URL(database.url)
      url.username = role
      url.password = 'x'
      const crowded = connect(url.href, 1)
      const thrown = await thrownBy(() => crowded.$queryRaw`SELECT 1`)
      expect(isTransient(thrown), String(thrown)).toBe(true)
      await crowded.$disconnect()
    } finally {
      await outside.query(`DROP ROLE ${role}`)
    }
  })

  it('DB-01: a connection that the pool does not have in time', async () => {
    const thrown = await thrownBy(async () => {
      const held = turn()
      const isHeld = turn()
      const own = connect(database.url, 1)
      const holding = own.$transaction(async (tx) => {
        await read(tx, 1)
        isHeld.go()
        await held.promise
      })
      await isHeld.promise
      try {
        await own.$transaction((tx) => read(tx, 1), { maxWait: 30 })
      } finally {
        held.go()
        await holding
        await own.$disconnect()
      }
    })
    expect(thrown).toMatchObject({ code: 'P2028' })
    expect(isTransient(thrown)).toBe(true)
  })

  it('DB-01: what would only fail again is not tried again', async () => {
    const failures: [string, string, (tx: Tx) => Promise<unknown>][] = [
      ['a duplicate', '23505', (tx) => tx.$executeRaw`INSERT INTO spot VALUES (1, 1)`],
      ['a CHECK', '23514', (tx) => write(tx, 1, 5000)],
      ['NULL', '23502', (tx) => tx.$executeRaw`INSERT INTO spot VALUES (9, NULL)`],
      ['a table that is not there', '42P01', (tx) => tx.$queryRaw`SELECT * FROM nowhere`],
      ['a column that is not there', '42703', (tx) => tx.$queryRaw`SELECT nothing FROM spot`],
      ['bad SQL', '42601', (tx) => tx.$queryRawUnsafe('SELEC 1')],
      ['a division by zero', '22012', (tx) => tx.$queryRaw`SELECT 1 / (n - n) FROM spot`],
    ]
    for (const [what, state, work] of failures)
      for (const run of [() => work(db), () => db.$transaction((tx) => work(tx))]) {
        const thrown = await thrownBy(run)
        expect([what, sqlStateOf(thrown), isTransient(thrown)]).toEqual([what, state, false])
      }
    const sessionId = newSessionId()
    await here.eventLog.append({ sessionId, events: [created()] })
    const row = await db.session.findUniqueOrThrow({ where: { id: sessionId } })
    const thrown = await thrownBy(() => db.session.create({ data: row }))
    expect(thrown).toMatchObject({ code: 'P2002' })
    expect(isTransient(thrown)).toBe(false)
    for (const other of [new Error('x'), new UnavailableError('x'), null, undefined, 'x', { code: 'P2002' }])
      expect([other, isTransient(other)]).toEqual([other, false])
    let tries = 0
    await thrownBy(() =>
      retrying(async () => {
        tries++
        await write(db, 1, 5000)
      }),
    )
    expect(tries).toBe(1)
  })

  it('DB-01: the plain driver, as LISTEN and liveness use it', async () => {
    const client = new pg.Client({ connectionString: database.url })
    client.on('error', () => {})
    await client.connect()
    const { rows } = await client.query('SELECT pg_backend_pid() AS pid')
    const sleeping = thrownBy(() => client.query('SELECT pg_sleep(20)'))
    await outside.query('SELECT pg_terminate_backend($1)', [rows[0].pid])
    const thrown = await sleeping
    expect([sqlStateOf(thrown), isTransient(thrown)]).toEqual(['57P01', true])
  })
})

describe('DB-01: an append tries again, within a budget', () => {
  /** Makes the append of `title` fail in this way `times` times, inside the statement or at its commit. */
  async function failing(title: string, sqlState: string, times: number, when: 'inside' | 'at commit') {
    const injected = await fault(database.url, {
      when: `NEW.payload->>'title' = '${title}'`,
      sqlState,
      times,
      atCommit: when === 'at commit',
    })
    return async () => {
      const fired = await injected.fired()
      await injected.lift()
      return fired
    }
  }
  const cases = ['40001', '40P01', '55P03', '57P01'].flatMap((state) =>
    (['inside', 'at commit'] as const).map((when) => [state, when] as const),
  )
  it.each(cases)(
    'DB-01: %s %s: the append is tried again until it goes through, and is there once',
    async (state, when) => {
      const sessionId = newSessionId()
      await here.eventLog.append({ sessionId, events: [created()] })
      const title = `t${state}_${when.length}`.toLowerCase()
      const over = await failing(title, state, 3, when)
      expect(await here.eventLog.append({ sessionId, events: [titled(title)] })).toMatchObject({ seq: 2, lastSeq: 2 })
      expect(await over()).toBe(4)
      expect(await db.event.count({ where: { sessionId } })).toBe(2)
    },
  )

  it('DB-01, DB-02: when the budget is spent it gives up, with nothing half written, and the next one goes through', async () => {
    for (const when of ['inside', 'at commit'] as const) {
      const sessionId = newSessionId()
      await here.eventLog.append({ sessionId, events: [created()] })
      const title = `spent_${when.length}`
      const over = await failing(title, '40001', 1000, when)
      await expect(here.eventLog.append({ sessionId, events: [titled(title)] })).rejects.toBeInstanceOf(
        UnavailableError,
      )
      // One with the group, seven alone.
      expect(await over()).toBe(8)
      expect(await db.event.count({ where: { sessionId } })).toBe(1)
      expect(await here.eventLog.append({ sessionId, events: [titled('next')] })).toMatchObject({ seq: 2 })
    }
  })

  it('DB-01: a real deadlock and a real lock timeout', async () => {
    const sessionId = newSessionId()
    await here.eventLog.append({ sessionId, events: [created()] })
    // Takes locks in the wrong order on purpose: first a row of the log's session, then the session.
    await outside.query(`SET deadlock_timeout = '10s'`).catch(() => {})
    await outside.query('BEGIN')
    await outside.query(`LOCK TABLE "Event" IN SHARE MODE`)
    const appending = here.eventLog.append({ sessionId, events: [titled('crossed')] })
    await outside.blocked()
    const crossing = outside
      .query('SELECT id FROM "Session" WHERE id = $1 FOR UPDATE', [sessionId])
      .catch((error) => error)
    // It has the lock, so the append had to let go of it.
    expect(await crossing).toEqual([{ id: sessionId }])
    await outside.query('ROLLBACK')
    expect(await appending).toMatchObject({ kind: 'appended', seq: 2 })
    const config = async (ms: string) => outside.query(`ALTER FUNCTION holdfast_append SET lock_timeout = '${ms}'`)
    await config('30ms')
    await outside.lock(sessionId)
    const waiting = here.eventLog.append({ sessionId, events: [titled('waited')] })
    await outside.blocked()
    // Longer than it waits once.
    await outside.query('SELECT pg_sleep(0.1)')
    await outside.query('COMMIT')
    expect(await waiting).toMatchObject({ kind: 'appended', seq: 3 })
    await config('5s')
  })

  it('DB-01: the pauses double, are jittered and bounded', () => {
    for (let attempt = 0; attempt < 12; attempt++) {
      const middle = Math.min(1000, 10 * 2 ** attempt)
      expect(backoffMs(attempt, () => 0)).toBe(middle * 0.5)
      expect(backoffMs(attempt, () => 0.999)).toBeCloseTo(middle * 1.499)
    }
    expect(new Set(Array.from({ length: 20 }, () => backoffMs(3))).size).toBeGreaterThan(1)
  })
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(db)).toEqual([])
})
