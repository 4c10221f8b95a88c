import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { UnknownEventError } from '../src/errors.ts'
import { decodeEvent, type EventRow, eventTypes } from '../src/events.ts'
import { type PlacedEvent, project, type Row, type RowTable } from '../src/project.ts'
import { emptyReplay, replayEvent } from '../src/replay.ts'
import { verifySession } from '../src/verify.ts'
import { type Beside, beside } from './support/beside.ts'
import { startCore } from './support/core.ts'
import { cutOff, inStep, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { runningStep, streamProcess, takeUntil } from './support/stream-process.ts'

// What a log gives when it is read again: by this version, elsewhere, later, by the next version, and by one that does not know it all.

interface Recorded {
  events: (EventRow & { at: string })[]
  session: Row
  tables: Record<RowTable, Row[]>
}
const fixtures = fileURLToPath(new URL('./fixtures/', import.meta.url))
const names = readdirSync(fixtures).filter((name) => /^log-\d+\.json$/.test(name))
const recorded = (name: string): Recorded => JSON.parse(readFileSync(`${fixtures}${name}`, 'utf8'))
const placed = ({ events }: Recorded) => events as unknown as PlacedEvent[]

/** As rows are compared: times as text. */
const shown = (row: Row) => JSON.parse(JSON.stringify(row)) as Row

describe('project', () => {
  it('LOG-08: twice and at another time it gives the same changes, and changes nothing of the event', () => {
    const events = placed(recorded(names[0]!))
    const before = JSON.stringify(events)
    const first = events.map((event) => JSON.stringify(project(event)))
    vi.useFakeTimers({ now: new Date('2041-03-04T05:06:07Z') })
    try {
      expect(events.map((event) => JSON.stringify(project(event)))).toEqual(first)
      expect(events.toReversed().map((event) => JSON.stringify(project(event)))).toEqual(first.toReversed())
    } finally {
      vi.useRealTimers()
    }
    expect(JSON.stringify(events)).toBe(before)
  })

  it('LOG-08: in another process, in another zone, without clock and chance, it gives the same changes', async () => {
    const events = placed(recorded(names[0]!))
    const child = spawn(
      process.execPath,
      ['--import', 'tsx', fileURLToPath(new URL('./support/project-child.ts', import.meta.url))],
      { env: { ...process.env, TZ: 'Pacific/Kiritimati', LC_ALL: 'tr_TR' }, stdio: ['pipe', 'pipe', 'pipe'] },
    )
    child.stdin.end(JSON.stringify(events))
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
    expect(err).toBe('')
    expect(JSON.parse(out)).toEqual(JSON.parse(JSON.stringify(events.map((event) => project(event)))))
  })

  it('LOG-08: the file imports nothing that could read', () => {
    const source = readFileSync(new URL('../src/project.ts', import.meta.url), 'utf8')
    const imports = [...source.matchAll(/from '([^']+)'/g)].map(([, from]) => from)
    expect(imports.toSorted()).toEqual(['./events.ts', './ids.ts', './tokens.ts'])
    expect(readFileSync(new URL('../src/tokens.ts', import.meta.url), 'utf8')).not.toMatch(/^import /m)
    expect(source).not.toMatch(/\b(Date|Math\.random|process|await|async)\b/)
  })
})

describe('logs of released versions', () => {
  it.each(names)('LOG-11: %s gives the rows that it gave when it was recorded', (name) => {
    const { events, session, tables } = recorded(name)
    const state = emptyReplay()
    for (const row of events) replayEvent(state, decodeEvent({ ...row, at: new Date(row.at) }))
    // Columns that a later version adds are not in an older record; what is there has to be the same.
    expect(shown(state.session!)).toMatchObject(shown(session))
    for (const table of Object.keys(tables) as RowTable[]) {
      const replayed = [...state.tables[table].values()].map(shown)
      expect(replayed, table).toHaveLength(tables[table].length)
      expect(replayed, table).toEqual(expect.arrayContaining(tables[table].map((row) => expect.objectContaining(row))))
    }
  })

  it('LOG-11: the first record holds every event type of its release', () => {
    const types = new Set(recorded('log-0001.json').events.map(({ type }) => type))
    expect(types.size).toBe(36)
    for (const type of types) expect(eventTypes).toContain(type)
  })
})

describe('an event type of a newer version', () => {
  let database: TestDatabase
  let outside: Beside
  beforeAll(async () => {
    database = await createTestDatabase()
    outside = await beside(database.url)
  })
  afterAll(async () => {
    await outside?.close()
    await database?.drop()
  })

  /** What a newer version has appended: its event counts like any other. */
  async function appendUnknown(sessionId: string): Promise<number> {
    const [{ seq }] = await outside.query('UPDATE "Session" SET seq = seq + 1 WHERE id = $1 RETURNING seq', [sessionId])
    await outside.query(
      `INSERT INTO "Event" ("sessionId", seq, type, payload, at, "appendId", ordinal)
       VALUES ($1, $2, 'session.dreamt', '{"of": "sheep"}', now(), $3, 0)`,
      [sessionId, seq, randomUUID()],
    )
    database.exempt([sessionId], 'it holds an event that this version does not know')
    return seq
  }

  it('LOG-12: reading, streaming and verifying say which event of which session it is', async () => {
    const here = streamProcess(database.url)
    const { sessionId } = await runningStep(here)
    const other = await runningStep(here)
    const seq = await appendUnknown(sessionId)
    const failure = { name: 'UnknownEventError', sessionId, seq, type: 'session.dreamt' }
    await expect(here.eventLog.read(sessionId, 0, 100)).rejects.toMatchObject(failure)
    await expect(takeUntil(here.stream(sessionId, seq - 1), () => false)).rejects.toMatchObject(failure)
    const verified = await verifySession(here.db, sessionId)
    expect(verified).toMatchObject({ consistent: false, differences: [expect.stringContaining('"session.dreamt"')] })
    expect(verified!.differences[0]).toContain(`event ${seq} of ${sessionId}`)
    // What comes before it can be read, and other sessions are as they were.
    expect(await here.eventLog.read(sessionId, 0, seq - 1)).toHaveLength(seq - 1)
    expect(await verifySession(here.db, other.sessionId)).toMatchObject({ consistent: true })
    await here.close()
  })

  it('LOG-12: names that only look known are not known', () => {
    for (const type of ['toString', 'constructor', '__proto__', 'Session.created', 'session.created ', ''])
      expect(() => decodeEvent({ sessionId: 's', seq: 1, type, payload: {}, at: new Date(), appendId: '' })).toThrow(
        UnknownEventError,
      )
  })

  it('LOG-12: a scan goes past it: the other sessions are recovered, nothing is thrown', async () => {
    const { core, recovery, stop } = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
    quiet(core)
    const before = await inStep(core)
    const strange = await inStep(core)
    const after = await inStep(core)
    await appendUnknown(strange.sessionId)
    const report = await recovery.scan()
    expect(report.taken).toBeGreaterThanOrEqual(2)
    for (const cut of [before, after]) expect(await cut.types()).toContain('step.recovered')
    // The session itself is either as it was or decided on by its rows; its log still holds the event.
    await expect(strange.events()).rejects.toBeInstanceOf(UnknownEventError)
    expect(await verifySession(core.db, strange.sessionId)).toMatchObject({ consistent: false })
    expect((await recovery.scan()).failed).toBe(0)
    const next = await cutOff(core)
    await recovery.scan()
    expect(await next.types()).toContain('step.recovered')
    await stop()
  })
})
