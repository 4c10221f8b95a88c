import { expect, it } from 'vitest'
import { compactSession } from '../src/runner/compact.ts'
import { readWork } from '../src/runner/eligible.ts'
import { readPromoted } from '../src/runner/prepare.ts'
import {
  admit,
  atRest,
  claimOf,
  events,
  inputOf,
  newMessageId,
  newSession,
  recoverByHand,
  sessionOf,
  tenant,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, gate, reply, status, text, wait } from './support/provider.ts'

// What waits may be more than one append can hold: PostgreSQL takes 256 MB at once, and gets each prompt twice.

const stage = useStage()
const said = (word: string) => reply(text(word), finish())

it('PROMO-17, PROMO-18: steers that are too much for one append follow each other, in order, each once; a failed step, a barrier and a queued prompt change nothing of that', async () => {
  const a = await stage.start()
  a.core.promotedBytesMax = 1000
  const sessionId = await newSession(a)
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = () => {}
  const queued = await admit(a, sessionId, 'queued', { delivery: 'QUEUE' })
  const steers: string[] = []
  for (const word of ['one', 'two', 'six', 'many']) steers.push(await admit(a, sessionId, word.repeat(200)))
  const barrier = newMessageId()
  expect(await compactSession(a.core, tenant, { sessionId, messageId: barrier })).toMatchObject({
    type: 'CompactSessionPayload',
  })
  steers.push(await admit(a, sessionId, 'four'))
  stage.provider.script(status(400), ...['B', 'C', 'D', 'the summary', 'E', 'F'].map(said))
  wake(sessionId)
  await atRest(a)

  const promoted = await events(a, sessionId, 'prompt.promoted')
  expect(promoted.map(({ payload }) => payload.messageId)).toEqual([...steers.slice(0, 4), barrier, steers[4], queued])
  const [first, second] = stage.provider.requests.map(usersIn)
  expect(first).toEqual(['one'.repeat(200)])
  expect(second).toEqual(['one'.repeat(200), 'two'.repeat(200)])
  expect((await events(a, sessionId, 'execution.settled')).map(({ payload }) => payload.outcome)).toEqual([
    'FAILED',
    'SUCCEEDED',
  ])
  expect(await sessionOf(a, sessionId)).toMatchObject({ recoveries: 0, stepOwed: false })
})

it('PROMO-09: as many prompts as fit, at least one, and every continuation with them', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const held = gate()
  stage.provider.script(reply(text('half an '), wait(held.promise)))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await a.kill()
  const b = await stage.start()
  b.core.coordinator.wake = () => {}
  const continuation = await recoverByHand(b, sessionId)
  const ids: string[] = []
  for (const word of ['ä'.repeat(500), 'x'.repeat(1000), 'y'.repeat(1000)]) ids.push(await admit(b, sessionId, word))
  const work = (await readWork(b.core.db, sessionId))!
  const fits = async (bytesMax: number) => {
    b.core.promotedBytesMax = bytesMax
    return (await readPromoted(b.core, sessionId, work.pending)).map(({ id }) => id)
  }
  expect(await fits(1)).toEqual([continuation, ids[0]])
  expect(await fits(2003)).toEqual([continuation, ids[0]])
  // Each has its two brackets of attachments beside its text.
  expect(await fits(2004)).toEqual([continuation, ids[0], ids[1]])
  expect(await fits(3005)).toEqual([continuation, ids[0], ids[1]])
  expect(await fits(3006)).toEqual([continuation, ...ids])
  expect(await inputOf(b, ids[2]!)).toMatchObject({ state: 'PENDING', wakePending: true })
  expect(await claimOf(b, sessionId)).toBeNull()
})
