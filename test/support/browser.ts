// A real Chromium and pages in it that can reach nobody but the server under test.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export const launch = (): Promise<Browser> =>
  chromium.launch({
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

export interface Tab {
  page: Page
  /** Addresses that the page asked for and that are not the server's. */
  foreign: string[]
  /** What the page complained of. A connection that the test itself breaks is not among it. */
  errors: string[]
}

const ofTheNetwork = /net::ERR_|WebSocket connection to|Failed to load resource/

/** A page of its own context, on `url`. What is asked of others is refused and noted. */
export async function openTab(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Tab> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 820 },
    locale: 'en-GB',
    timezoneId: 'UTC',
    ...options,
  })
  const { origin } = new URL(url)
  const foreign: string[] = []
  const errors: string[] = []
  // A request that a test's own rule lets pass while that rule is taken away has been answered already.
  const answered = () => {}
  await context.route('**/*', (route) => {
    const asked = route.request().url()
    if (asked.startsWith(`${origin}/`) || asked.startsWith('data:')) return route.continue().catch(answered)
    foreign.push(asked)
    return route.abort().catch(answered)
  })
  const page = await context.newPage()
  page.on('websocket', (socket) => {
    if (!socket.url().startsWith(`${origin.replace('http', 'ws')}/`)) foreign.push(socket.url())
  })
  page.on('pageerror', (error) => errors.push(error.message))
  page.on('dialog', (dialog) => {
    errors.push(`a dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('console', (message) => {
    if (message.type() === 'error' && !ofTheNetwork.test(message.text())) errors.push(message.text())
  })
  await page.goto(url)
  return { page, foreign, errors }
}

/** The conversation as a reader sees it, without what is live only and without times of day. */
export const conversation = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const articles = [...document.querySelectorAll<HTMLElement>('[aria-label="Conversation"] article')]
    return articles
      .map((article) => {
        const copy = article.cloneNode(true) as HTMLElement
        for (const live of copy.querySelectorAll('[data-live], time, .working')) live.remove()
        return `${article.getAttribute('aria-label')}: ${copy.textContent.replace(/\s+/g, ' ').trim()}`
      })
      .join('\n')
  })

/** What axe finds wrong with the page as it is now, by WCAG 2.2 A and AA. */
export async function axe(page: Page): Promise<string[]> {
  // The page's own policy lets no script in; the inspector's door is not the page's.
  await page.evaluate(axeSource)
  const violations = await page.evaluate(async () => {
    // biome-ignore lint/suspicious/noExplicitAny: axe puts itself there
    const found = await (window as any).axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      resultTypes: ['violations'],
    })
    return found.violations as { id: string; help: string; nodes: { target: string[]; failureSummary: string }[] }[]
  })
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id} ${target.join(' ')}: ${failureSummary.replace(/\s+/g, ' ')}`),
  )
}

export const promptOf = (page: Page) => page.getByRole('textbox', { name: 'Prompt' })

/** Writes a prompt and sends it, by keys alone. */
export async function say(page: Page, text: string): Promise<void> {
  await promptOf(page).focus()
  await page.keyboard.insertText(text)
  await page.keyboard.press('Enter')
}

/** The id of the session that the page shows. */
export const sessionOf = (page: Page): string => /session\/(ses_[\w-]+)/.exec(page.url())?.[1] ?? ''
