import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { finish, hang, type Provider, reply, startProvider, text } from '../support/provider.ts'
import { ask, endServers, startServer } from '../support/server-process.ts'
import { openPlace, type Place } from './place.ts'

// What a person waits for after the process that answered has been killed: nothing but the start of the next one, and its grace.

const patience = { ms: 60_000, every: 20 }
let place: Place
let provider: Provider
beforeAll(async () => {
  place = await openPlace()
  provider = await startProvider()
})
afterAll(async () => {
  await endServers()
  await provider?.close()
  await place?.close()
})

const runs = 3
const msMax = 3000

it(`REC-32: a session that was streaming when its only process was killed makes a new provider request within ${msMax} ms of the restart being ready, without waiting for the lease`, async () => {
  const env = {
    ...place.env,
    OPENAI_COMPATIBLE_BASE_URL: provider.baseUrl,
    HOLDFAST_MODEL: 'compatible/scripted',
    // Whoever waited for it would be seen; everything else is as a user has it.
    HOLDFAST_LEASE_MS: '600000',
  }
  const start = () => startServer(env, `exec '${process.execPath}' scripts/start.mjs`)
  let server = start()
  let url = await server.ready
  const took: number[] = []
  const session = `ses_${randomUUID()}`
  await ask(url, 'mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }', { s: session })
  for (let run = 0; run < runs; run++) {
    const first = provider.requests.length
    provider.script(reply(text('It was said ', 'until here'), hang()), reply(text('and it goes on'), finish()))
    await ask(
      url,
      'mutation ($s: ID!, $m: ID!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: "Tell me" }) { __typename } }',
      { s: session, m: `msg_${randomUUID()}` },
    )
    const streamed = () =>
      ask(
        url,
        'query ($s: ID!) { session(id: $s) { status messages(last: 1) { edges { node { __typename ... on AssistantMessage { parts { ... on TextPart { text } } } } } } } }',
        { s: session },
      )
    await eventually(
      'text to be on its way',
      async () => JSON.stringify(await streamed()).includes('until here'),
      patience,
    )
    server.signal('SIGKILL')
    expect((await server.ended).signal).toBe('SIGKILL')
    expect(provider.requests).toHaveLength(first + 1)

    server = start()
    url = await server.ready
    const readyAt = performance.now()
    const again = await provider.request(first + 1)
    took.push(Math.round(performance.now() - readyAt))
    // It is the continuation, and the model sees what had been said.
    expect(JSON.stringify(again.body.messages)).toContain('It was said until here')
    await eventually('the session to be idle', async () => (await streamed()).session.status === 'IDLE', patience)
    expect(JSON.stringify(await streamed())).toContain('and it goes on')
  }
  provider.expectDone()
  console.log(
    JSON.stringify({
      date: new Date().toISOString().slice(0, 10),
      database: place.kind,
      goesOnAfterMs: took,
      ready: server.readyMs(),
    }),
  )
  expect(Math.max(...took)).toBeLessThan(msMax)
  server.signal('SIGTERM')
  expect((await server.ended).code).toBe(0)
})
