// GraphiQL on a server that wants tokens: a person with a key puts it into the headers editor and can do everything, streams included.
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { startEmbedded } from '../../src/embedded/server.ts'
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

/** Replaces what stands in an editor. */
async function fill(editor: string, text: string) {
  await page.locator(`${editor} .view-lines`).click()
  await page.keyboard.press('ControlOrMeta+A')
  await page.evaluate((value) => navigator.clipboard.writeText(value), text)
  await page.keyboard.press('ControlOrMeta+V')
}
// biome-ignore lint/performance/useDomNodeTextContent: the editor's lines stand in the DOM in another order than on the screen
const shown = async () => (await page.locator('.graphiql-response').innerText()).replace(/\s+/g, ' ')
/** Runs what the editor holds, again if GraphiQL has not yet seen which operation that is. */
const run = (text: string) =>
  vi.waitFor(
    async () => {
      await page.locator('.graphiql-execute-button').click()
      await expect.poll(shown, { timeout: 5000, interval: 50 }).toContain(text)
    },
    { timeout: 40_000 },
  )

it('SEC-02: without a key GraphiQL opens and shows UNAUTHENTICATED', async () => {
  await fill('.graphiql-query-editor', '{ sessions { edges { node { id } } } }')
  await run('UNAUTHENTICATED')
})

it('with the key in the headers editor operations and subscriptions run, and the browser keeps no key', async () => {
  await page.getByRole('button', { name: 'Headers', exact: true }).click()
  await fill('.graphiql-editor-tool .graphiql-editor:not(.hidden)', `{ "Authorization": "Bearer ${key}" }`)
  await fill(
    '.graphiql-query-editor',
    'mutation { createSession(input: { sessionId: "ses_browserkey1", title: "mine" }) { __typename } }',
  )
  await run('CreateSessionPayload')
  await fill(
    '.graphiql-query-editor',
    'subscription { sessionEvents(sessionId: "ses_browserkey1") { __typename ... on LogSynced { through } } }',
  )
  await run('LogSynced')
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href)
  expect(kept).not.toContain(key)
})
