import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startEmbedded } from '../../src/embedded/server.ts'
import { execute, paste, resultOf } from '../support/graphiql.ts'
import { endServers, type ServerProcess, startServer } from '../support/server-process.ts'

// What the README promises a newcomer, done as one would: its command, its operations pasted into GraphiQL, in a real browser.

const root = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(root, 'README.md'), 'utf8')
const blocks = (language: string) =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(([, text]) => text!.trim())

let dir: string
let server: ServerProcess
let url: string
let browser: Browser
let page: Page
/** Addresses that the page asked for and that are not the server's. */
const foreign: string[] = []
const consoleErrors: string[] = []

const startCommand = blocks('sh')[0]!.replace('npm ci && ', '')

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'holdfast-browser-'))
  // As root the database runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  server = startServer({ HOLDFAST_DATA_DIR: join(dir, 'data') }, startCommand)
  url = await server.ready
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--no-first-run',
      '--disable-quic',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
  })
  page = await openPage()
})

afterAll(async () => {
  await browser?.close()
  server?.signal('SIGTERM')
  await server?.ended
  await endServers()
  if (!dir) return
  // Had the server been killed, its database would still run: joining and leaving as the last user stops it.
  if (existsSync(join(dir, 'data/postgres/postmaster.pid')))
    await (await startEmbedded({ dataDir: join(dir, 'data') })).stop()
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
})

/** A page of a browser that was never here: nothing is stored, and what it asks of other hosts is noted and refused. */
async function openPage(): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 920 } })
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(url).origin })
  await context.route('**/*', (route) => {
    const asked = route.request().url()
    if (asked.startsWith(url)) return route.continue()
    foreign.push(asked)
    return route.abort()
  })
  const page = await context.newPage()
  page.on('websocket', (socket) => {
    if (!socket.url().startsWith(url.replace('http', 'ws'))) foreign.push(socket.url())
  })
  page.on('pageerror', (error) => consoleErrors.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') consoleErrors.push(message.text())
  })
  return page
}

const shown = () => resultOf(page)

/** Runs one of the document's operations by its name, and waits until the result pane holds the text. */
async function run(name: string, text: string): Promise<void> {
  await execute(page, name)
  await expect.poll(shown, { timeout: 30_000, interval: 50 }).toContain(text)
}

describe('GraphiQL, by the README', () => {
  it('OPS-12: the commands in the README are the ones that work: install and start, install and test', () => {
    expect(blocks('sh')).toEqual(['npm ci && npm start', 'npm ci && npm test'])
    expect(server.stdout()).toContain('Holdfast is ready at http://127.0.0.1:')
  })

  it('OPS-01: the console at / leads to GraphiQL, which opens without asking any other host', async () => {
    await page.goto(url)
    await page.getByRole('link', { name: 'GraphiQL' }).click()
    await page.locator('.graphiql-query-editor .view-lines').waitFor({ timeout: 60_000 })
    await expect.poll(() => page.locator('.graphiql-query-editor').textContent()).toContain('createSession')
  })

  it('OPS-12, OPS-01: the operations of the README, pasted and run as printed; the answer streams in and says that it is a demo', async () => {
    const [operations] = blocks('graphql')
    await paste(page, '.graphiql-query-editor', operations!, 'ses_quickstart')

    await run('Create', '"created": true')
    await run('Prompt', '"ADMITTED"')

    // Each text that the pane showed while the answer came in.
    await page.evaluate(() => {
      const pane = document.querySelector('.graphiql-response')!
      const states: string[] = []
      Object.assign(window, { states })
      new MutationObserver(() => states.push(pane.textContent)).observe(pane, {
        subtree: true,
        childList: true,
        characterData: true,
      })
    })
    await run('Watch', '"SUCCEEDED"')
    const states = await page.evaluate(() => (window as unknown as { states: string[] }).states)
    const deltas = new Set(states.filter((text) => text.includes('TextDelta')))
    expect(deltas.size).toBeGreaterThan(5)
    expect([...deltas].join('\n')).toContain('slowly')
    await page.getByRole('button', { name: /stop/i }).click()

    await run('Read', 'You wrote: Hello! Please say something, slowly enough to be watched.')
    expect(await shown()).toContain('This is demo/echo, the built-in demo model')
    expect(await shown()).toContain('"IDLE"')
    if (process.env.SCREENSHOT) {
      await page.locator('.graphiql-toggle-editor-tools').click()
      await page.screenshot({ path: join(root, process.env.SCREENSHOT), animations: 'disabled' })
    }

    await run('Prompt', '"ALREADY_PROMOTED"')
  })

  it('OPS-12: the tabs it opens with, gone through from left to right, do what they say; the subscription goes over WebSocket', async () => {
    await page.context().close()
    page = await openPage()
    const sockets: string[] = []
    page.on('websocket', (socket) => sockets.push(socket.url()))
    await page.goto(new URL('/graphiql', url).href)
    await page.locator('.graphiql-query-editor .view-lines').waitFor({ timeout: 60_000 })

    const open = async (name: string) => {
      await page.locator('.graphiql-tab-button', { hasText: name }).click()
      const shows = new RegExp(`(query|mutation|subscription)\\s${name}\\b`)
      await expect.poll(() => page.locator('.graphiql-query-editor').textContent(), { timeout: 20_000 }).toMatch(shows)
    }
    const executed = async (text: string, operation?: string) => {
      await execute(page, operation)
      // Before the editor has understood the document of a tab that was opened just now it names the operation of the one before, which
      // the server refuses. Nothing has run then, and a person presses again.
      const answered = async () => {
        const text = await shown()
        if (text.includes('Cannot infer operation')) await execute(page)
        return text
      }
      await expect.poll(answered, { timeout: 30_000, interval: 300 }).toContain(text)
    }
    /** Reads again and again, as what is looked for happens by and by. */
    const executeUntil = async (text: string, operation?: string) => {
      for (let tries = 0; tries < 10 && !(await shown()).includes(text); tries++) {
        await execute(page, operation)
        await expect
          .poll(shown, { timeout: 2000, interval: 50 })
          .toContain(text)
          .catch(() => {})
      }
      expect(await shown()).toContain(text)
    }
    const setVariables = (variables: Record<string, string>, sign: string) =>
      paste(page, '.graphiql-editor-tool', JSON.stringify(variables), sign)
    const session = 'ses_example01'

    await executed('"created": true')
    await open('Prompt')
    await executed('"ADMITTED"')
    await open('Watch')
    await executed('"SUCCEEDED"')
    expect(sockets).toEqual([`${url.replace('http', 'ws')}graphql`])
    await page.getByRole('button', { name: /stop/i }).click()
    await open('Read')
    await executed('You wrote: Hello! Slowly, please.')

    await open('Prompt')
    await setVariables(
      {
        session,
        message: 'msg_example02',
        text: '/tool ask_user {"question":"Which colour?","options":["red","blue"]}',
      },
      'msg_example02',
    )
    await executed('"id": "msg_example02"')
    await open('Inbox')
    await executeUntil('Which colour?')
    const interaction = /"id": "(req_[^"]+)"/.exec(await shown())![1]!
    await open('Answer')
    await setVariables({ interaction, answer: 'red' }, interaction)
    await executed('"ANSWERED"', 'Answer')

    await open('Prompt')
    await setVariables({ session, message: 'msg_example03', text: '/tool wait {"ms":60000}' }, 'msg_example03')
    await executed('"id": "msg_example03"')
    await open('Interrupt')
    await executeUntil('"phase"', 'Running')
    await executed('"interrupted": true', 'Interrupt')

    await open('Recoveries')
    await executeUntil('"recoveries": []', 'Recoveries')
    if (process.env.SCREENSHOT_TABS)
      await page.screenshot({ path: join(root, process.env.SCREENSHOT_TABS), animations: 'disabled' })
  })

  it('nothing was asked of another host, and the page had no errors', () => {
    expect(foreign).toEqual([])
    expect(consoleErrors).toEqual([])
  })

  it('a signal to the command, as Ctrl-C sends it, ends the server and its database', async () => {
    server.signal('SIGINT')
    await server.ended
    expect(existsSync(join(dir, 'data/postgres/postmaster.pid'))).toBe(false)
  })
})
