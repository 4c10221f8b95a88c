import { afterAll, beforeAll, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { type HttpServer, serveHttp } from '../src/http/serve.ts'
import { takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { startCore, type TestCore } from './support/core.ts'
import { hasClaim, inconsistencies, inStep, phased, quiet, startTool } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { ask } from './support/server-process.ts'

// What a client sees of rows that were set aside, over HTTP.

let database: TestDatabase
let running: TestCore
let core: Core
let http: HttpServer
let woken: string[]
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  woken = quiet(core)
  http = await serveHttp(core, { host: '127.0.0.1', port: 0 })
})
afterAll(async () => {
  await http?.close(1000)
  await running?.stop()
  await database?.drop()
})

/** An interrupt was accepted while a tool ran; then its owner was gone, and a scan has looked. */
async function cancelled() {
  const cut = await inStep(core)
  const { messageId, executionId, sessionId } = cut
  const asked = event('interrupt.requested', { interruptedExecutionId: executionId })
  await phased(core, cut, [...startTool(messageId, 'c1'), asked], 'CANCELLING')
  expect(await takeOver(core, sessionId, executionId, { kind: 'expired' })).toBe('quarantined')
  return cut
}

const page = `query ($first: Int, $after: String) { quarantine(first: $first, after: $after) {
  edges { cursor node { id kind executionId reason quarantinedAt resolvedAt session { id status } } }
  pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }`

it('REC-29: what is quarantined is listed page by page with its reason, the session says so, and prompts are still admitted', async () => {
  const before = Date.now() - 60_000
  const cuts = []
  for (let n = 0; n < 5; n++) cuts.push(await cancelled())
  const seen = []
  let after: string | null = null
  let pages = 0
  for (let more = true; more; pages++) {
    const { quarantine } = await ask(http.url, page, { first: 2, after })
    expect(quarantine.edges.length).toBeLessThanOrEqual(2)
    expect(quarantine.pageInfo.hasPreviousPage).toBe(after !== null)
    expect(quarantine.pageInfo.endCursor).toBe(quarantine.edges.at(-1).cursor)
    seen.push(...quarantine.edges.map(({ node }: { node: unknown }) => node))
    more = quarantine.pageInfo.hasNextPage
    after = quarantine.pageInfo.endCursor
  }
  expect(pages).toBe(3)
  // Oldest first, each once.
  expect(seen).toEqual(
    cuts.map(({ sessionId, executionId }) => ({
      id: expect.stringMatching(/^qua_\./),
      kind: 'EXECUTION',
      executionId,
      reason: expect.stringContaining('in the middle of the cleanup of an interrupt'),
      quarantinedAt: expect.any(String),
      resolvedAt: null,
      session: { id: sessionId, status: 'QUARANTINED' },
    })),
  )
  for (const { quarantinedAt } of seen) {
    expect(Date.parse(quarantinedAt)).toBeGreaterThan(before)
    expect(Date.parse(quarantinedAt)).toBeLessThan(Date.now() + 60_000)
  }

  const { sessionId } = cuts[0]!
  woken.length = 0
  const admit = `mutation ($s: ID!, $m: ID!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: "still there?" }) {
    __typename ... on PromptAdmission { outcome executionRequested input { state wakePending session { status } } } } }`
  const asking = () => ask(http.url, admit, { s: sessionId, m: 'msg_quarantined1' })
  const input = { state: 'PENDING', wakePending: true, session: { status: 'QUARANTINED' } }
  const admitted = { __typename: 'PromptAdmission', outcome: 'ADMITTED', executionRequested: true, input }
  expect(await asking()).toEqual({ admitPrompt: admitted })
  const repeated = { ...admitted, outcome: 'ALREADY_ADMITTED', executionRequested: false }
  expect(await asking()).toEqual({ admitPrompt: repeated })
  // It waits behind what a person has to decide: no scan starts it.
  woken.length = 0
  await running.recovery.scan()
  expect(woken).toEqual([])
  expect(await hasClaim(core, sessionId)).toBe(true)
  const listed = await ask(http.url, '{ sessions(status: [QUARANTINED], first: 50) { edges { node { id } } } }')
  expect(listed.sessions.edges.map(({ node }: { node: { id: string } }) => node.id).sort()).toEqual(
    cuts.map((cut) => cut.sessionId).sort(),
  )
  expect(await inconsistencies(core.db)).toEqual([])
})
