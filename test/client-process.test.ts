import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  followSession,
  newMessageId,
  newSessionId,
  type StreamItem,
  transcript,
  untilAnswered,
  wordsOf,
} from '../src/client/index.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { carriers, inPhase, isLive, reloaded, shown } from './support/follow-stage.ts'
import { endServers, type ServerProcess, startServer } from './support/server-process.ts'
import { until } from './support/stream-process.ts'

// The client at the level at which its promise is made: real server processes that are killed and stopped while it watches.

let database: TestDatabase
let port: string

beforeAll(async () => {
  database = await createTestDatabase()
  const probe = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => probe.once('listening', resolve))
  port = String((probe.address() as AddressInfo).port)
  await new Promise((resolve) => probe.close(resolve))
})
afterEach(endServers)
afterAll(() => database?.drop())

const serve = (): ServerProcess =>
  startServer({ DATABASE_URL: database.url, PORT: port, HOLDFAST_SCAN_MS: '500', HOLDFAST_SHUTDOWN_GRACE_MS: '1000' })

it.each(['fetch and SSE', 'graphql-ws'])(
  'REC-29, STREAM-10, STREAM-17: over %s a page goes on by itself over kill -9 and an orderly stop in the middle of an answer',
  async (name) => {
    let server = serve()
    const endpoint = `${await server.ready}graphql`
    const { transport, close } = carriers[name]!(endpoint)
    const sessionId = newSessionId()
    await untilAnswered(transport, CreateSessionDocument, { input: { sessionId } })

    const items: StreamItem[] = []
    const follower = followSession({ sessionId, transport, onItem: (item) => void items.push(item) })
    const words = () =>
      follower
        .current()
        .view!.messages.filter((message) => message.type === 'AssistantMessage')
        .map(wordsOf)
    await inPhase(follower, 'LIVE')
    /** Waits; if it was in vain, says what the client sees and what the server does. */
    const waitFor = (what: string, holds: () => boolean) =>
      until(holds, what, 60_000).catch(async (thrown) => {
        const seen = JSON.stringify({ ...follower.current(), server: await reloaded(transport, sessionId) })
        throw new Error(`${thrown.message}: ${seen}\n${server.stdout()}`)
      })

    for (const [round, signal] of (['SIGKILL', 'SIGTERM'] as const).entries()) {
      // Before it is sent: its answer may begin before the sender hears that it is admitted.
      const answers = words().length
      const input = { sessionId, messageId: newMessageId(), text: `/slow 100 Round ${round}, ${'word '.repeat(40)}` }
      await untilAnswered(transport, AdmitPromptDocument, { input })
      await waitFor('the beginning of the answer', () => (words()[answers]?.length ?? 0) > 20)
      const seen = words()[answers]!
      server.signal(signal)
      await inPhase(follower, 'OFFLINE')
      // What was on the screen stays there.
      expect(words()[answers]!.startsWith(seen)).toBe(true)
      await server.ended
      // A prompt that is sent while nobody is there is kept by its sender, and arrives once.
      const late = { sessionId, messageId: newMessageId(), text: `late ${round}` }
      const sent = untilAnswered(transport, AdmitPromptDocument, { input: late })
      server = serve()
      await server.ready
      expect(await sent).toMatchObject({ admitPrompt: { __typename: 'PromptAdmission' } })
      await waitFor('the end of all answers', () => {
        const isAnswered = words().some((text) => text.includes(`late ${round}`))
        return isLive(follower) && isAnswered && atRest(follower.current().view!)
      })
    }

    const view = follower.current().view!
    const seqs = items.flatMap(({ seq }) => (seq == null ? [] : [seq]))
    expect(seqs).toEqual(Array.from({ length: view.seq - 1 }, (_, n) => n + 2))
    const asked = transcript(view).filter((message) => message.type === 'UserMessage')
    expect(asked).toHaveLength(4)
    const reload = await reloaded(transport, sessionId)
    expect(transcript(view).map(wordsOf)).toEqual(transcript(reload).map(wordsOf))
    expect(shown(view)).toEqual(shown(reload))
    follower.close()
    expect(await follower.ended).toEqual({ reason: 'CLOSED' })
    await close()
  },
  180_000,
)

const atRest = (view: { executionId: string | null; inputs: { state: string; wakePending: boolean }[] }) =>
  view.executionId === null && view.inputs.every((input) => input.state !== 'PENDING')
