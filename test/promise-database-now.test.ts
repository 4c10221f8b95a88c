// What the database cannot do now says nothing about a session: it is tried again, readiness says it, and nothing is set aside for it.
import { describe, expect, it } from 'vitest'
import { isOfTheRows, isTransientState, whyNotWritten } from '../src/database-fault.ts'
import { connect, isTransient } from '../src/db.ts'
import { UnavailableError } from '../src/errors.ts'
import { event } from '../src/events.ts'
import { whyNotReady } from '../src/http/health.ts'
import { newQuarantineId } from '../src/ids.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { createSession } from '../src/runner/sessions.ts'
import { codeOf } from '../src/schema/masking.ts'
import type { TestCore } from './support/core.ts'
import { type CutOff, inStep, quiet } from './support/cut-off.ts'
import { fault, onDatabase } from './support/faults.ts'
import { finish, reply, text } from './support/provider.ts'
import { newId, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
const now = [
  '53000',
  '25P02',
  '53100',
  '53200',
  '53300',
  '53400',
  '57014',
  '57P05',
  '58000',
  '58030',
  '58P01',
  '25006',
  '55006',
  'XX001',
]
const forEver = ['22003', '22P02', '23505', '23514', '54000', 'HF001']

const inDepth: ReadonlySet<string> = new Set(['53100', '53300', '57014', '23505'])
const everyWay = (state: string) =>
  (['sql', 'model', 'transaction'] as const).flatMap((way) => [[way, state] as const, [way, `~${state}`] as const])

const thrownBy = (work: () => Promise<unknown>): Promise<unknown> =>
  work().then(
    () => {
      throw new Error('nothing was thrown')
    },
    (thrown) => thrown,
  )

describe('which errors of the database are its own', () => {
  it('PROMISE-040: each is known as one of the moment, however it comes: by a raw statement, a model call, in a transaction, at its commit', async () => {
    await stage.start()
    const db = connect(stage.database.url, 1)
    const id = await stage.session()
    // Each title is the SQLSTATE that the server answers it with: at once, or at commit behind a tilde.
    await onDatabase(
      stage.database.url,
      `CREATE FUNCTION answered() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         RAISE EXCEPTION 'injected' USING ERRCODE = right(NEW.title, 5); END $$;
       CREATE TRIGGER now BEFORE UPDATE ON "Session" FOR EACH ROW WHEN (length(NEW.title) = 5) EXECUTE FUNCTION answered();
       CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON "Session" DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW WHEN (NEW.title LIKE '~_____') EXECUTE FUNCTION answered()`,
    )
    const ways = {
      sql: (title: string) => db.$executeRaw`UPDATE "Session" SET title = ${title} WHERE id = ${id}`,
      model: (title: string) => db.session.update({ where: { id }, data: { title } }),
      transaction: (title: string) => db.$transaction((tx) => tx.session.update({ where: { id }, data: { title } })),
    }
    const found: unknown[] = []
    const expected: unknown[] = []
    for (const state of [...now, ...forEver]) {
      expected.push([state, now.includes(state), !now.includes(state)])
      found.push([state, isTransientState(state), isOfTheRows(state)])
      const run = (way: keyof typeof ways, title: string) => thrownBy(() => ways[way](title))
      // Prisma knows some of them by names of its own, and those of a commit come by another way.
      const tries = inDepth.has(state) ? everyWay(state) : [['sql', state] as const]
      for (const [way, title] of tries) {
        expected.push([title, way, now.includes(state)])
        found.push([title, way, isTransient(await run(way, title))])
      }
    }
    await onDatabase(stage.database.url, 'DROP FUNCTION answered() CASCADE')
    expect(found).toEqual(expected)
    await db.$disconnect()
  })

  it('PROMISE-041: what is said of them to everybody holds no path and no name', () => {
    for (const state of [...now, null]) expect(whyNotWritten(state)).toMatch(/^the database [a-z' :-]+$/)
    expect(whyNotWritten('53100')).toContain('no room')
    expect(whyNotWritten('25006')).toContain('read-only')
  })
})

/** A core whose scans are asked for, and a session whose owner is gone in the middle of a step. */
async function broken(n = 1): Promise<{ running: TestCore; cuts: CutOff[] }> {
  const running = await stage.start({ config: { livenessGraceMs: 60_000 } })
  quiet(running.core)
  const cuts: CutOff[] = []
  for (let each = 0; each < n; each++) cuts.push(await inStep(running.core))
  return { running, cuts }
}

describe('a database that cannot write', () => {
  it.each(['53100', '57014'])(
    'PROMISE-042: %s: no claim is set aside for it, no try is counted, and the scan after it takes them',
    async (sqlState) => {
      const { running, cuts } = await broken(2)
      const { core, recovery } = running
      const full = await fault(stage.database.url, { when: `NEW.type = 'step.recovered'`, sqlState })
      expect(await recovery.scan()).toMatchObject({ taken: 0, quarantined: 0, failed: 2 })
      expect(await full.fired()).toBeGreaterThanOrEqual(2)
      await full.lift()
      expect(await core.db.quarantine.count()).toBe(0)
      for (const { sessionId } of cuts)
        expect(await core.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({ recoveries: 0 })
      expect(await recovery.scan()).toMatchObject({ taken: 2, quarantined: 0, failed: 0 })
      for (const { sessionId } of cuts)
        expect(await core.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({ recoveries: 1 })
    },
  )

  it('PROMISE-043: what the rows themselves make impossible is set aside as before', async () => {
    const { running, cuts } = await broken()
    const bad = await fault(stage.database.url, { when: `NEW.type = 'step.recovered'`, sqlState: '23514' })
    expect(await running.recovery.scan()).toMatchObject({ taken: 0, quarantined: 1, failed: 0 })
    await bad.lift()
    expect(await stage.types(cuts[0]!.sessionId)).toContain('quarantine.opened')
  })

  it('PROMISE-044: callers are told UNAVAILABLE, also where a person decides', async () => {
    const { running, cuts } = await broken()
    const { core } = running
    const [{ sessionId, executionId, append }] = cuts as [CutOff]
    const quarantineId = newQuarantineId()
    await append([
      event('quarantine.opened', { quarantineId, executionId, quarantineKind: 'EXECUTION', reason: 'odd' }),
    ])
    const full = await fault(stage.database.url, { when: `NEW."sessionId" = '${sessionId}'`, sqlState: '53100' })
    const thrown = await thrownBy(() => resolveQuarantine(core, tenant, { id: quarantineId, action: 'DISCARD' }))
    expect([await full.fired(), codeOf(thrown)]).toEqual([1, 'UNAVAILABLE'])
    await full.lift()
    expect(await resolveQuarantine(core, tenant, { id: quarantineId, action: 'DISCARD' })).toMatchObject({
      type: 'ResolveQuarantinePayload',
    })
  })

  it('PROMISE-045: readiness says so for as long as it lasts, and comes back by itself', async () => {
    const { core } = await stage.start()
    const ready = () => whyNotReady(core)
    expect(await ready()).toBeNull()
    const full = await fault(stage.database.url, { when: `NEW.type = 'session.created'`, sqlState: '53100' })
    const thrown = await thrownBy(() => createSession(core, tenant, { sessionId: newId('ses_') }))
    expect(thrown).toBeInstanceOf(UnavailableError)
    expect(codeOf(thrown)).toBe('UNAVAILABLE')
    const before = await full.fired()
    expect(await ready()).toBe('the database has no room left on its disk')
    // It was asked for a write of its own, which left nothing behind.
    expect(await full.fired()).toBe(before + 1)
    expect(await core.db.session.count({ where: { id: { startsWith: 'ses_.' } } })).toBe(0)
    await full.lift()
    await expect.poll(ready).toBeNull()
    expect(core.writes.trouble()).toBeNull()
  })

  it('PROMISE-046: a server that takes no writes is not ready, though nobody has tried to write', async () => {
    const { core } = await stage.start()
    const at = new URL(stage.database.url)
    at.searchParams.set('options', '-c default_transaction_read_only=on')
    const standby = connect(at.href, 1)
    expect(await whyNotReady({ ...core, db: standby })).toBe(
      'the database takes no writes: it is a standby or read-only',
    )
    await standby.$disconnect()
  })

  it('PROMISE-047: a step waits for it with what it has, longer than any caller, and loses nothing', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('all of ', 'it'), finish()))
    // Once in the group, seven times alone: then a caller would be told.
    const full = await fault(stage.database.url, { when: `NEW.type = 'text.ended'`, sqlState: '53100', times: 8 })
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await full.fired()).toBe(9)
    await full.lift()
    const types = await stage.types(s)
    expect(types.filter((type) => type === 'execution.started')).toHaveLength(1)
    expect(types.slice(-2)).toEqual(['step.ended', 'execution.settled'])
    expect(await stage.db.part.findFirst({ where: { sessionId: s } })).toMatchObject({
      text: 'all of it',
      complete: true,
    })
  })
})
