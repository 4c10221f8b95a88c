// What was received is kept, whenever a stop comes: between two flushes, while a part begins or ends, between the end of the stream and
// its commit (point 10 of the promise).
import type { LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { expect, it } from 'vitest'
import type { EventType } from '../src/events.ts'
import { handOver } from '../src/recovery/hand-over.ts'
import { eventually } from './support/core.ts'
import { finish, hang, reply, text } from './support/provider.ts'
import { finished, scriptedModel } from './support/scripted-model.ts'
import { hasEvent, holdAppend, interrupt, prompt, refuseEvents, useStage } from './support/stage.ts'

const stage = useStage()

const signed: LanguageModelV4StreamPart[] = [
  { type: 'reasoning-start', id: 'r' },
  { type: 'reasoning-delta', id: 'r', delta: 'I see' },
  { type: 'reasoning-end', id: 'r', providerMetadata: { own: { signature: 'sig' } } },
  finished(),
]

/** Interrupts while the append that holds this event is on its way, which the fence then refuses. */
async function interruptAt(type: EventType, model?: string) {
  const own = scriptedModel(signed)
  const { core } = await stage.start({ models: { models: { 'own/x': { model: own.model } } } })
  const s = await stage.session(model === undefined ? {} : { model })
  const held = holdAppend(core, hasEvent(type))
  await prompt(core, s)
  await held.held
  const interrupted = interrupt(core, s)
  await stage.logged(s, 'interrupt.requested')
  held.release()
  expect(await interrupted).toMatchObject({ interrupted: true })
  return s
}

it('PROMISE-100: an interrupt that lands while a part ends keeps its text, and what its provider needs back with it', async () => {
  stage.provider.script(reply(text('all of ', 'this text ', 'was shown'), finish()))
  const s = await interruptAt('text.ended')
  expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'all of this text was shown' }])
  const reasoned = await interruptAt('reasoning.ended', 'own/x')
  expect(await stage.payloads(reasoned, 'reasoning.ended')).toMatchObject([
    { text: 'I see', state: { own: { signature: 'sig' } } },
  ])
})

it('PROMISE-101: an interrupt that lands between the end of a stream and its commit keeps the usage', async () => {
  stage.provider.script(reply(text('fine'), finish('stop', { input: 30, output: 4, reasoning: 2, cached: 7 })))
  const s = await interruptAt('step.ended')
  const usage = { inputTokens: 30, outputTokens: 4, reasoningTokens: 2, cachedInputTokens: 7 }
  expect(await stage.payloads(s, 'step.interrupted')).toMatchObject([{ usage }])
  expect(await stage.db.session.findUniqueOrThrow({ where: { id: s } })).toMatchObject({ inputTokens: 30n })
  expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'fine' }])
})

it('PROMISE-102: an answer whose first word was on its way when the interrupt came is not empty', async () => {
  stage.provider.script(reply(text('short'), hang()))
  const s = await interruptAt('text.started')
  expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ index: 0, text: 'short' }])
})

it('PROMISE-103: a hand-over that meets the end of a part keeps its text as well', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  const held = holdAppend(core, hasEvent('text.ended'))
  stage.provider.script(reply(text('all of ', 'this text'), finish('stop', { input: 30 })))
  await prompt(core, s)
  await held.held
  const hold = core.leases.heldBy(s)!
  const handed = handOver(core, [hold])
  await eventually('the end of the hold', async () => hold.ended === 'shutdown')
  // Its claim is gone before the part's own end arrives.
  stage.clock.advance(core.config.interruptGraceMs)
  await handed
  held.release()
  expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'all of this text' }])
  expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
  expect(await stage.types(s)).toContain('step.recovered')
  await core.coordinator.idle()
})

it('PROMISE-104: a cleanup of which something is refused settles the interrupt without it', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  const held = holdAppend(core, hasEvent('text.started'))
  stage.provider.script(reply(text('short'), hang()))
  await prompt(core, s)
  await held.held
  const refused = await refuseEvents(stage, s, 'text.started')
  const interrupted = interrupt(core, s)
  await stage.logged(s, 'interrupt.requested')
  held.release()
  expect(await interrupted).toMatchObject({ interrupted: true })
  expect(await refused.fired()).toBeGreaterThan(0)
  expect(await stage.payloads(s, 'step.interrupted')).toHaveLength(1)
  expect(await stage.claim(s)).toBeNull()
  await refused.lift()
})
