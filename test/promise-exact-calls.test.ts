// What a model asks for is what is shown, approved and run, to the last digit, or it is not run.
import { expect, it } from 'vitest'
import { finish, reply, text, toolCall } from './support/provider.ts'
import { instant, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()

it('PROMISE-257: arguments with a number that cannot be kept are not shown as another one, nor run: the model is told the place', async () => {
  const pay = instant('pay')
  const { core } = await stage.start({ tools: [pay.tool] })
  const s = await stage.session()
  const args = '{"to":"1e400","parts":[{"cents":9007199254740993}]}'
  const kept = { to: '1e400', parts: [{ cents: '9007199254740993' }] }
  stage.provider.script(
    reply(toolCall('pay', args, 'call_lost'), finish('tool_calls')),
    reply(toolCall('pay', kept, 'call_kept'), finish('tool_calls')),
    reply(text('ok'), finish()),
  )
  await prompt(core, s)
  await core.coordinator.idle()
  stage.provider.expectDone()
  const told =
    'the arguments break a rule at parts.0.cents: the number 9007199254740993 cannot be kept exactly; send it as text'
  expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'TOOL_INPUT', message: told } }])
  expect(await stage.payloads(s, 'tool.called')).toMatchObject([{ callId: 'call_kept', toolInput: kept }])
  expect(pay.ran).toHaveLength(1)
  expect(spoken(stage.provider.requests[1]!).at(-1)).toMatch('9007199254740993 cannot be kept exactly')
})
