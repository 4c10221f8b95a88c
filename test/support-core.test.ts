import { afterAll, beforeAll, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { wake } from '../src/runner/core.ts'
import { verifySession } from '../src/verify.ts'
import { eventually, startCore } from './support/core.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { finish, hang, type Provider, reply, startProvider, text } from './support/provider.ts'
import { append, createSession, streamProcess, titled } from './support/stream-process.ts'

let database: TestDatabase
let provider: Provider
beforeAll(async () => {
  database = await createTestDatabase()
  provider = await startProvider()
})
afterAll(async () => {
  await provider?.close()
  await database?.drop()
})

it('a core runs a prompt to its end; killed in a stream it leaves its claim, no connection and no request', async () => {
  const a = await startCore({ url: database.url, models: { compatible: { baseUrl: provider.baseUrl } } })
  const s = 'ses_supportcore'
  await a.core.eventLog.append({
    sessionId: s,
    events: [
      event('session.created', { tenant: 'default', title: null, instructions: null, model: 'compatible/scripted' }),
      event('prompt.admitted', {
        messageId: 'msg_supportone',
        inputKind: 'PROMPT',
        text: 'hi',
        attachments: [],
        delivery: 'STEER',
        requestExecution: true,
      }),
    ],
  })
  provider.script(reply(text('hello'), finish()), reply(text('par', 'tial'), hang()))
  wake(a.core, s)
  await a.core.coordinator.idle()
  expect(await a.core.db.part.findMany({ where: { sessionId: s } })).toMatchObject([{ text: 'hello', complete: true }])
  await a.core.eventLog.append({
    sessionId: s,
    events: [
      event('prompt.admitted', {
        messageId: 'msg_supporttwo',
        inputKind: 'PROMPT',
        text: 'hi',
        attachments: [],
        delivery: 'STEER',
        requestExecution: true,
      }),
    ],
  })
  wake(a.core, s)
  await eventually('chunks', () => a.core.db.chunk.count({ where: { sessionId: s } }))
  await a.kill()
  expect(a.link.open()).toBe(0)
  await provider.aborted(1)
  const b = await startCore({ url: database.url })
  expect(await b.core.db.claim.findMany()).toMatchObject([{ sessionId: s, phase: 'UNKNOWN', owner: a.core.owner }])
  expect(await verifySession(b.core.db, s)).toMatchObject({ consistent: true })
  await b.stop()
})

it('a database of tests is proved to be as its logs say; what a test breaks on purpose it names, and that has to be broken', async () => {
  const own = await createTestDatabase()
  const here = streamProcess(own.url)
  const retitle = (sessionId: string, title: string | null) =>
    here.db.session.update({ where: { id: sessionId }, data: { title } })
  const [whole, broken] = [await createSession(here), await createSession(here)]
  await retitle(broken, 'past the log')
  await expect(own.prove()).rejects.toThrow(`${broken}: Session ${broken}.title`)
  // Proved once is enough, until the log moves.
  await own.prove()
  await append(here, broken, titled('by the log'))
  await own.prove()
  await retitle(broken, 'past the log')
  await append(here, broken, event('session.resume_requested', {}))
  own.exempt([broken], 'its title')
  await own.prove()
  await append(here, whole, titled('by the log'))
  own.exempt([whole], 'nothing')
  await here.close()
  await expect(own.drop()).rejects.toThrow(`${whole} is as its log says`)
})
