// GraphiQL on a server that wants tokens: a person with a key puts it into the headers editor and can do everything, streams included.
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { startEmbedded } from '../../src/embedded/server.ts'
import { execute, paste, resultOf } from '../support/graphiql.ts'
import { endServers, type ServerProcess, startServer } from '../support/server-process.ts'

const key = 'a-key-for-the-browser-0123456789'
let dir: string
let server: ServerProcess
let browser: Browser
let page: Page

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'holdfast-browser-'))
  // As root the database runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  server = startServer({ HOLDFAST_DATA_DIR: join(dir, 'data'), HOLDFAST_API_KEYS: `${key}:acme` })
  const url = await server.ready
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-background-networking',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
  })
  const context = await browser.newContext({ viewport: { width: 1440, height: 920 } })
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(url).origin })
  page = await context.newPage()
  await page.goto(`${url}graphiql`)
  await page.locator('.graphiql-query-editor .view-lines').waitFor({ timeout: 60_000 })
})

afterAll(async () => {
  await browser?.close()
  server?.signal('SIGTERM')
  await server?.ended
  await endServers()
  if (!dir) return
  if (existsSync(join(dir, 'data/postgres/postmaster.pid')))
    await (await startEmbedded({ dataDir: join(dir, 'data') })).stop()
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
})

/** Runs what the editor holds, again if GraphiQL has not yet seen which operation that is. */
const run = (text: string) =>
  vi.waitFor(
    async () => {
      await execute(page)
      await expect.poll(() => resultOf(page), { timeout: 5000, interval: 50 }).toContain(text)
    },
    { timeout: 40_000 },
  )

it('SEC-02: without a key GraphiQL opens and shows UNAUTHENTICATED', async () => {
  await paste(page, '.graphiql-query-editor', '{ sessions { edges { node { id } } } }', 'sessions')
  await run('UNAUTHENTICATED')
})

it('with the key in the headers editor operations and subscriptions run, and the browser keeps no key', async () => {
  await page.getByRole('button', { name: 'Headers', exact: true }).click()
  await paste(page, '.graphiql-editor-tool .graphiql-editor:not(.hidden)', `{ "Authorization": "Bearer ${key}" }`, key)
  await paste(
    page,
    '.graphiql-query-editor',
    'mutation { createSession(input: { sessionId: "ses_browserkey1", title: "mine" }) { __typename } }',
    'createSession',
  )
  await run('CreateSessionPayload')
  await paste(
    page,
    '.graphiql-query-editor',
    'subscription { sessionEvents(sessionId: "ses_browserkey1") { __typename ... on LogSynced { through } } }',
    'sessionEvents',
  )
  await run('LogSynced')
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href)
  expect(kept).not.toContain(key)
})
