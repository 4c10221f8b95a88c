import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTool } from '../src/config.ts'
import type { JsonValue } from '../src/events.ts'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import { replaySession } from '../src/verify.ts'
import {
  answerTo,
  approve,
  asked,
  call,
  calling,
  declineAndStop,
  dismiss,
  everything,
  goOnWithout,
  guarded,
  interaction,
  overHttp,
  passTime,
  resetTime,
  said,
  scanned,
  statusIn,
  waiting,
} from './support/asking.ts'
import { eventually } from './support/core.ts'
import { finish, finishing, gate, reply, toolCall, wait } from './support/provider.ts'
import { instant, probe, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const questions = { config: { tools: builtinTools } }
/** A list in a list in a list. */
const nested = (levels: number) => Array.from({ length: levels - 1 }).reduce<JsonValue[]>((inner) => [inner], [])
const question = { name: 'ask_user', args: { question: 'Which colour?', options: ['red', 'blue'] }, id: 'call_ask' }

describe('asking', () => {
  it('ASK-01: call and question are one commit, and nothing of the tool has started', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling({ name: 'deploy', args: { to: 'prod' } }))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    expect(await stage.commits(s)).toContainEqual(['tool.called', 'interaction.requested'])
    expect(await stage.payloads(s, 'interaction.requested')).toMatchObject([
      { kind: 'APPROVAL', callId: 'call_deploy', name: 'deploy', toolInput: { to: 'prod' } },
    ])
    expect(await stage.types(s)).not.toContain('tool.started')
    expect(await call(stage, s, 'call_deploy')).toMatchObject({ status: 'AWAITING_APPROVAL', startedAt: null })
    expect(deploy.ran).toEqual([])
  })

  it('ASK-02: with only a person left to act the session waits in one commit, without claim, lease or end of the step', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    expect((await stage.commits(s)).at(-1)).toEqual(['step.streamed', 'execution.settled'])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'WAITING' }])
    expect(await stage.db.message.findFirst({ where: { sessionId: s, kind: 'ASSISTANT' } })).toMatchObject({
      status: 'RUNNING',
      streamed: true,
    })
    expect(await stage.claim(s)).toBeNull()
    expect(a.core.leases.held()).toEqual([])
    expect(await statusIn(stage, a, s)).toBe('WAITING')
  })

  it('ASK-02: a sibling that still runs holds that commit back', async () => {
    const deploy = guarded()
    const look = probe('look')
    const a = await stage.start({ tools: [deploy.tool, look.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy', 'look'))
    await prompt(a.core, s)
    const { finish: end } = await look.run()
    await (await stage.provider.request(0)).ended
    await stage.logged(s, 'step.streamed')
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN' })
    expect(await stage.types(s)).not.toContain('execution.settled')
    end()
    await waiting(stage, a, s)
    expect((await stage.commits(s)).slice(-2)).toEqual([['tool.succeeded'], ['execution.settled']])
    expect((await stage.types(s)).filter((type) => type === 'step.streamed')).toHaveLength(1)
  })

  it('PROMO-23: no input enters a session that waits for a person, whatever is armed and however often it is scanned', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'), said(), said('queued'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const steer = await prompt(a.core, s, 'steer')
    const queued = await prompt(a.core, s, 'queued', { delivery: 'QUEUE' })
    for (let pass = 0; pass < 3; pass++) await scanned(stage, a)
    const inputs = await stage.db.input.findMany({ where: { id: { in: [steer, queued] } } })
    expect(inputs.map(({ state, wakePending }) => [state, wakePending])).toEqual([
      ['PENDING', true],
      ['PENDING', true],
    ])
    expect(await statusIn(stage, a, s)).toBe('WAITING')
    expect(await stage.claim(s)).toBeNull()
    expect(await stage.payloads(s, 'execution.started')).toHaveLength(1)
    expect(stage.provider.requests).toHaveLength(1)
    // They are not lost: the decision brings the next boundary.
    await approve(a.core, await asked(stage, s))
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!)).toContain('user: steer')
    expect(spoken(stage.provider.requests[1]!)).not.toContain('user: queued')
    expect(spoken(stage.provider.requests[2]!)).toContain('user: queued')
  })

  it('ASK-17: an open question is there after a reload and in the log from 0; a settled one is never opened again', async () => {
    const a = await stage.start(questions)
    const s = await stage.session()
    stage.provider.script(calling(question), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const fields = 'id kind state callId toolName toolInput prompt options answer'
    const query = `query ($id: ID!, $open: Boolean) { session(id: $id) { interactions(open: $open) { ${fields} } } }`
    const b = await stage.start(questions)
    const shown = {
      id,
      kind: 'QUESTION',
      state: 'OPEN',
      callId: 'call_ask',
      toolName: 'ask_user',
      toolInput: question.args,
      prompt: 'Which colour?',
      options: ['red', 'blue'],
      answer: null,
    }
    const list = (open: boolean) =>
      overHttp(b, async (ask) => (await ask(query, { id: s, open })).data.session.interactions)
    expect(await list(true)).toEqual([shown])
    expect(await list(false)).toEqual([])
    const replayed = async () => [...(await replaySession(stage.db, s)).tables.Interaction.values()]
    expect(await replayed()).toMatchObject([{ id, state: 'OPEN', prompt: 'Which colour?', options: ['red', 'blue'] }])
    await answerTo(a.core, id, 'red')
    await a.core.coordinator.idle()
    expect(await list(true)).toEqual([])
    expect(await list(false)).toEqual([{ ...shown, state: 'ANSWERED', answer: 'red' }])
    expect(await replayed()).toMatchObject([{ id, state: 'ANSWERED', answer: 'red' }])
  })

  it('ASK-23: the inbox pages over all sessions: each open one once with its session, a settled one only when asked for', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const open: { id: string; session: { id: string } }[] = []
    for (let n = 0; n < 3; n++) {
      const s = await stage.session()
      stage.provider.script(calling('deploy'))
      await prompt(a.core, s)
      await waiting(stage, a, s)
      open.push({ id: await asked(stage, s), session: { id: s } })
    }
    const settled = open.shift()!
    stage.provider.script(said())
    await approve(a.core, settled.id)
    await a.core.coordinator.idle()
    const query = `query ($after: String, $open: Boolean) { interactions(first: 1, after: $after, open: $open) {
      edges { node { id session { id } } } pageInfo { hasNextPage endCursor } } }`
    const all = (core: typeof a, isOpen: boolean) =>
      overHttp(core, async (ask) => {
        const found: unknown[] = []
        let after: string | null = null
        do {
          const page: { edges: { node: unknown }[]; pageInfo: { hasNextPage: boolean; endCursor: string } } = (
            await ask(query, { after, open: isOpen })
          ).data.interactions
          found.push(...page.edges.map(({ node }) => node))
          after = page.pageInfo.hasNextPage ? page.pageInfo.endCursor : null
        } while (after !== null)
        return found
      })
    const mine = async (core: typeof a, isOpen: boolean) => {
      const ids = new Set([settled, ...open].map(({ id }) => id))
      return (await all(core, isOpen)).filter((node) => ids.has((node as { id: string }).id))
    }
    expect(await mine(a, true)).toEqual(open)
    expect(await mine(a, false)).toEqual([settled])
    const b = await stage.start({ tools: [deploy.tool] })
    await a.kill()
    expect(await mine(b, true)).toEqual(open)
    expect(await mine(b, false)).toEqual([settled])
  })
})

describe('deciding', () => {
  it('ASK-04: an approval runs the tool once in a new execution, and the same message is settled', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling({ name: 'deploy', args: { to: 'prod' } }), said('it is out'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const before = (await stage.commits(s)).length
    const id = await asked(stage, s)
    const { wake } = a.core.coordinator
    a.core.coordinator.wake = () => {}
    expect(await approve(a.core, id)).toEqual({ type: 'InteractionPayload', interactionId: id })
    // The decision and the intent to run are one commit.
    expect(await interaction(stage, id)).toMatchObject({ state: 'APPROVED', wakePending: true })
    expect((await stage.commits(s)).slice(before)).toEqual([['interaction.settled']])
    const phases: string[] = []
    const { append } = a.core.eventLog
    a.core.eventLog = {
      ...a.core.eventLog,
      async append(request) {
        const starts = request.events.some(({ type }) => type === 'tool.started')
        if (starts) phases.push((await stage.claim(s))!.phase)
        const outcome = await append(request)
        if (starts) phases.push((await stage.claim(s))!.phase)
        return outcome
      },
    }
    wake(s)
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(phases).toEqual(['READY', 'UNKNOWN'])
    expect((await stage.commits(s)).slice(before + 1)).toEqual([
      ['execution.started'],
      ['tool.started'],
      ['tool.succeeded'],
      ['step.ended'],
      ['step.started'],
      ['text.started'],
      ['text.ended'],
      ['step.streamed', 'step.ended'],
      ['execution.settled'],
    ])
    expect(deploy.ran).toEqual([{ to: 'prod' }])
    const messages = await stage.db.message.findMany({ where: { sessionId: s, kind: 'ASSISTANT' } })
    expect(messages.map(({ status }) => status)).toEqual(['ENDED', 'ENDED'])
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual(['call deploy {"to":"prod"}', 'result deploy ran'])
    expect(await interaction(stage, id)).toMatchObject({ wakePending: false })
  })

  it('ASK-08: declined to go on: the owner that resumes fails the tool with the words, and the model gets them', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'), said('then not'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const before = (await stage.commits(s)).length
    await goOnWithout(a.core, await asked(stage, s), 'not on a Friday')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect((await stage.commits(s)).slice(before, before + 4)).toEqual([
      ['interaction.settled'],
      ['execution.started'],
      ['tool.failed'],
      ['step.ended'],
    ])
    expect(await call(stage, s, 'call_deploy')).toMatchObject({
      status: 'FAILED',
      errorCode: 'DECLINED',
      startedAt: null,
    })
    expect((await call(stage, s, 'call_deploy')).errorMessage).toContain('not on a Friday')
    expect(await stage.types(s)).not.toContain('tool.started')
    expect(deploy.ran).toEqual([])
    expect(spoken(stage.provider.requests[1]!).at(-1)).toContain('not on a Friday')
  })

  it('ASK-12: an answer is kept as sent, is the output of its tool, and the model sees it', async () => {
    const a = await stage.start(questions)
    const s = await stage.session()
    stage.provider.script(calling(question), said('red it is'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const answer = { colour: 'red', shades: [1, 2] }
    expect(await answerTo(a.core, id, answer)).toEqual({ type: 'InteractionPayload', interactionId: id })
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(await interaction(stage, id)).toMatchObject({ state: 'ANSWERED', answer })
    expect(await call(stage, s, 'call_ask')).toMatchObject({ status: 'COMPLETED', output: answer })
    expect(spoken(stage.provider.requests[1]!).at(-1)).toBe(`result ${JSON.stringify(answer)}`)
    expect(await stage.commits(s)).toContainEqual(['tool.started', 'tool.succeeded'])
  })

  it('ASK-12, ASK-24: JSON that cannot be kept or walked is refused with its rule, and changes nothing', async () => {
    const { tool } = guarded()
    const a = await stage.start({ tools: [tool], config: { tools: builtinTools } })
    const s = await stage.session()
    stage.provider.script(calling('deploy', question))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const [approval, ask] = [await asked(stage, s, 1), await asked(stage, s, 2)]
    const before = await everything(stage, s)
    const refused: [unknown, RegExp][] = [
      [nested(101), /100 levels/],
      [{ in: nested(100) }, /100 levels/],
      [nested(3500), /100 levels/],
      [nested(100_000), /100 levels/],
      ['\ud800', /surrogate/],
      [{ '\udc00': 1 }, /surrogate/],
      [['a\u0000b'], /NUL/],
    ]
    for (const [json, rule] of refused) {
      const invalid = { type: 'InvalidInputError', message: expect.stringMatching(rule) }
      expect(await answerTo(a.core, ask, json)).toMatchObject({ ...invalid, field: 'answer' })
      expect(await approve(a.core, approval, { editedInput: json })).toMatchObject({ ...invalid, field: 'editedInput' })
    }
    const answer =
      'mutation ($id: ID!, $json: JSON!) { answerQuestion(input: { interactionId: $id, answer: $json }) { __typename } }'
    const literal = `mutation ($id: ID!) { answerQuestion(input: { interactionId: $id, answer: ${'['.repeat(4000)}${']'.repeat(4000)} }) { __typename } }`
    await overHttp(a, async (send) => {
      // This test's own client cannot write the deepest.
      for (const [n, [json]] of refused.entries())
        if (n < 2 || n > 3)
          expect(await send(answer, { id: ask, json })).toEqual({
            data: { answerQuestion: { __typename: 'InvalidInputError' } },
          })
      // Beyond 1000 levels nobody looks at what is asked.
      expect(await send(answer, { id: ask, json: nested(3500) })).toMatchObject({
        errors: [{ extensions: { code: 'REQUEST_ENTITY_TOO_LARGE' }, message: expect.stringMatching(/1000 levels/) }],
      })
      expect(await send(literal, { id: ask })).toMatchObject({
        errors: [{ extensions: { code: 'DOCUMENT_TOO_LARGE' } }],
      })
    })
    expect(await everything(stage, s)).toEqual(before)
  })

  it('ASK-12: an answer of 100 levels is taken, and text that only looks like an escape', async () => {
    const a = await stage.start(questions)
    const s = await stage.session()
    const answer = { deep: nested(99), text: String.raw`\u0000 and \ud800`, pair: '\u{1f600}' }
    stage.provider.script(calling(question), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    expect(await answerTo(a.core, await asked(stage, s), answer)).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(await call(stage, s, 'call_ask')).toMatchObject({ status: 'COMPLETED', output: answer })
  })

  it('ASK-13: a decision that is repeated as a literal of the document is the same decision', async () => {
    const a = await stage.start(questions)
    const s = await stage.session()
    stage.provider.script(calling(question), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const literal =
      'mutation ($id: ID!) { answerQuestion(input: { interactionId: $id, answer: { n: -0.0, of: { a: 1 } } }) { __typename } }'
    const taken = { data: { answerQuestion: { __typename: 'InteractionPayload' } } }
    await overHttp(a, async (send) => {
      expect(await send(literal, { id })).toEqual(taken)
      expect(await send(literal, { id })).toEqual(taken)
    })
    await a.core.coordinator.idle()
    stage.provider.expectDone()
  })

  it('ASK-13: the first decision counts; the same one again gets the same answer and writes nothing', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const first = await approve(a.core, id, { feedback: 'fine' })
    await a.core.coordinator.idle()
    const before = await everything(stage, s)
    expect(await approve(a.core, id, { feedback: 'fine' })).toEqual(first)
    expect(await approve(a.core, id)).toMatchObject({ type: 'InteractionSettledError' })
    expect(await goOnWithout(a.core, id)).toMatchObject({ type: 'InteractionSettledError' })
    const mutation = `mutation ($id: ID!) { decideApproval(input: { interactionId: $id, decision: DECLINE_AND_STOP }) {
      __typename ... on InteractionSettledError { interaction { id state } } } }`
    expect((await overHttp(a, (ask) => ask(mutation, { id }))).data.decideApproval).toEqual({
      __typename: 'InteractionSettledError',
      interaction: { id, state: 'APPROVED' },
    })
    await a.core.coordinator.idle()
    expect(await everything(stage, s)).toEqual(before)
    expect(deploy.ran).toHaveLength(1)
  })

  it("ASK-13: a decision that commits between the other one's looks is an answer as well, not an error", async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    // Nobody else moves the session meanwhile.
    const { wake } = a.core.coordinator
    a.core.coordinator.wake = () => {}
    let looks = 0
    // What is read of the interaction first is old by the time the session is looked at.
    const interactions = new Proxy(a.core.db.interaction, {
      get(target, name, receiver) {
        if (name !== 'findFirst') return Reflect.get(target, name, receiver)
        return async (...args: Parameters<typeof target.findFirst>) => {
          const row = await target.findFirst(...args)
          if (++looks === 1) await approve(a.core, id)
          return row
        }
      },
    })
    const db = new Proxy(a.core.db, {
      get: (target, name, receiver) => (name === 'interaction' ? interactions : Reflect.get(target, name, receiver)),
    })
    expect(await declineAndStop({ ...a.core, db }, id)).toMatchObject({ type: 'InteractionSettledError' })
    expect(looks).toBeGreaterThan(0)
    expect(await interaction(stage, id)).toMatchObject({ state: 'APPROVED', wakePending: true })
    // Nothing is left for the scans of other tests to find.
    stage.provider.script(said())
    wake(s)
    await a.core.coordinator.idle()
    expect(deploy.ran).toHaveLength(1)
  })

  it('ASK-14: an id that nobody gave is said to be unknown by all three mutations', async () => {
    const a = await stage.start()
    const interactionId = 'req_.nobody'
    const unknown = { type: 'InteractionNotFoundError', interactionId }
    expect(await approve(a.core, interactionId)).toMatchObject(unknown)
    expect(await answerTo(a.core, interactionId, 'x')).toMatchObject(unknown)
    expect(await dismiss(a.core, interactionId)).toMatchObject(unknown)
  })

  it('ASK-15: what nobody decides in time is declined with the reason, and the model goes on with it', async () => {
    const deploy = guarded('deploy', { approvalExpiresMs: 3_600_000 })
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'), said('nobody was there'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    expect((await scanned(stage, a)).expired).toBe(0)
    expect(await interaction(stage, id)).toMatchObject({ state: 'OPEN' })
    await passTime(stage, 3_600_000)
    expect((await scanned(stage, a)).expired).toBe(1)
    stage.provider.expectDone()
    expect(await interaction(stage, id)).toMatchObject({ state: 'EXPIRED', wakePending: false })
    const { errorCode, errorMessage } = await call(stage, s, 'call_deploy')
    expect(errorCode).toBe('EXPIRED')
    expect(errorMessage).toMatch(/nobody decided in time/)
    expect(spoken(stage.provider.requests[1]!).at(-1)).toContain(errorMessage)
    expect(deploy.ran).toEqual([])
    expect(await approve(a.core, id)).toMatchObject({ type: 'InteractionSettledError' })
  })

  it('ASK-16: with the database away a decision is a masked error; afterwards the question is open as before', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy'), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const before = await everything(stage, s)
    const mutation = `mutation ($id: ID!) { decideApproval(input: { interactionId: $id, decision: APPROVE }) { __typename } }`
    a.link.cut()
    const answer = await overHttp(a, (ask) => ask(mutation, { id }))
    a.link.mend()
    expect(answer.data?.decideApproval ?? null).toBeNull()
    expect(answer.errors).toMatchObject([{ extensions: { code: 'UNAVAILABLE' } }])
    expect(JSON.stringify(answer)).not.toMatch(/ECONN|prisma|127\.0\.0\.1/i)
    expect(await everything(stage, s)).toEqual(before)
    expect(deploy.ran).toEqual([])
    expect(await approve(a.core, id)).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    expect(deploy.ran).toHaveLength(1)
  })

  it("ASK-24: an edited input runs in place of the model's, is shown with the decision, and is what history says", async () => {
    const ran: unknown[] = []
    const send = defineTool({
      name: 'send',
      description: 'sends',
      needsApproval: true,
      inputSchema: z.object({ to: z.string().min(3) }),
      execute: (input) => {
        ran.push(input)
        return `sent to ${input.to}`
      },
    })
    const a = await stage.start({ tools: [send] })
    const s = await stage.session()
    stage.provider.script(calling({ name: 'send', args: { to: 'bob' } }), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const id = await asked(stage, s)
    const before = await everything(stage, s)
    for (const editedInput of [{ to: 'x' }, { to: 7 }, 'bob', [1]])
      expect(await approve(a.core, id, { editedInput })).toMatchObject({
        type: 'InvalidInputError',
        field: 'editedInput',
      })
    expect(await everything(stage, s)).toEqual(before)
    const editedInput = { to: 'alice' }
    expect(await approve(a.core, id, { editedInput })).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(ran).toEqual([editedInput])
    expect(await stage.payloads(s, 'interaction.settled')).toMatchObject([{ state: 'APPROVED', editedInput }])
    expect(await call(stage, s, 'call_send')).toMatchObject({ input: editedInput, output: 'sent to alice' })
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual(['call send {"to":"alice"}', 'result sent to alice'])
  })

  it('ASK-01: needsApproval judges what the tool would run with: defaults, coerced values and all', async () => {
    const ran: unknown[] = []
    const judged: unknown[] = []
    const push = defineTool({
      name: 'push',
      description: 'pushes',
      inputSchema: z.object({ force: z.boolean().default(true), times: z.coerce.number().default(1) }),
      needsApproval: (input) => {
        judged.push(input)
        return input.force === true && input.times > 2
      },
      execute: (input) => {
        ran.push(input)
        return 'pushed'
      },
    })
    const a = await stage.start({ tools: [push] })
    const s = await stage.session()
    stage.provider.script(
      calling({ name: 'push', args: {}, id: 'call_once' }),
      calling({ name: 'push', args: { times: '3' }, id: 'call_more' }),
      said(),
    )
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(judged).toEqual([
      { force: true, times: 1 },
      { force: true, times: 3 },
    ])
    expect(ran).toEqual([{ force: true, times: 1 }])
    // What is shown and kept is the call as the model made it.
    expect(await stage.payloads(s, 'interaction.requested')).toMatchObject([{ toolInput: { times: '3' } }])
    await approve(a.core, await asked(stage, s))
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(ran).toEqual([
      { force: true, times: 1 },
      { force: true, times: 3 },
    ])
  })

  it('ASK-25: a remembered approval spares this session the question, on any process, until the tool changes', async () => {
    const deploy = guarded()
    const options = { tools: [deploy.tool] }
    const a = await stage.start(options)
    const s = await stage.session()
    const other = await stage.session()
    stage.provider.script(calling('deploy'), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    await approve(a.core, await asked(stage, s), { remember: true })
    await a.core.coordinator.idle()
    const approved = (core: typeof a) =>
      overHttp(core, async (ask) => {
        const query = 'query ($id: ID!) { session(id: $id) { approvedTools } }'
        return (await ask(query, { id: s })).data.session.approvedTools
      })
    expect(await approved(a)).toEqual(['deploy'])
    const again = async (core: typeof a, sessionId: string) => {
      stage.provider.script(calling({ name: 'deploy', id: `call_${stage.provider.requests.length}` }), said())
      await prompt(core.core, sessionId)
      await core.core.coordinator.idle()
    }
    await again(a, s)
    expect(deploy.ran).toHaveLength(2)
    const b = await stage.start(options)
    await a.kill()
    await again(b, s)
    expect(deploy.ran).toHaveLength(3)
    expect(await stage.payloads(s, 'interaction.requested')).toHaveLength(1)
    expect(await approved(b)).toEqual(['deploy'])
    const [row] = [...(await replaySession(stage.db, s)).tables.Interaction.values()]
    expect(row).toMatchObject({ toolName: 'deploy', remember: true, state: 'APPROVED' })

    stage.provider.script(calling('deploy'))
    await prompt(b.core, other)
    await waiting(stage, b, other)
    const stricter = await stage.start({
      tools: [{ ...deploy.tool, inputSchema: { type: 'object', properties: { to: { type: 'string' } } } }],
    })
    expect(await approved(stricter)).toEqual([])
    const c = await stage.start({ tools: [{ ...deploy.tool, description: 'deploys elsewhere' }] })
    expect(await approved(c)).toEqual([])
    stage.provider.script(calling('deploy'))
    await prompt(c.core, s)
    await waiting(stage, c, s)
    expect(await stage.payloads(s, 'interaction.requested')).toHaveLength(2)
    expect(deploy.ran).toHaveLength(3)
  })
})

describe('the policy of now', () => {
  it("SEC-11: an approval given long ago runs nothing that today's tools do not take", async () => {
    const deploy = guarded()
    const look = instant('look')
    const a = await stage.start({ tools: [deploy.tool, look.tool] })
    const sessions = [await stage.session(), await stage.session(), await stage.session()]
    for (const s of sessions) {
      stage.provider.script(calling({ name: 'deploy', args: { to: 'prod' } }))
      await prompt(a.core, s)
      await waiting(stage, a, s)
    }
    await a.kill()
    const [gone, stricter, guardedNow] = sessions as [string, string, string]

    const without = await stage.start({ tools: [look.tool] })
    stage.provider.script(said())
    await approve(without.core, await asked(stage, gone))
    await without.core.coordinator.idle()
    expect(await call(stage, gone, 'call_deploy')).toMatchObject({ errorCode: 'UNKNOWN_TOOL', startedAt: null })

    const schema = { type: 'object', properties: { to: { enum: ['staging'] } }, required: ['to'] }
    const strict = await stage.start({
      tools: [
        { ...deploy.tool, inputSchema: schema },
        { ...look.tool, needsApproval: true },
      ],
    })
    stage.provider.script(said())
    await approve(strict.core, await asked(stage, stricter))
    await strict.core.coordinator.idle()
    expect(await call(stage, stricter, 'call_deploy')).toMatchObject({ errorCode: 'TOOL_INPUT', startedAt: null })

    // A tool that ran by itself when the session was begun.
    stage.provider.script(calling('look'))
    await goOnWithout(strict.core, await asked(stage, guardedNow))
    await waiting(stage, strict, guardedNow, 2)
    expect(await call(stage, guardedNow, 'call_look')).toMatchObject({ status: 'AWAITING_APPROVAL' })
    expect(deploy.ran).toEqual([])
    expect(look.ran).toEqual([])
    stage.provider.expectDone()
  })
})

describe('while the step goes on', () => {
  it('ASK-19: decided while the stream is open, the tool is started by its owner then and there, under the same claim', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const b = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    const open = gate()
    stage.provider.script(
      reply(
        toolCall('deploy', {}, 'call_deploy'),
        finishing('tool_calls'),
        wait(open.promise),
        finish('tool_calls').slice(1),
      ),
      said(),
    )
    await prompt(a.core, s)
    const id = await asked(stage, s)
    expect(await approve(b.core, id)).toMatchObject({ type: 'InteractionPayload' })
    await stage.logged(s, 'tool.succeeded')
    expect(deploy.ran).toHaveLength(1)
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN', owner: a.core.owner })
    expect(await stage.types(s)).not.toContain('step.streamed')
    open.open()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(deploy.ran).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.started')).toHaveLength(1)
    expect(await stage.payloads(s, 'tool.started')).toHaveLength(1)
  })

  it('TOOL-19: an approval that is answered while a sibling runs leaves the sibling at one dispatch', async () => {
    const deploy = guarded()
    const look = probe('look')
    const a = await stage.start({ tools: [deploy.tool, look.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy', 'look'), said())
    await prompt(a.core, s)
    const { finish: end } = await look.run()
    await stage.logged(s, 'step.streamed')
    await approve(a.core, await asked(stage, s))
    await eventually('its run', async () => deploy.ran.length > 0)
    expect(look.runs).toHaveLength(1)
    end()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.runs).toHaveLength(1)
    expect(deploy.ran).toHaveLength(1)
    const started = await stage.payloads(s, 'tool.started')
    expect(started.map(({ callId }) => callId)).toEqual(['call_look', 'call_deploy'])
    expect(await stage.payloads(s, 'execution.started')).toHaveLength(1)
  })

  it('TOOL-19: nor is a sibling that ran before the session waited dispatched again when it is resumed', async () => {
    const deploy = guarded()
    const look = instant('look')
    const a = await stage.start({ tools: [deploy.tool, look.tool] })
    const s = await stage.session()
    stage.provider.script(calling('look', 'deploy'), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    await approve(a.core, await asked(stage, s))
    await a.core.coordinator.idle()
    expect(look.ran).toHaveLength(1)
    expect(deploy.ran).toHaveLength(1)
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual(['result done', 'result deploy ran'])
  })

  it('ASK-22: two questions of one step: the first decided runs, the other stays open, one request has both results', async () => {
    const deploy = guarded('deploy')
    const erase = guarded('erase')
    const a = await stage.start({ tools: [deploy.tool, erase.tool] })
    const s = await stage.session()
    stage.provider.script(calling('deploy', 'erase'), said())
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const [first, second] = [await asked(stage, s, 1), await asked(stage, s, 2)]
    await approve(a.core, first)
    await waiting(stage, a, s, 2)
    expect(deploy.ran).toHaveLength(1)
    expect(erase.ran).toHaveLength(0)
    expect(await interaction(stage, second)).toMatchObject({ state: 'OPEN' })
    expect(await statusIn(stage, a, s)).toBe('WAITING')
    expect(await stage.payloads(s, 'step.streamed')).toHaveLength(1)
    const ends = await stage.payloads(s, 'execution.settled')
    expect(new Set(ends.map(({ executionId }) => executionId)).size).toBe(2)
    expect(stage.provider.requests).toHaveLength(1)
    await goOnWithout(a.core, second, 'no')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual([
      'result deploy ran',
      'result DECLINED: declined by the user: no',
    ])
    expect(await stage.payloads(s, 'step.streamed')).toHaveLength(2)
  })
})
