import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ToolDefinition } from '../src/config.ts'
import { event } from '../src/events.ts'
import { newQuarantineId } from '../src/ids.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../src/runner/decide.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import { archiveSession, createSession, updateSession } from '../src/runner/sessions.ts'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import { type Beside, beside } from './support/beside.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { tenant } from './support/stage.ts'
import { streamProcess, titled } from './support/stream-process.ts'

// Everything that takes locks, against each other: the order (Session rows by id, Claims, the rest) leaves no circle.

let database: TestDatabase
let outside: Beside
const cores: TestCore[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  outside = await beside(database.url)
  // A circle is found, and counted, as soon as it closes.
  await outside.query(`ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET deadlock_timeout = '20ms'`)
})
afterAll(async () => {
  await Promise.all(cores.map((core) => core.stop()))
  await outside?.close()
  await database?.drop()
})

const deploy: ToolDefinition = {
  name: 'deploy',
  description: 'needs an approval',
  inputSchema: { type: 'object' },
  needsApproval: true,
  execute: () => 'done',
}

const start = async () => {
  const started = await startCore({
    url: database.url,
    recovers: true,
    tools: [deploy],
    config: {
      tools: [...builtinTools],
      scanMs: 100,
      renewMs: 100,
      leaseMs: 2000,
      livenessGraceMs: 300,
      pollMs: 50,
      recoveryAttempts: 1000,
    },
  })
  cores.push(started)
  return started
}
/** One of those that are open, in any session; false if there is none. */
async function openInteraction({ db }: Core, kind: 'APPROVAL' | 'QUESTION', n: number) {
  const open = await db.interaction.findMany({ where: { kind, state: 'OPEN' }, orderBy: { id: 'asc' } })
  return open.length > 0 && { interactionId: open[n % open.length]!.id }
}

const deadlocks = async () => {
  // What the backends have counted is told when they come to rest.
  const [row] = await outside.query(
    'SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()',
  )
  return row.n
}

it('DB-05: mutations, grouped appends, renewals, live text, drains, takeovers and a death against each other: no deadlock', async () => {
  const [one, two, victim] = [await start(), await start(), await start()]
  const grouping = [1, 2].map(() => streamProcess(database.url))
  const sessions = Array.from({ length: 8 }, (_, n) => `ses_load-test${n}`)
  for (const sessionId of sessions) await createSession(one.core, tenant, { sessionId, model: 'demo/echo' })
  // These wait for a person from the start on, so that there is something to decide however busy the others are.
  const asking = Array.from({ length: 8 }, (_, n) => `ses_load-asks${n}`)
  for (const [n, sessionId] of asking.entries()) {
    await createSession(one.core, tenant, { sessionId, model: 'demo/echo' })
    const text = n % 2 ? '/tool deploy {}' : '/tool ask_user {"question": "go on?"}'
    await admitPrompt(one.core, tenant, { sessionId, messageId: `msg_load-first${n}`, text })
  }
  await eventually('all that is asked', async () => {
    return (await one.core.db.interaction.count({ where: { state: 'OPEN' } })) === asking.length
  })
  const failures: { of: TestCore; op: string; thrown: unknown }[] = []
  const answers = new Set<string>()
  const done: Record<string, number> = {}
  const ids: { sessionId: string; messageId: string }[] = []
  let made = 0
  const ops: Record<string, (core: Core, sessionId: string, n: number) => Promise<unknown>> = {
    async admit(core, sessionId, n) {
      const messageId = `msg_load-test${++made}`
      ids.push({ sessionId, messageId })
      const delivery = n % 3 ? 'STEER' : 'QUEUE'
      return admitPrompt(core, tenant, {
        sessionId,
        messageId,
        text: `say something ${n}`,
        delivery,
        resume: n % 4 > 0,
      })
    },
    async again(core, _, n) {
      const which = ids[n % ids.length]
      return which && admitPrompt(core, tenant, { ...which, text: 'another text' })
    },
    async move(core, _, n) {
      const which = ids[ids.length - 1 - (n % Math.min(ids.length, 5))]
      return which && changeDelivery(core, tenant, { ...which, delivery: n % 2 ? 'STEER' : 'QUEUE' })
    },
    async withdraw(core, _, n) {
      const which = ids[ids.length - 1 - (n % Math.min(ids.length, 3))]
      return which && withdrawPrompt(core, tenant, which)
    },
    interrupt: (core, sessionId) => interruptSession(core, tenant, { sessionId }),
    resume: (core, sessionId) => resumeSession(core, tenant, { sessionId }),
    update: (core, sessionId, n) => updateSession(core, tenant, { sessionId, title: `t${n}` }),
    archive: (core, sessionId) => archiveSession(core, tenant, { sessionId }),
    compact: (core, sessionId, n) =>
      compactSession(core, tenant, { sessionId, messageId: `msg_load-compact${n}x${++made}` }),
    // Tools that ask somebody, and what somebody says.
    async ask(core, sessionId, n) {
      const text = n % 2 ? '/tool deploy {}' : '/tool ask_user {"question": "go on?"}'
      return admitPrompt(core, tenant, { sessionId, messageId: `msg_load-ask${++made}`, text })
    },
    async decide(core, _, n) {
      const which = await openInteraction(core, 'APPROVAL', n)
      const decision = (['APPROVE', 'DECLINE_AND_CONTINUE', 'DECLINE_AND_STOP'] as const)[n % 3]!
      return which && decideApproval(core, tenant, { ...which, decision })
    },
    async answer(core, _, n) {
      const which = await openInteraction(core, 'QUESTION', n)
      return which && answerQuestion(core, tenant, { ...which, answer: 'yes' })
    },
    async dismiss(core, _, n) {
      const which = await openInteraction(core, 'QUESTION', n)
      return which && dismissQuestion(core, tenant, which)
    },
    async resolve(core, sessionId, n) {
      const quarantineId = newQuarantineId()
      const quarantineKind = n % 2 ? 'RECOVERY' : 'EXECUTION'
      const opened = {
        quarantineId,
        executionId: `exe_.load${++made}`,
        quarantineKind,
        reason: 'made by a test',
      } as const
      await grouping[0]!.eventLog.append({ sessionId, events: [event('quarantine.opened', opened)] })
      return resolveQuarantine(core, tenant, { id: quarantineId, action: n % 3 ? 'RETRY' : 'DISCARD' })
    },
    // All sessions at once, in another order each time: groups of two processes that own none of them.
    group: (_, __, n) =>
      Promise.all(
        [...sessions, ...asking]
          .toSorted((a, b) => ((a.charCodeAt(13) * n) % 7) - ((b.charCodeAt(13) * n) % 7))
          .flatMap((sessionId) =>
            grouping.map(({ eventLog }) => eventLog.append({ sessionId, events: [titled(`g${n}`)] })),
          ),
      ),
  }
  const names = [...Object.keys(ops), 'admit', 'admit', 'admit', 'interrupt', 'group', 'ask', 'ask', 'decide', 'answer']
  async function worker(w: number) {
    for (let n = 0; n < 15; n++) {
      const name = names[(w * 7 + n * 5) % names.length]!
      const of = n % 3 === 2 && n < 7 ? victim : n % 2 ? one : two
      try {
        const answer = await ops[name]!(of.core, sessions[(w * 3 + n) % sessions.length]!, w * 100 + n)
        done[name] = (done[name] ?? 0) + 1
        const type = (answer as { type?: string } | null)?.type
        if (type !== undefined) answers.add(`${name} ${type}`)
      } catch (thrown) {
        failures.push({ of, op: name, thrown })
      }
      // Its claims are found by the others while all goes on.
      if (w === 0 && n === 8) void victim.kill()
    }
  }
  // Holds one session at a time for a moment: whoever locks several then stops in the middle, which is when circles close.
  let isOver = false
  async function disturb() {
    for (let n = 0; !isOver; n++) {
      await outside.lock(sessions[(n * 3) % sessions.length]!)
      await new Promise((resolve) => setTimeout(resolve, 10))
      await outside.query('ROLLBACK')
    }
  }
  const disturbing = disturb()
  await Promise.all(Array.from({ length: 10 }, (_, w) => worker(w)))
  isOver = true
  await disturbing
  await Promise.all([one, two].map(({ core }) => core.coordinator.idle()))
  expect(Object.keys(done).toSorted()).toEqual(Object.keys(ops).toSorted())
  expect(answers).toContain('decide InteractionPayload')
  // Answers and dismissals take the same questions: on a slow machine one of the two may always come too late.
  expect([...answers].filter((answer) => /^(answer|dismiss) InteractionPayload$/.test(answer))).not.toEqual([])
  expect(answers).toContain('resolve ResolveQuarantinePayload')
  // What was asked of the victim may have failed, nothing else.
  expect(failures.filter(({ of }) => of !== victim).map(({ op, thrown }) => `${op}: ${thrown}`)).toEqual([])
  for (const each of grouping) await each.close()
  await Promise.all(cores.map((core) => core.stop()))
  expect(await deadlocks()).toBe(0)
  expect(await inconsistencies((await start()).core.db)).toEqual([])

  // The counter counts: a circle made by hand is seen.
  const [a, b] = [await beside(database.url), await beside(database.url)]
  await a.lock(sessions[0]!)
  await b.lock(sessions[1]!)
  const crossing = [a, b].map((each, n) =>
    each.query('SELECT 1 FROM "Session" WHERE id = $1 FOR UPDATE', [sessions[1 - n]!]).catch((error) => error.code),
  )
  await Promise.race(crossing)
  for (const each of [a, b]) await each.query('ROLLBACK').catch(() => {})
  expect(await Promise.all(crossing)).toContain('40P01')
  await Promise.all([a.close(), b.close()])
  for (let look = 0; (await deadlocks()) === 0; look++) expect(look).toBeLessThan(2000)
  expect(await deadlocks()).toBe(1)
}, 90_000)
