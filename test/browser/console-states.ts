import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event, type NewEvent, noUsage } from '../../src/events.ts'
import { type HttpServer, serveHttp } from '../../src/http/serve.ts'
import { takeOver } from '../../src/recovery/takeover.ts'
import { builtinTools } from '../../src/runner/tools/builtin.ts'
import { axe, conversation, launch, openTab, promptOf, say, type Tab } from '../support/browser.ts'
import { eventually, startCore, type TestCore } from '../support/core.ts'
import { cutOff, inconsistencies, inStep, phased, startTool } from '../support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'

// States that a day of use seldom shows, each made as the core makes it, and what the console lets a person do about them.

let database: TestDatabase
let running: TestCore
let server: HttpServer
let browser: Browser
let tab: Tab
let page: Page

const model = 'demo/echo'
const open = (id: string) => page.goto(`${server.url}#/session/${id}`)
const badge = () => page.locator('.session-header .badge').textContent()

/** A stop was accepted while a tool ran; then its owner was gone. */
async function cutOffStop() {
  const { core } = running
  const cut = await inStep(core, { model })
  const asked = event('interrupt.requested', { interruptedExecutionId: cut.executionId })
  await phased(core, cut, [...startTool(cut.messageId, 'c1'), asked], 'CANCELLING')
  expect(await takeOver(core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('quarantined')
  return cut.sessionId
}

/** A session whose log holds one answer of the model, and what else is given. */
async function answered(text: string, more: NewEvent[] = []): Promise<string> {
  const cut = await inStep(running.core, { model })
  const { messageId, sessionId, executionId } = cut
  await cut.append([
    event('text.started', { messageId, index: 0 }),
    event('text.ended', { messageId, index: 0, text }),
    ...more,
    event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false }),
  ])
  await phased(running.core, cut, [], 'SAFE', messageId)
  await takeOver(running.core, sessionId, executionId, { kind: 'expired' })
  return sessionId
}

beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({
    url: database.url,
    config: { model, recoveryAttempts: 1, pollMs: 100, tools: builtinTools },
    tools: [
      {
        name: 'deploy',
        description: 'Deploys.',
        needsApproval: true,
        inputSchema: { type: 'object' },
        execute: () => 'deployed',
      },
      {
        name: 'markup',
        description: 'Answers with markup.',
        inputSchema: { type: 'object' },
        execute: () => '<img src="https://evil.example/a.png" onerror="alert(1)"><script>alert(2)</script>',
      },
    ],
  })
  server = await serveHttp(running.core, { host: '127.0.0.1', port: 0 })
  browser = await launch()
  tab = await openTab(browser, server.url)
  page = tab.page
})
afterAll(async () => {
  await browser?.close()
  await server?.close(1000)
  await running?.stop()
  await database?.drop()
})

describe('sessions that need a person', () => {
  it('OPS-17: a quarantined session shows why, and "Stop again" ends the stop that was cut off', async () => {
    await open(await cutOffStop())
    await until(badge).toBe('Quarantined')
    const notice = page.locator('.notice[data-tone="bad"]')
    await until(() => notice.textContent()).toMatch(/An execution was set aside.*cleanup/)
    await notice.getByRole('button', { name: 'Stop again' }).click()
    await until(badge).toBe('Idle')
    await until(() => notice.count()).toBe(0)
    await until(() => conversation(page)).toContain('Stopped')
  })

  it('OPS-17: the page of what needs a person lists it over all sessions; Discard and Retry end it there', async () => {
    await cutOffStop()
    await cutOffStop()
    await until(() => page.locator('.count[data-page="recovery"]').textContent()).toContain('2')
    await page.getByRole('link', { name: 'Recovery' }).click()
    const cards = page.locator('.card')
    await until(() => cards.count()).toBe(2)
    await cards.first().getByRole('button', { name: 'Discard' }).click()
    await until(() => cards.count()).toBe(1)
    await cards.first().getByRole('button', { name: 'Retry' }).click()
    await until(() => page.getByText('Nothing is quarantined, parked or recovering.').count()).toBe(1)
  })

  it('OPS-17: a parked session shows why, and Resume lets it go on', async () => {
    const cut = await cutOff(running.core, { model, leaseMs: -90_000_000 })
    expect(await takeOver(running.core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('parked')
    await open(cut.sessionId)
    await until(badge).toBe('Parked')
    const notice = page.locator('.notice[data-tone="warn"]')
    const { parkedReason } = await running.core.db.session.findUniqueOrThrow({ where: { id: cut.sessionId } })
    expect(await notice.textContent()).toContain(parkedReason)
    await notice.getByRole('button', { name: 'Resume' }).click()
    await until(badge).toBe('Idle')
    await until(() => conversation(page)).toContain('You wrote: hi')
    expect(await notice.count()).toBe(0)
  })

  it('OPS-17: a continuation that the model never saw is not in the transcript', async () => {
    const cut = await cutOff(running.core, { model })
    expect(await takeOver(running.core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('recovered')
    await running.recovery.scan()
    await open(cut.sessionId)
    await until(() => conversation(page)).toContain('You wrote: hi')
    const hidden = await eventually('the hidden message', () =>
      running.core.db.message.findFirst({ where: { sessionId: cut.sessionId, kind: 'SYNTHETIC' } }),
    )
    expect(hidden.hidden).toBe(true)
    expect(await conversation(page)).not.toContain('continue')
    expect(await conversation(page)).not.toContain('Note of the system')
  })

  it('OPS-17: an open approval of a session that nobody looks at is decided from the inbox', async () => {
    await page.goto(`${server.url}#/new`)
    await say(page, '/tool deploy {"to":"production"}')
    await page.getByRole('region', { name: 'Approval of deploy' }).waitFor()
    await page.keyboard.press('Alt+I')
    const card = page.locator('.card').filter({ hasText: 'production' })
    await card.getByRole('checkbox', { name: /Do not ask again/ }).check()
    await card.getByRole('button', { name: 'Approve' }).click()
    await until(() => page.getByText('Nothing waits for you.', { exact: true }).count()).toBeGreaterThan(0)
    await page.locator('.session-item').first().click()
    await until(() => conversation(page)).toContain('deploy answered: deployed')
    // Remembered: the next call runs without a question.
    await say(page, '/tool deploy {"to":"staging"}')
    await until(async () => (await conversation(page)).split('deploy answered:').length).toBe(3)
  })
})

describe('what others wrote', () => {
  const markup = [
    '<img src="https://evil.example/1.png" onerror="alert(1)">',
    '<script>alert(2)</script><iframe src="https://evil.example/2"></iframe>',
    '[click](javascript:alert(3)) and [data](data:text/html,<script>alert(4)</script>)',
    '![picture](https://evil.example/3.png) and <b onclick="alert(5)">bold</b>',
    '[a link](https://example.com/page)',
    '```html\n<img src=x onerror=alert(6)>\n```',
  ].join('\n\n')

  it('SEC-12: markup of a model is shown as text: no element of it, no script, no request, links that tell nothing', async () => {
    await open(await answered(markup))
    await until(() => conversation(page)).toContain('a link')
    const log = page.getByRole('log', { name: 'Conversation' })
    expect(await log.locator('img, script, iframe, b, object, embed, form').count()).toBe(0)
    expect(await conversation(page)).toContain('onerror="alert(1)"')
    const links = await log
      .locator('a')
      .evaluateAll((links) => links.map((link) => ({ href: link.getAttribute('href'), rel: link.getAttribute('rel') })))
    expect(links.filter(({ href }) => !href?.startsWith('https://example.com/'))).toEqual([])
    for (const { rel } of links) expect(rel).toBe('noopener noreferrer nofollow')
  })

  it('SEC-12: so is markup in a prompt, in a title, and in what a tool answers', async () => {
    await page.goto(`${server.url}#/new`)
    await say(page, '/tool markup {} <img src="https://evil.example/4.png" onerror="alert(7)">')
    await until(() => conversation(page)).toContain('markup answered:')
    await page.locator('.tool-head').click()
    await until(() => page.locator('.tool-body').textContent()).toContain('onerror="alert(1)"')
    expect(await page.locator('main img, main script, .session-list img').count()).toBe(0)
  })

  it('SEC-09: an attachment that lies elsewhere is named and not fetched; a picture that came along is shown', async () => {
    await page.goto(`${server.url}#/new`)
    const gif = 'data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'
    const attachments = [
      { name: 'far.png', mediaType: 'image/png', url: 'https://evil.example/5.png' },
      { name: 'near.gif', mediaType: 'image/gif', url: gif },
      { name: 'drawn.svg', mediaType: 'image/svg+xml', url: 'data:image/svg+xml,<svg onload="alert(8)"/>' },
    ]
    const cut = await cutOff(running.core, { model })
    await cut.append([
      event('prompt.promoted', {
        messageId: cut.promptId,
        inputKind: 'PROMPT',
        text: 'look',
        attachments,
        hidden: false,
      }),
    ])
    await open(cut.sessionId)
    const shown = page.getByRole('list', { name: 'Attachments' }).getByRole('listitem')
    await until(() => shown.count()).toBe(3)
    expect(await shown.locator('img').evaluateAll((all) => all.map((one) => one.getAttribute('src')))).toEqual([gif])
    expect(await shown.first().getByRole('link').getAttribute('rel')).toBe('noopener noreferrer nofollow')
    await takeOver(running.core, cut.sessionId, cut.executionId, { kind: 'expired' })
  })

  it('SEC-12: nothing of it ran, and no other host was asked', () => {
    expect(tab.foreign).toEqual([])
    expect(tab.errors).toEqual([])
  })
})

describe('accessibility', () => {
  for (const colorScheme of ['light', 'dark'] as const)
    it(`axe finds nothing on any page, ${colorScheme}, wide and narrow`, async () => {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await page.setViewportSize({ width: 1280, height: 820 })
      const found: Record<string, string[]> = {}
      const look = async (name: string) => {
        const violations = await axe(page)
        if (violations.length > 0) found[name] = violations
      }
      await page.goto(`${server.url}#/new`)
      await promptOf(page).waitFor()
      await look('new')
      await say(
        page,
        '/reason think\n/tool wait {"ms":1} # A heading\n\n- one\n- two\n\n`code`\n\n```js\nconst a = "b" // c\n```',
      )
      await until(badge).toBe('Idle')
      await page.locator('.tool-head').first().click()
      await look('conversation')
      await say(page, '/tool deploy {"to":"x"} /tool ask_user {"question":"Which?","options":["a","b"]}')
      await page.getByRole('button', { name: 'Dismiss and stop' }).waitFor()
      await page.getByRole('button', { name: 'Timeline' }).click()
      await page.locator('.timeline-item').first().waitFor()
      await look('questions and timeline')
      await page.keyboard.press('Alt+I')
      await page.locator('.card').first().waitFor()
      await look('inbox')
      await cutOffStop()
      await page.getByRole('link', { name: 'Recovery' }).click()
      await page.locator('.card').first().waitFor()
      await look('recovery')
      await page.getByRole('button', { name: 'Keyboard shortcuts' }).click()
      await page.getByRole('dialog').waitFor()
      await look('keys')
      await page.keyboard.press('Escape')
      await page.locator('.card').first().getByRole('button', { name: 'Discard' }).click()
      await page.setViewportSize({ width: 390, height: 800 })
      await page.goto(`${server.url}#/inbox`)
      await page.locator('.card').first().waitFor()
      await look('narrow inbox')
      await page.getByRole('button', { name: 'Sessions' }).click()
      await page.locator('.session-item').first().waitFor()
      await look('narrow list')
      await page.locator('.session-item').filter({ hasText: '/reason think' }).first().click()
      await page.getByRole('button', { name: 'Dismiss and stop' }).waitFor()
      await look('narrow conversation')
      // Nothing is cut off at the side.
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390)
      await page.getByRole('button', { name: 'Dismiss and stop' }).click()
      expect(found).toEqual({})
    })
})

it('all that was done here left every session as its log says', async () => {
  expect(await inconsistencies(running.core.db)).toEqual([])
})
