import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callAppend, groupParameter, prepareAppend } from '../src/append.ts'
import { createAppendQueue } from '../src/append-queue.ts'
import { connect, type Db } from '../src/db.ts'
import type { AppendOutcome, AppendRequest } from '../src/event-log.ts'
import { event, type NewEvent, noUsage } from '../src/events.ts'
import { newExecutionId } from '../src/ids.ts'
import { type Beside, beside, lockable, locking } from './support/beside.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { fault } from './support/faults.ts'
import { admitted, created } from './support/story.ts'
import {
  newSessionId,
  runningStep,
  type StreamProcess,
  streamProcess,
  titled,
  until,
} from './support/stream-process.ts'

// Appends of many sessions that wait at the same time share one transaction (design section 3, "Grouped appends").

let database: TestDatabase
let here: StreamProcess
let outside: Beside
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  outside = await beside(database.url)
  db = connect(database.url, 6)
})
afterAll(async () => {
  await outside?.close()
  await db?.$disconnect()
  await here?.close()
  await database?.drop()
})

const newSessions = async (count: number) => {
  const made = Array.from({ length: count }, newSessionId)
  for (const outcome of await Promise.all(
    made.map((sessionId) => here.eventLog.append({ sessionId, events: [created()] })),
  ))
    expect(outcome.kind).toBe('appended')
  return made
}

interface Group {
  sizes: number[]
  outcomes: PromiseSettledResult<AppendOutcome>[]
  /** Sessions in the order in which their commits were told. */
  committed: string[]
}

/**
 * Lets a queue's two free slots be taken, so that all requests wait at the same time and form the next group; gives what became of
 * them when `meanwhile` is over.
 */
async function grouped(
  requests: AppendRequest[],
  meanwhile = async () => {},
  more: { groupBytesMax?: number } = {},
): Promise<Group> {
  const busy = await newSessions(2)
  const sizes: number[] = []
  const committed: string[] = []
  const queue = createAppendQueue({
    db,
    origin: 'own_.group',
    committed: (ids) => void committed.push(...ids),
    observe: ({ groupSize }) => void sizes.push(groupSize),
    ...more,
  })
  const first = busy.map((sessionId) => queue.append({ sessionId, events: [titled('first')] }))
  const rest = requests.map((request) => queue.append(request))
  const settled = Promise.allSettled(rest)
  await Promise.all(first)
  await meanwhile()
  const outcomes = await settled
  // The two that took the slots: the second of them may be over only after the group.
  for (const _ of busy) sizes.splice(sizes.indexOf(1), 1)
  return { sizes, outcomes, committed: committed.filter((id) => !busy.includes(id)) }
}

const kinds = ({ outcomes }: Group) =>
  outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.kind : outcome.reason.name))
const eventsOf = (sessionId: string) => db.event.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })
/** How many transactions have written the last event of these sessions. */
const transactions = async (sessionIds: string[]) => {
  const [row] = await outside.query(
    `SELECT count(DISTINCT e.xmin::text)::int AS n FROM "Event" e JOIN "Session" s ON s.id = e."sessionId" AND s.seq = e.seq
      WHERE s.id = ANY ($1)`,
    [sessionIds],
  )
  return row.n
}
describe('one session', () => {
  it('LOG-04: fifty appends at once, from two processes, are numbered without gap or repeat, in the order of their commits', async () => {
    const [sessionId] = (await newSessions(1)) as [string]
    const there = streamProcess(database.url)
    // A reader beside them never sees a number without all before it.
    const seen: number[] = []
    const reading = (async () => {
      while (seen.length < 76)
        for (const { seq } of await here.eventLog.read(sessionId, seen.at(-1) ?? 0, 5)) seen.push(seq)
    })()
    const order: number[] = []
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, async (_, n) => {
        const process = n % 2 ? here : there
        const events = n % 2 ? [titled(`${n}`)] : [titled(`${n}`), titled(`${n} again`)]
        const outcome = await process.eventLog.append({ sessionId, events })
        if (process === here && outcome.kind === 'appended') order.push(outcome.seq)
        return outcome
      }),
    )
    await reading
    await there.close()
    const stored = await eventsOf(sessionId)
    const upTo76 = Array.from({ length: 76 }, (_, n) => n + 1)
    expect(stored.map(({ seq }) => seq)).toEqual(upTo76)
    expect(seen).toEqual(upTo76)
    expect(stored.map(({ at }) => at.getTime())).toEqual(stored.map(({ at }) => at.getTime()).sort((a, b) => a - b))
    expect(order).toEqual([...order].sort((a, b) => a - b))
    for (const outcome of outcomes) {
      if (outcome.kind !== 'appended') throw new Error(outcome.kind)
      const own = stored.filter(({ appendId }) => appendId === outcome.appendId).map(({ seq }) => seq)
      expect([own[0], own.at(-1), own.length]).toEqual([
        outcome.seq,
        outcome.lastSeq,
        outcome.lastSeq - outcome.seq + 1,
      ])
    }
  })

  it('LOG-22: two appends of one session are never in one group: each finds what the one before it has done', async () => {
    const step = await runningStep(here)
    const { sessionId, messageId: m } = step
    const [other] = (await newSessions(1)) as [string]
    const executionId = newExecutionId()
    const owner = 'own_.group'
    const mine = { executionId, owner, phases: ['READY' as const] }
    const ended = (finish: string) => event('step.ended', { messageId: m, finish, usage: noUsage, continues: false })
    const group = await grouped([
      // Claim, then the fence that needs it, then its end, then the fence that misses it.
      {
        sessionId: other,
        events: [event('execution.started', { executionId })],
        claim: { kind: 'acquire', executionId, owner, leaseMs: 9e6 },
      },
      { sessionId: other, events: [titled('held')], fence: mine },
      { sessionId: other, events: [titled('left')], fence: mine, claim: { kind: 'remove' } },
      { sessionId: other, events: [titled('late')], fence: mine },
      // A terminal and a second one.
      { sessionId, events: [ended('first')] },
      { sessionId, events: [ended('second')] },
      // What both decided on the same number.
      { sessionId, events: [titled('one')], expectedSeq: 6 },
      { sessionId, events: [titled('two')], expectedSeq: 6 },
    ])
    expect(kinds(group)).toEqual([
      'appended',
      'appended',
      'appended',
      'fenced',
      'appended',
      'AppendRefusedError',
      'appended',
      'stale',
    ])
    expect(Math.max(...group.sizes)).toBe(2)
    const stored = await outside.query(
      `SELECT seq, type, payload->>'title' AS title, xmin::text FROM "Event" WHERE "sessionId" = $1 ORDER BY seq`,
      [other],
    )
    expect(stored.map(({ title, type }) => title ?? type)).toEqual([
      'session.created',
      'execution.started',
      'held',
      'left',
    ])
    expect(new Set(stored.map(({ xmin }) => xmin)).size).toBe(4)
    expect((await eventsOf(sessionId)).at(-2)!.payload).toMatchObject({ finish: 'first' })
  })
})

describe('many sessions', () => {
  it('LOG-19: what waits at the same time is one commit, each session with its own numbers, each caller with its own outcome', async () => {
    const sessions = await newSessions(32)
    // Different watermarks, different counts of events, and some that the fence, the number or an id refuses.
    for (const [n, sessionId] of sessions.entries())
      if (n % 3 === 0) await here.eventLog.append({ sessionId, events: [titled('a'), titled('b')] })
    const before = new Map((await db.session.findMany()).map(({ id, seq }) => [id, seq]))
    const taken = `msg_taken-${process.pid}`
    await here.eventLog.append({ sessionId: (await newSessions(1))[0]!, events: [admitted(taken)] })
    const requestOf = (sessionId: string, n: number): AppendRequest => {
      const events: NewEvent[] = Array.from({ length: 1 + (n % 4) }, (_, k) => titled(`${n}.${k}`))
      if (n === 5) return { sessionId, events, expectedSeq: 99 }
      if (n === 6) return { sessionId, events: [...events, admitted(taken)] }
      if (n === 7) return { sessionId, events, fence: { executionId: 'exe_.no', owner: null, phases: null } }
      if (n === 8) return { sessionId: 'ses_nobody-has-it', events }
      return { sessionId, events }
    }
    const requests = sessions.map(requestOf)
    const group = await grouped(requests)
    expect(group.sizes[0]).toBe(32)
    expect(kinds(group)).toEqual(
      sessions.map((_, n) => ['stale', 'conflict', 'fenced', 'missing'][n - 5] ?? 'appended'),
    )
    const written = sessions.filter((_, n) => n < 5 || n > 8)
    expect(await transactions(written)).toBe(1)
    for (const [n, { sessionId, events }] of requests.entries()) {
      if (!written.includes(sessionId)) continue
      const base = before.get(sessionId)!
      const outcome = group.outcomes[n]!
      expect(outcome).toMatchObject({ value: { seq: base + 1, lastSeq: base + events.length } })
      const stored = (await eventsOf(sessionId)).slice(base)
      expect(stored.map(({ payload }) => payload)).toEqual(events.map(({ payload }) => payload))
      expect(stored.map(({ seq }) => seq)).toEqual(events.map((_, k) => base + 1 + k))
    }
    for (const n of [5, 6, 7]) expect(await eventsOf(sessions[n]!)).toHaveLength(before.get(sessions[n]!)!)
    expect(group.committed.toSorted()).toEqual(written.toSorted())
  })

  it('LOG-19: the sessions of a call are locked in the order of their ids, whatever order they are named in', async () => {
    const [a, b, c] = (await newSessions(3)).toSorted() as [string, string, string]
    await outside.lock(b)
    const group = [c, b, a].map((sessionId) => prepareAppend({ sessionId, events: [titled('x')] }))
    const called = callAppend(db, groupParameter(group, 'own_.x', true))
    await outside.blocked()
    // It waits at b: what comes before is locked, what comes after is not.
    expect(await Promise.all([a, c].map((id) => lockable(database.url, 'session', id)))).toEqual([false, true])
    await outside.query('COMMIT')
    expect((await called).r!.map(({ o }) => o)).toEqual(['ok', 'ok', 'ok'])
  })

  it.each(['move', 'remove'] as const)(
    'LOG-19: and so are their claims, which renewals and chunks take in that order too (%s)',
    async (kind) => {
      const [a, b, c] = (await newSessions(3)).toSorted() as [string, string, string]
      const owner = 'own_.in-order'
      const requestOf = async (sessionId: string): Promise<AppendRequest> => {
        const executionId = newExecutionId()
        const started = event('execution.started', { executionId })
        await here.eventLog.append({
          sessionId,
          events: [started],
          claim: { kind: 'acquire', executionId, owner, leaseMs: 60_000 },
        })
        const fence = { executionId, owner, phases: ['READY' as const] }
        if (kind === 'move') return { sessionId, events: [titled('x')], fence, claim: { kind, to: 'SAFE' } }
        const settled = event('execution.settled', { executionId, outcome: 'SUCCEEDED', retryAt: null })
        return { sessionId, events: [settled], fence, claim: { kind } }
      }
      const group: AppendRequest[] = []
      for (const sessionId of [c, b, a]) group.push(await requestOf(sessionId))
      await outside.query('BEGIN')
      await outside.query(locking.claim, [b])
      const called = callAppend(db, groupParameter(group.map(prepareAppend), 'own_.x', true))
      await outside.blocked()
      expect(await Promise.all([a, c].map((id) => lockable(database.url, 'claim', id)))).toEqual([false, true])
      await outside.query('COMMIT')
      expect((await called).r!.map(({ o }) => o)).toEqual(['ok', 'ok', 'ok'])
      if (kind === 'remove') return
      for (const { sessionId, fence } of group) {
        const settled = { executionId: fence!.executionId, outcome: 'SUCCEEDED', retryAt: null } as const
        await here.eventLog.append({
          sessionId,
          events: [event('execution.settled', settled)],
          fence: { ...fence!, phases: ['SAFE'] },
          claim: { kind: 'remove' },
        })
      }
    },
  )

  it('LOG-20: one that fails a CHECK or its projection is refused alone, after the others were tried without it, once each', async () => {
    const sessions = await newSessions(16)
    const refusal = await fault(database.url, { when: `NEW.payload->>'title' = 'checked'`, sqlState: '23514' })
    const requests = sessions.map((sessionId, n): AppendRequest => {
      if (n === 3) return { sessionId, events: [titled('checked')] }
      if (n === 11) return { sessionId, events: [titled('n'), event('prompt.withdrawn', { messageId: 'msg_nobody' })] }
      if (n === 12) return { sessionId, events: [titled('n')], expectedSeq: 5 }
      return { sessionId, events: [titled(`${n}`)] }
    })
    const group = await grouped(requests)
    expect(await refusal.fired()).toBeGreaterThan(1)
    await refusal.lift()
    expect(kinds(group)).toEqual(
      sessions.map((_, n) => (n === 3 || n === 11 ? 'AppendRefusedError' : n === 12 ? 'stale' : 'appended')),
    )
    expect(group.sizes[0]).toBe(16)
    expect(group.outcomes[3]).toMatchObject({ reason: { sqlState: '23514', sessionId: sessions[3] } })
    expect(group.outcomes[11]).toMatchObject({ reason: { sqlState: 'HF001', sessionId: sessions[11] } })
    for (const [n, sessionId] of sessions.entries())
      expect(await eventsOf(sessionId), `${n}`).toHaveLength([3, 11, 12].includes(n) ? 1 : 2)
    expect(group.committed.toSorted()).toEqual(sessions.filter((_, n) => ![3, 11, 12].includes(n)).toSorted())
  })

  it('LOG-20: two that want the same new id: one has it, the other is told of a conflict', async () => {
    const sessions = await newSessions(8)
    const same = `msg_same-${process.pid}`
    const group = await grouped(
      sessions.map((sessionId, n) => ({ sessionId, events: [admitted(n < 6 ? `${same}${n}` : same)] })),
    )
    expect(kinds(group).slice(0, 6)).toEqual(Array(6).fill('appended'))
    expect(kinds(group).slice(6).toSorted()).toEqual(['appended', 'conflict'])
    expect(group.sizes[0]).toBe(8)
    expect(await db.input.count({ where: { id: { startsWith: same } } })).toBe(7)
  })

  it('LOG-23: a session that is locked elsewhere does not hold the others up, and goes later', async () => {
    const sessions = await newSessions(16)
    const [locked, ...others] = sessions as [string, ...string[]]
    await outside.lock(locked)
    let isOver = false
    const group = await grouped(
      sessions.map((sessionId) => ({ sessionId, events: [titled('grouped')] })),
      async () => {
        // The others are there while the lock is held and their companion waits for it.
        await until(async () => (await db.event.count({ where: { sessionId: { in: others } } })) === 30, 'the others')
        await outside.blocked()
        expect(await eventsOf(locked)).toHaveLength(1)
        isOver = true
        await outside.query('COMMIT')
      },
    )
    expect(isOver).toBe(true)
    expect(kinds(group)).toEqual(Array(16).fill('appended'))
    expect(await transactions(others)).toBe(1)
    expect(group.sizes).toEqual([16, 1])
    expect(group.committed.at(-1)).toBe(locked)
    expect(await eventsOf(locked)).toHaveLength(2)
  })

  it('LOG-23: while it waits, later appends of the locked session keep their place behind it', async () => {
    const [locked, free] = (await newSessions(2)) as [string, string]
    await outside.lock(locked)
    const first = here.eventLog.append({ sessionId: locked, events: [titled('first')] })
    await outside.blocked()
    const second = here.eventLog.append({ sessionId: locked, events: [titled('second')] })
    for (let n = 0; n < 5; n++)
      expect(await here.eventLog.append({ sessionId: free, events: [titled(`${n}`)] })).toMatchObject({ seq: n + 2 })
    await outside.query('COMMIT')
    expect([await first, await second]).toMatchObject([{ seq: 2 }, { seq: 3 }])
  })

  it('LOG-20: a statement that fails as a whole for one of the group is made again in parts: only that one is refused', async () => {
    const sessions = await newSessions(9)
    // At the commit, where the function cannot catch it any more.
    await outside.query('CREATE SEQUENCE culprits')
    await outside.query(`CREATE FUNCTION refuse_culprit() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM nextval('culprits'); RAISE EXCEPTION 'injected' USING ERRCODE = '54000'; END $$`)
    await outside.query(`CREATE CONSTRAINT TRIGGER refuse_culprit AFTER INSERT ON "Event" DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW.payload->>'title' = 'culprit') EXECUTE FUNCTION refuse_culprit()`)
    const group = await grouped(
      sessions.map((sessionId, n) => ({ sessionId, events: [titled(n === 4 ? 'culprit' : 'innocent')] })),
    )
    const [fired] = await outside.query('SELECT last_value::int AS n FROM culprits')
    await outside.query('DROP FUNCTION refuse_culprit() CASCADE; DROP SEQUENCE culprits')
    expect(kinds(group)).toEqual(sessions.map((_, n) => (n === 4 ? 'AppendRefusedError' : 'appended')))
    expect(fired.n).toBeGreaterThan(2)
    expect(group.outcomes[4]).toMatchObject({ reason: { sqlState: '54000' } })
    for (const [n, sessionId] of sessions.entries()) expect(await eventsOf(sessionId)).toHaveLength(n === 4 ? 1 : 2)
  })

  it('LOG-19: no more bytes share a statement than fit well; what is larger goes alone, and keeps its turn', async () => {
    const sessions = await newSessions(8)
    const kilobyte = (n: number) => titled('x'.repeat((n === 2 ? 17 : 3) * 1000))
    const group = await grouped(
      sessions.map((sessionId, n) => ({ sessionId, events: [kilobyte(n)] })),
      undefined,
      { groupBytesMax: 16_000 },
    )
    expect(kinds(group)).toEqual(sessions.map(() => 'appended'))
    expect(group.sizes.toSorted()).toEqual([1, 2, 5])
    for (const sessionId of sessions) expect(await transactions([sessionId])).toBe(1)
  })

  it.each(['replaced', 'moved', 'expired', 'removed'] as const)(
    'LOG-24: a claim that is %s while the append waits for the lock is seen so when it gets it',
    async (what) => {
      const { sessionId, executionId } = await runningStep(here)
      const fence = { executionId, owner: here.owner, phases: ['UNKNOWN' as const] }
      await outside.lock(sessionId)
      const appending = here.eventLog.append({ sessionId, fence, events: [titled('as its old owner')] })
      const removing = here.eventLog.append({ sessionId, fence, events: [titled('bye')], claim: { kind: 'remove' } })
      await outside.blocked()
      const change = {
        replaced: `UPDATE "Claim" SET "executionId" = 'exe_.${sessionId}', owner = 'own_.successor'`,
        moved: `UPDATE "Claim" SET phase = 'CANCELLING'`,
        expired: `UPDATE "Claim" SET "expiresAt" = now() - interval '1 second'`,
        removed: `DELETE FROM "Claim"`,
      }[what]
      expect((await outside.client.query(`${change} WHERE "sessionId" = $1`, [sessionId])).rowCount).toBe(1)
      await outside.query('COMMIT')
      expect([await appending, await removing]).toEqual([{ kind: 'fenced' }, { kind: 'fenced' }])
      expect((await eventsOf(sessionId)).map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5])
      const claims = await db.claim.findMany({ where: { sessionId } })
      expect(claims).toHaveLength(what === 'removed' ? 0 : 1)
    },
  )
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(db)).toEqual([])
})
