import { expect, it } from 'vitest'
import { loadConfig } from '../src/config.ts'
import { finish, finishing, gate, reasoning, reply, text, toolCalls, wait } from './support/provider.ts'
import { probe, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()

it('STEP-01, STEP-05, TOOL-01, TOOL-03: a walk: text, reasoning, two parallel tool calls, then the answer', async () => {
  const north = probe('north')
  const south = probe('south')
  const { core } = await stage.start({ tools: [north.tool, south.tool] })
  const s = await stage.session({ instructions: 'be brief' })
  const hold = gate()
  stage.provider.script(
    reply(
      text('I ', 'look.'),
      reasoning('hm ', 'where'),
      toolCalls({ name: 'north', args: { to: 1 }, id: 'call_n' }, { name: 'south', args: { to: 2 }, id: 'call_s' }),
      finishing('tool_calls'),
      wait(hold.promise),
      finish('tool_calls', { input: 7, output: 3 }).slice(1),
    ),
    reply(text('Nothing ', 'there.'), finish('stop', { input: 20, output: 4 })),
  )
  await prompt(core, s, 'What is there?')
  const first = await north.run()
  const second = await south.run()
  // Both run while the stream is open, and the step waits for them after its real end.
  expect(stage.provider.requests).toHaveLength(1)
  second.finish({ seen: 'sea' })
  await stage.logged(s, 'tool.succeeded')
  expect(await stage.types(s)).not.toContain('step.streamed')
  hold.open()
  await stage.logged(s, 'step.streamed')
  expect(await stage.types(s)).not.toContain('step.ended')
  first.finish('hills')
  await core.coordinator.idle()
  stage.provider.expectDone()

  expect(await stage.commits(s)).toEqual([
    ['session.created'],
    ['prompt.admitted'],
    ['execution.started'],
    ['prompt.promoted', 'step.started'],
    ['text.started'],
    ['text.ended'],
    ['reasoning.started'],
    ['reasoning.ended'],
    ['tool.input_started'],
    ['tool.called', 'tool.started'],
    ['tool.input_started'],
    ['tool.called', 'tool.started'],
    ['tool.succeeded'],
    ['step.streamed'],
    ['tool.succeeded'],
    ['step.ended'],
    ['step.started'],
    ['text.started'],
    ['text.ended'],
    ['step.streamed', 'step.ended'],
    ['execution.settled'],
  ])
  const parts = await stage.db.part.findMany({
    where: { sessionId: s },
    orderBy: [{ messageId: 'asc' }, { index: 'asc' }],
  })
  expect(parts).toMatchObject([
    { index: 0, kind: 'TEXT', text: 'I look.', complete: true },
    { index: 1, kind: 'REASONING', text: 'hm where', complete: true },
    { index: 0, kind: 'TEXT', text: 'Nothing there.', complete: true },
  ])
  const [one, two] = stage.provider.requests
  expect(one!.body).toMatchObject({
    model: 'scripted',
    stream: true,
    tool_choice: 'auto',
    messages: [
      { role: 'system', content: 'be brief' },
      { role: 'user', content: 'What is there?' },
    ],
  })
  expect(one!.body.tools?.map((tool) => tool.function.name)).toEqual(['north', 'south'])
  expect(spoken(two!)).toEqual([
    'system: be brief',
    'user: What is there?',
    'assistant: I look.',
    'call north {"to":1}',
    'call south {"to":2}',
    'result hills',
    'result {"seen":"sea"}',
  ])
  expect((two!.body.messages[2] as { reasoning_content?: string }).reasoning_content).toBe('hm where')
  expect(two!.body.messages.slice(3).map(({ tool_call_id }) => tool_call_id)).toEqual(['call_n', 'call_s'])
  expect(await stage.db.session.findUnique({ where: { id: s } })).toMatchObject({
    stepOwed: false,
    inputTokens: 27n,
    outputTokens: 7n,
  })
})

it('OPS-16: OPENAI_COMPATIBLE_BASE_URL brings compatible/…: its requests go there, and models lists what is there', async () => {
  const config = await loadConfig({
    env: {
      DATABASE_URL: stage.database.url,
      OPENAI_COMPATIBLE_BASE_URL: stage.provider.baseUrl,
      HOLDFAST_MODEL: 'compatible/x',
    },
    cwd: import.meta.dirname,
  })
  stage.provider.models = ['x', 'listed-there']
  const { core } = await stage.start({ models: { compatible: config.compatible } })
  const s = await stage.session({ model: config.model })
  stage.provider.script(reply(text('from there'), finish()))
  await prompt(core, s)
  await core.coordinator.idle()
  stage.provider.expectDone()
  expect(stage.provider.requests[0]!.body.model).toBe('x')
  expect(await stage.db.part.findMany({ where: { sessionId: s } })).toMatchObject([{ text: 'from there' }])
  const offered = (await core.models.list()).map(({ id }) => id)
  expect(offered).toEqual(expect.arrayContaining(['compatible/x', 'compatible/listed-there', 'demo/echo']))
})
