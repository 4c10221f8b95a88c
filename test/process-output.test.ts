import { afterEach, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { endServers, startServer } from './support/server-process.ts'

let database: TestDatabase
afterEach(async () => {
  await endServers()
  await database.drop()
})

it('OPS-04: a server whose log nobody reads any more works on, does not spin, and stops in order', async () => {
  database = await createTestDatabase()
  const key = 'a-key-for-the-operator-0123456789'
  const server = startServer({ DATABASE_URL: database.url, HOLDFAST_API_KEYS: `${key}:acme`, LOG_LEVEL: 'debug' })
  const url = await server.ready
  const refused = async () => (await fetch(new URL('graphql?query={__typename}', url))).status
  const processorSeconds = async () => {
    const answer = await fetch(new URL('metrics', url), { headers: { authorization: `Bearer ${key}` } })
    return Number(/^holdfast_process_cpu_seconds_total (\S+)$/m.exec(await answer.text())![1])
  }
  // Each refusal is a line of the log: this one is still read.
  expect(await refused()).toBe(401)
  await expect.poll(server.stderr, { timeout: 10_000 }).toContain('refused: not authenticated')

  server.stopReading()
  for (let n = 0; n < 5; n++) expect(await refused()).toBe(401)
  const before = await processorSeconds()
  const begun = performance.now()
  // A span to measure over, not a condition: that nothing happens in it is what is looked for.
  await new Promise((resolve) => setTimeout(resolve, 3000))
  const share = ((await processorSeconds()) - before) / ((performance.now() - begun) / 1000)
  // On a slow machine a quiet server has been seen to take a quarter of one; one that spins takes all of it, and answers nobody.
  expect(share, 'of a processor').toBeLessThan(0.6)

  server.signal('SIGTERM')
  expect(await server.ended).toEqual({ code: 0, signal: null })
}, 120_000)
