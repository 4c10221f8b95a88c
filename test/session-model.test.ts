import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ToolDefinition } from '../src/config.ts'
import { event } from '../src/events.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../src/runner/decide.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import { verifySession } from '../src/verify.ts'
import { type TestClock, testClock } from './support/clock.ts'
import { startCore, type TestCore } from './support/core.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { call, gatedModel, refused, text } from './support/gated-model.ts'
import { finished } from './support/scripted-model.ts'
import * as pure from './support/session-model.ts'

// How many sequences, on how many cores side by side. HOLDFAST_MODEL_RUNS=20000 is the long run; its seed is printed.
const runs = Number(process.env.HOLDFAST_MODEL_RUNS ?? 300)
const lanes = 3
const seed = Number(process.env.HOLDFAST_MODEL_SEED ?? Date.now() % 2 ** 31)
const tenant = 'default'

interface Real {
  lane: Lane
  sessionId: string
}

interface Lane {
  started: TestCore
  clock: TestClock
  gate: ReturnType<typeof gatedModel>
  toolRuns: Map<string, number>
}

let database: TestDatabase
let pool: Pool
const all: Lane[] = []
let made = 0

async function openLane(url: string): Promise<Lane> {
  const clock = testClock()
  const gate = gatedModel()
  const toolRuns = new Map<string, number>()
  const count: ToolDefinition['execute'] = (_input, { sessionId }) => {
    toolRuns.set(sessionId, (toolRuns.get(sessionId) ?? 0) + 1)
    return 'done'
  }
  const inputSchema = { type: 'object' }
  const started = await startCore({
    url,
    clock,
    models: { models: { 'own/gated': { model: gate.model } } },
    tools: [
      { name: 'free', description: 'runs at once', inputSchema, execute: count },
      { name: 'asks', description: 'asks first', inputSchema, needsApproval: true, execute: count },
    ],
    config: { model: 'own/gated', tools: builtinTools, pollMs: 200, stepLimit: 1000, idleMs: 2 ** 30 },
  })
  return { started, clock, gate, toolRuns }
}

beforeAll(async () => {
  database = await createTestDatabase()
  pool = new Pool({ connectionString: database.url, max: lanes })
  for (let n = 0; n < lanes; n++) all.push(await openLane(database.url))
})
afterAll(async () => {
  await Promise.all(all.map(({ started }) => started.kill()))
  await pool.end()
  await database.drop()
})

const core = (real: Real) => real.lane.started.core

/** What the model and the session must agree on: what this process can see without asking, and what the tables hold. */
function predicted(model: pure.SessionModel) {
  const shown = { requests: model.requests, isAsking: model.run === 'asking', toolRuns: model.toolRuns }
  const stored = {
    inputs: model.inputs.map(({ id, delivery, state, armed }) => ({ id, delivery, state, armed })),
    isClaimed: model.run === 'asking' || model.run === 'resting',
    openInteractions: model.run === 'waiting' ? [model.asked] : [],
    stepOwed: model.stepOwed,
  }
  return { shown, stored }
}

const shown = ({ lane, sessionId }: Real) => ({
  requests: lane.gate.count(sessionId),
  isAsking: lane.gate.open(sessionId) !== undefined,
  toolRuns: lane.toolRuns.get(sessionId) ?? 0,
})

// One statement: twenty thousand sequences look several hundred thousand times.
const look = {
  name: 'look',
  text: `SELECT jsonb_build_object(
    'inputs', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'delivery', delivery, 'state', state, 'armed', "wakePending")
      ORDER BY "admittedSeq"), '[]') FROM "Input" WHERE "sessionId" = $1),
    'isClaimed', EXISTS (SELECT FROM "Claim" WHERE "sessionId" = $1),
    'openInteractions', (SELECT coalesce(jsonb_agg(kind), '[]') FROM "Interaction" WHERE "sessionId" = $1 AND state = 'OPEN'),
    'stepOwed', (SELECT "stepOwed" FROM "Session" WHERE id = $1)) AS stored`,
}

/** Waits until the session is where the model says; what it then shows is compared in full. */
async function agree(model: pure.SessionModel, real: Real) {
  const want = predicted(model)
  const deadline = Date.now() + 20_000
  for (;;) {
    const isLate = Date.now() > deadline
    const isShown = isDeepStrictEqual(shown(real), want.shown)
    if (isShown || isLate) {
      const stored = (await pool.query<{ stored: object }>({ ...look, values: [real.sessionId] })).rows[0]!.stored
      const isResting = model.run !== 'resting' || real.lane.clock.timers().length > 0
      if (isDeepStrictEqual(stored, want.stored) && isResting && isDeepStrictEqual(shown(real), want.shown)) return
      if (isLate) {
        const events = await core(real).db.event.findMany({
          where: { sessionId: real.sessionId },
          orderBy: { seq: 'asc' },
        })
        console.log(events.map(({ seq, type, payload }) => `${seq} ${type} ${JSON.stringify(payload)}`).join('\n'))
        return expect({ shown: shown(real), stored }).toEqual(want)
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

type Command = fc.AsyncCommand<pure.SessionModel, Real>

const command = (
  name: string,
  check: (model: pure.SessionModel) => boolean,
  run: (model: pure.SessionModel, real: Real) => Promise<void>,
): Command => ({
  check,
  async run(model, real) {
    await run(model, real)
    await agree(model, real)
  },
  toString: () => name,
})

const inputAt = (model: pure.SessionModel, n: number) => model.inputs[n % model.inputs.length]!

const admit = (delivery: 'STEER' | 'QUEUE', resume: boolean) =>
  command(
    `admit ${delivery} resume=${resume}`,
    () => true,
    async (model, real) => {
      const id = `msg_model_${++made}`.padEnd(16, '_')
      const input = { sessionId: real.sessionId, messageId: id, text: id, delivery, resume }
      expect(await admitPrompt(core(real), tenant, input)).toMatchObject({
        type: 'PromptAdmission',
        outcome: 'ADMITTED',
        executionRequested: resume,
      })
      model.inputs.push({
        id,
        text: id,
        requested: delivery,
        delivery,
        state: 'PENDING',
        armed: resume,
        asked: resume,
      })
      if (model.run === 'idle') pure.start(model)
    },
  )

const outcomes = { PENDING: 'ALREADY_ADMITTED', PROMOTED: 'ALREADY_PROMOTED', WITHDRAWN: 'ALREADY_WITHDRAWN' }

const retry = (n: number, resume: boolean) =>
  command(
    `retry ${n} resume=${resume}`,
    (model) => model.inputs.length > 0,
    async (model, real) => {
      const input = inputAt(model, n)
      const arms = resume && input.state === 'PENDING' && !input.asked
      const { id: messageId, text, requested: delivery } = input
      const again = { sessionId: real.sessionId, messageId, text, delivery, resume }
      expect(await admitPrompt(core(real), tenant, again)).toMatchObject({
        type: 'PromptAdmission',
        outcome: outcomes[input.state],
        executionRequested: arms,
      })
      if (!arms) return
      Object.assign(input, { armed: true, asked: true })
      if (model.run === 'idle') pure.start(model)
    },
  )

const conflict = (n: number) =>
  command(
    `conflict ${n}`,
    (model) => model.inputs.length > 0,
    async (model, real) => {
      const { id: messageId, requested: delivery } = inputAt(model, n)
      const other = { sessionId: real.sessionId, messageId, text: 'something else', delivery }
      expect(await admitPrompt(core(real), tenant, other)).toMatchObject({ differingFields: ['text'] })
    },
  )

const withdraw = (n: number) =>
  command(
    `withdraw ${n}`,
    (model) => model.inputs.length > 0,
    async (model, real) => {
      const input = inputAt(model, n)
      const answer = await withdrawPrompt(core(real), tenant, { sessionId: real.sessionId, messageId: input.id })
      expect(answer.type).toBe(input.state === 'PROMOTED' ? 'PromptNotPendingError' : 'PromptChangePayload')
      if (input.state === 'PENDING') Object.assign(input, { state: 'WITHDRAWN', armed: false })
    },
  )

const move = (n: number, delivery: 'STEER' | 'QUEUE') =>
  command(
    `move ${n} to ${delivery}`,
    (model) => model.inputs.length > 0,
    async (model, real) => {
      const input = inputAt(model, n)
      const wanted = { sessionId: real.sessionId, messageId: input.id, delivery }
      const answer = await changeDelivery(core(real), tenant, wanted)
      expect(answer.type).toBe(input.state === 'PENDING' ? 'PromptChangePayload' : 'PromptNotPendingError')
      if (input.state === 'PENDING') input.delivery = delivery
    },
  )

const isAsking = (model: pure.SessionModel) => model.run === 'asking'
const request = (real: Real) => real.lane.gate.open(real.sessionId)!

const answer = command('provider: text', isAsking, async (model, real) => {
  request(real).answer(...text('hello'), finished())
  pure.endClean(model, false)
})

const toolCall = command('provider: tool call', isAsking, async (model, real) => {
  request(real).answer(...call(`call${++made}`, 'free', { n: made }))
  model.toolRuns++
  pure.endClean(model, true)
})

const asksPerson = command('provider: call that needs approval', isAsking, async (model, real) => {
  request(real).answer(...call(`call${++made}`, 'asks', { n: made }))
  pure.waitFor(model, 'APPROVAL')
})

const asksQuestion = command('provider: question', isAsking, async (model, real) => {
  request(real).answer(...call(`call${++made}`, 'ask_user', { question: `which ${made}?` }))
  pure.waitFor(model, 'QUESTION')
})

const fails = (status: number, disarms: boolean) =>
  command(`provider: HTTP ${status}`, isAsking, async (model, real) => {
    request(real).fail(refused(status))
    pure.failForGood(model, disarms)
  })

const overloaded = (afterOutput: boolean) =>
  command(`provider: overloaded, after output: ${afterOutput}`, isAsking, async (model, real) => {
    if (afterOutput) {
      const [begin, delta] = text('partial')
      request(real).answer(begin!, delta!)
    } else request(real).fail(refused(503))
    pure.failForNow(model, afterOutput)
  })

const time = command(
  'clock: the retry is due',
  (model) => model.run === 'resting',
  async (model, real) => {
    pure.retryNow(model)
    real.lane.clock.advance(60_000)
  },
)

async function openInteraction(real: Real): Promise<string> {
  const where = { sessionId: real.sessionId, state: 'OPEN' } as const
  return (await core(real).db.interaction.findFirstOrThrow({ where })).id
}

const decide = (decision: 'APPROVE' | 'DECLINE_AND_CONTINUE' | 'DECLINE_AND_STOP') =>
  command(
    `decide ${decision}`,
    (model) => model.run === 'waiting' && model.asked === 'APPROVAL',
    async (model, real) => {
      const input = { interactionId: await openInteraction(real), decision }
      expect(await decideApproval(core(real), tenant, input)).toMatchObject({ type: 'InteractionPayload' })
      expect(await decideApproval(core(real), tenant, input)).toMatchObject({ type: 'InteractionPayload' })
      if (decision === 'DECLINE_AND_STOP') pure.interrupt(model)
      else pure.decided(model, decision === 'APPROVE')
    },
  )

const reply = (isAnswer: boolean) =>
  command(
    isAnswer ? 'answer the question' : 'dismiss the question',
    (model) => model.run === 'waiting' && model.asked === 'QUESTION',
    async (model, real) => {
      const interactionId = await openInteraction(real)
      const settle = () =>
        isAnswer
          ? answerQuestion(core(real), tenant, { interactionId, answer: 'this one' })
          : dismissQuestion(core(real), tenant, { interactionId })
      expect(await settle()).toMatchObject({ type: 'InteractionPayload' })
      expect(await settle()).toMatchObject({ type: 'InteractionPayload' })
      if (isAnswer) pure.decided(model, false)
      else pure.interrupt(model)
    },
  )

const stop = command(
  'interrupt',
  () => true,
  async (model, real) => {
    const interrupted = pure.interrupt(model)
    const { sessionId } = real
    expect(await interruptSession(core(real), tenant, { sessionId })).toMatchObject({ interrupted })
  },
)

const resume = command(
  'resume',
  () => true,
  async (model, real) => {
    expect(await resumeSession(core(real), tenant, { sessionId: real.sessionId })).toMatchObject({
      type: 'ResumeSessionPayload',
    })
    pure.arm(model)
    if (model.run === 'idle') pure.start(model)
  },
)

const delivery = fc.constantFrom('STEER' as const, 'QUEUE' as const)
const any = fc.nat(20)
const commands = fc.commands(
  [
    fc.tuple(delivery, fc.boolean()).map(([how, now]) => admit(how, now)),
    fc.constant(admit('STEER', true)),
    fc.tuple(any, fc.boolean()).map(([n, now]) => retry(n, now)),
    any.map(conflict),
    any.map(withdraw),
    fc.tuple(any, delivery).map(([n, how]) => move(n, how)),
    fc.constantFrom(answer, toolCall, asksPerson, asksQuestion),
    fc.constantFrom(answer, toolCall, asksPerson, asksQuestion),
    fc.constantFrom(fails(400, false), fails(401, true), overloaded(false), overloaded(true)),
    fc.constant(time),
    fc.constantFrom(decide('APPROVE'), decide('DECLINE_AND_CONTINUE'), decide('DECLINE_AND_STOP')),
    fc.constantFrom(reply(true), reply(true), reply(false)),
    fc.constant(stop),
    fc.constant(resume),
  ],
  { maxCommands: 60, size: 'max' },
)

/** At rest the log holds one terminal for each step and tool, and one end for each execution. */
async function complete(real: Real) {
  const { db } = core(real)
  const { sessionId } = real
  const events = await db.event.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })
  const ids = (types: string[], key: string) =>
    events.filter(({ type }) => types.includes(type)).map(({ payload }) => (payload as Record<string, string>)[key]!)
  const same = (begun: string[], ended: string[]) => expect([...ended].sort()).toEqual([...begun].sort())
  same(ids(['step.started'], 'messageId'), ids(['step.ended', 'step.failed', 'step.interrupted'], 'messageId'))
  same(ids(['tool.input_started'], 'callId'), ids(['tool.succeeded', 'tool.failed'], 'callId'))
  same(ids(['execution.started'], 'executionId'), ids(['execution.settled', 'step.recovered'], 'executionId'))
  expect(await verifySession(db, sessionId)).toMatchObject({ consistent: true, differences: [] })
}

describe('one session beside a pure model of it', () => {
  it(`${runs} generated sequences agree after every command, and end consistent (seed ${seed})`, async () => {
    await Promise.all(
      all.map((lane, n) =>
        fc.assert(
          fc.asyncProperty(commands, async (sequence) => {
            const sessionId = `ses_model_${++made}`.padEnd(16, '_')
            const created = { tenant, title: null, instructions: sessionId, model: 'own/gated' }
            const real: Real = { lane, sessionId }
            await core(real).eventLog.append({ sessionId, events: [event('session.created', created)] })
            await fc.asyncModelRun(() => ({ model: pure.newModel(), real }), sequence)
            await interruptSession(core(real), tenant, { sessionId })
            await core(real).coordinator.idle()
            await complete(real)
          }),
          { numRuns: Math.ceil(runs / lanes), seed: seed + n, endOnFailure: process.env.CI === 'true' },
        ),
      ),
    )
  }, 86_400_000)
})
