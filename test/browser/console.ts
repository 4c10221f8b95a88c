import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { conversation, launch, openTab, promptOf, say, sessionOf, type Tab } from '../support/browser.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Link, openLink } from '../support/link.ts'
import { ask, endServers, type ServerProcess, startServer } from '../support/server-process.ts'
import { until } from '../support/until.ts'

// The web console as somebody uses it for a day: two tabs on one session, and a server that dies in between.

const config = fileURLToPath(new URL('../support/console-tools.mjs', import.meta.url))
/** High enough for whole conversations: what is not on the screen is not drawn. */
const tall = { viewport: { width: 1280, height: 6000 } }
let database: TestDatabase
let server: ServerProcess
let url: string
let browser: Browser
let link: Link
let one: Tab
let two: Tab

async function start(port = '0'): Promise<void> {
  const env = { PORT: port, DATABASE_URL: database.url, HOLDFAST_CONFIG: config, HOLDFAST_POLL_MS: '200' }
  server = startServer(env, 'exec node --enable-source-maps dist/server.js')
  url = await server.ready
}

/** Both tabs are on this session, and show the same text, which has all of these words. */
async function bothShow(...words: string[]): Promise<string> {
  await until(async () => {
    const [mine, other] = await Promise.all([conversation(one.page), conversation(two.page)])
    return mine === other && words.every((word) => mine.includes(word))
      ? 'the same'
      : `${mine}\n--- other tab:\n${other}`
  }).toBe('the same')
  return conversation(one.page)
}

/** Another page on the same session shows, from a snapshot, what this one has come to event by event. */
async function reloadShowsTheSame(page: Page): Promise<void> {
  const fresh = await openTab(browser, page.url(), tall)
  try {
    await until(async () => {
      const [stayed, loaded] = await Promise.all([conversation(page), conversation(fresh.page)])
      return stayed === loaded && stayed !== '' ? 'the same' : `${stayed}\n--- loaded:\n${loaded}`
    }).toBe('the same')
    expect(fresh.errors).toEqual([])
  } finally {
    await fresh.page.context().close()
  }
}

const occurrences = (text: string, word: string) => text.split(word).length - 1
const status = (page: Page) => page.locator('.session-header .badge').textContent()
const settled = async (sessionId: string) => {
  await until(async () => (await ask(url, `{ session(id: "${sessionId}") { status } }`)).session.status).toBe('IDLE')
  const { verifySession } = await ask(url, `{ verifySession(id: "${sessionId}") { consistent differences } }`)
  expect(verifySession).toEqual({ consistent: true, differences: [] })
}

beforeAll(async () => {
  database = await createTestDatabase()
  ;[browser] = await Promise.all([launch(), start()])
  link = await openLink(url)
  one = await openTab(browser, url, tall)
  // The second tab's wire to the server can be cut.
  two = await openTab(browser, link.url, tall)
})
afterAll(async () => {
  await browser?.close()
  await link?.close()
  server?.signal('SIGTERM')
  await server?.ended
  await endServers()
  await database?.drop()
})

describe('the console', () => {
  it('OPS-01: a first prompt, by keys alone, is answered word by word, by a model that says it is a demo', async () => {
    const { page } = one
    await promptOf(page).waitFor()
    // The page opens with the prompt focused: nothing but keys is needed.
    await until(() => page.evaluate(() => document.activeElement?.id)).toBe('prompt')
    await page.keyboard.type('/slow 250 Hello there')
    await page.keyboard.press('Enter')
    const seen = new Set<string>()
    await until(async () => {
      const text = await conversation(page)
      seen.add(text)
      return text
    }).toContain('You wrote: Hello there')
    expect(seen.size).toBeGreaterThan(5)
    expect(await conversation(page)).toContain('This is demo/echo, the built-in demo model')
    await until(() => status(page)).toBe('Idle')
    // The list has it under its first words, the other tab's as well.
    for (const tab of [one, two])
      await until(() => tab.page.locator('.session-item').first().textContent()).toContain('/slow 250 Hello there')
    await two.page.locator('.session-item').first().click()
    await bothShow('Hello there')
  })

  it('OPS-11: the server is killed in mid-answer and comes back: both tabs say so, go on by themselves, nothing lost or doubled', async () => {
    const id = sessionOf(one.page)
    await say(one.page, '/slow 150 alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu')
    await bothShow('alpha beta')
    const { port } = new URL(url)
    server.signal('SIGKILL')
    await server.ended
    for (const tab of [one, two])
      await until(() => tab.page.getByRole('alert').first().textContent()).toContain('The server cannot be reached')
    // What is written now is sent when it can be, once.
    await say(two.page, 'and this was written while the server was gone')
    await until(() => two.page.locator('.pending-item').textContent()).toContain('sending…')
    await start(port)
    const text = await bothShow('alpha beta', 'OUTCOME_UNKNOWN', 'You wrote: and this was written')
    for (const tab of [one, two]) await until(() => tab.page.locator('.connection').count()).toBe(0)
    await settled(id)
    const told = await bothShow('lambda')
    expect(occurrences(told, 'You: /slow 150')).toBe(1)
    expect(occurrences(told, 'You: and this was written')).toBe(1)
    expect(text).toContain('alpha beta')
    await reloadShowsTheSame(one.page)
  })

  it('a tab whose connection is cut says so, and catches up by its cursor when it is back', async () => {
    await say(one.page, '/slow 80 one two three four five six seven eight nine ten')
    await bothShow('one two')
    link.cut()
    await until(() => two.page.getByRole('alert').first().textContent()).toContain('The server cannot be reached')
    await until(() => conversation(one.page)).toContain('You wrote: one two three four five six seven eight nine ten')
    expect(await conversation(two.page)).not.toContain('nine ten Assistant')
    link.mend()
    // The page may have tried by itself before: then there is nothing left to press.
    const tryNow = two.page.getByRole('button', { name: 'Try now' })
    await tryNow.click({ timeout: 3000 }).catch(async (missed) => {
      if ((await tryNow.count()) > 0) throw missed
    })
    await bothShow('You wrote: one two three four five six seven eight nine ten')
    await until(() => two.page.locator('.connection').count()).toBe(0)
  })

  it('an approval that one tab shows is given in the inbox of the other', async () => {
    await say(one.page, '/tool deploy {"to":"production"}')
    const card = one.page.getByRole('region', { name: 'Approval of deploy' })
    await card.waitFor()
    await until(() => status(one.page)).toBe('Waiting for you')
    await until(() => two.page.locator('.count').textContent()).toContain('1')
    await two.page.getByRole('link', { name: 'Inbox' }).click()
    const inbox = two.page.getByRole('region', { name: 'Approval of deploy' })
    await until(() => inbox.textContent()).toContain('production')
    await inbox.getByRole('button', { name: 'Edit input' }).click()
    await inbox.getByRole('textbox').fill('{"to":"staging"}')
    await inbox.getByRole('button', { name: 'Approve with this input' }).click()
    await until(() => two.page.getByText('Nothing waits for you.', { exact: true }).count()).toBeGreaterThan(0)
    await until(() => conversation(one.page)).toContain('Approved with other input')
    await until(() => conversation(one.page)).toContain('{"deployed":"staging"}')
    await two.page.goBack()
    await bothShow('deployed')
    await reloadShowsTheSame(one.page)
  })

  it('a question is answered, one is dismissed, an approval is declined with words for the model', async () => {
    const { page } = one
    await say(page, '/tool ask_user {"question":"Which colour?","options":["red","blue"]}')
    await page.getByRole('button', { name: 'blue', exact: true }).click()
    await until(() => conversation(page)).toContain('Answered: blue')
    await until(() => status(page)).toBe('Idle')
    await say(page, '/tool deploy {"to":"the moon"}')
    const card = page.getByRole('region', { name: 'Approval of deploy' })
    await card.getByRole('button', { name: 'Decline…' }).click()
    await card.getByRole('textbox').fill('too far')
    await card.getByRole('button', { name: 'Decline and go on' }).click()
    await until(() => conversation(page)).toContain('Declined: “too far”')
    await until(() => status(page)).toBe('Idle')
    await say(page, '/tool ask_user {"question":"What now?"}')
    await page.getByRole('button', { name: 'Dismiss and stop' }).focus()
    await page.keyboard.press('Enter')
    await until(() => conversation(page)).toContain('Dismissed')
    // The card is gone, and with it the button: the next key goes to the prompt.
    await until(() => page.evaluate(() => document.activeElement?.id)).toBe('prompt')
    await until(() => status(page)).toBe('Idle')
    await reloadShowsTheSame(page)
  })

  it('while one prompt runs, others are steered, queued, moved and withdrawn; Alt+. stops', async () => {
    const { page } = one
    await say(page, '/slow 200 a long answer that is going to be stopped before it has been told to its very end')
    await until(() => conversation(page)).toContain('a long answer that')
    await promptOf(page).fill('queued one')
    await page.keyboard.press('Control+Enter')
    await say(page, 'steered one')
    const waiting = page.getByRole('region', { name: 'Waiting prompts' }).getByRole('listitem')
    await until(() => waiting.count()).toBe(2)
    const queued = waiting.filter({ hasText: 'queued one' })
    await until(() => queued.getByRole('radio', { name: 'Queue' }).isChecked()).toBe(true)
    await queued.getByText('Steer').click()
    await until(() => queued.getByRole('radio', { name: 'Steer' }).isChecked()).toBe(true)
    await waiting.filter({ hasText: 'steered one' }).getByRole('button', { name: 'Withdraw' }).click()
    await until(() => waiting.count()).toBe(1)
    await page.keyboard.press('Alt+.')
    await until(() => conversation(page)).toContain('Stopped')
    // It stays, and waits for somebody to go on.
    await until(() => queued.textContent()).toContain('not started')
    await queued.getByRole('button', { name: 'Withdraw' }).click()
    await until(() => waiting.count()).toBe(0)
    await settled(sessionOf(page))
  })

  it('a reload at any moment shows what a tab that stayed open shows', async () => {
    const { page } = one
    await page.keyboard.press('Alt+N')
    await page.waitForURL(/#\/new/)
    await say(page, '/reason let me think about that /slow 250 first second third fourth fifth sixth seventh eighth')
    await page.waitForURL(/session/)
    await page.getByRole('button', { name: /^Think|^Thought/ }).waitFor()
    await reloadShowsTheSame(page)
    await until(() => conversation(page)).toContain('first second')
    await reloadShowsTheSame(page)
    await until(() => status(page)).toBe('Idle')
    await reloadShowsTheSame(page)
    await say(page, '/tool wait {"ms":1500}')
    await until(() => conversation(page)).toContain('running')
    await reloadShowsTheSame(page)
    await until(() => conversation(page)).toContain('wait answered:')
    await say(page, '/fail rate 1')
    await until(() => conversation(page)).toContain('Attempt 1 failed')
    await reloadShowsTheSame(page)
    await until(() => status(page)).toBe('Idle')
    await reloadShowsTheSame(page)
    await page.reload()
    await promptOf(page).waitFor()
    await settled(sessionOf(page))
  })

  it('the unsent draft outlives a reload, and an answer that got lost does not double the prompt', async () => {
    const { page } = one
    await promptOf(page).fill('a thought that is not finished')
    await page.reload()
    await until(() => promptOf(page).inputValue()).toBe('a thought that is not finished')
    // The first answer to the mutation is lost on its way, and the page is reloaded before the second try.
    let tries = 0
    await page.route('**/graphql', async (route) => {
      if (!route.request().postData()?.includes('admitPrompt')) return route.fallback()
      tries++
      if (tries > 1) return route.fallback()
      await route.fetch()
      return route.abort()
    })
    await promptOf(page).press('Enter')
    await until(() => tries).toBe(1)
    await page.reload()
    await until(() => tries).toBeGreaterThan(1)
    await until(() => conversation(page)).toContain('You wrote: a thought that is not finished')
    expect(occurrences(await conversation(page), 'You: a thought that is not finished')).toBe(1)
    await until(() => page.evaluate(() => sessionStorage.getItem('holdfast.outbox'))).toBe('[]')
    await page.unroute('**/graphql')
  })

  it('a prompt for which the browser has no room left is sent all the same', async () => {
    const { page } = one
    // What the page keeps for a reload shares a few megabytes with whatever else is kept.
    const left = await page.evaluate(() => {
      let size = 2 ** 23
      for (let filler = ''; size >= 1; size = Math.floor(size / 2))
        try {
          sessionStorage.setItem('filler', filler + 'x'.repeat(size))
          filler += 'x'.repeat(size)
        } catch {}
      try {
        sessionStorage.setItem('holdfast.outbox', 'x'.repeat(100))
        return 'room'
      } catch (error) {
        return (error as Error).name
      }
    })
    expect(left).toBe('QuotaExceededError')
    try {
      await say(page, `no room for this one ${'and more '.repeat(50)}`)
      await until(() => conversation(page)).toContain('You wrote: no room for this one')
    } finally {
      await page.evaluate(() => sessionStorage.removeItem('filler'))
    }
  })

  it('a session that the server refuses gives its prompt back', async () => {
    const { page } = one
    const before = page.url()
    // A model that has gone since the page read the list.
    await page.route('**/graphql', (route) => {
      const body = route.request().postData() ?? ''
      if (!body.includes('createSession(')) return route.fallback()
      return route.fallback({ postData: body.replace('"model":null', '"model":"no/such-model"') })
    })
    await page.keyboard.press('Alt+N')
    await page.waitForURL(/#\/new/)
    await say(page, 'a prompt to be refused')
    await until(() => page.getByRole('alert').textContent()).toContain('no/such-model')
    await page.unroute('**/graphql')
    await page.getByRole('button', { name: 'Take back to edit' }).click()
    await until(() => promptOf(page).inputValue()).toBe('a prompt to be refused')
    await promptOf(page).fill('')
    await page.goto(before)
    await until(() => page.locator('.session-header').count()).toBe(1)
  })

  it('search, rename, archive and back; the timeline has the steps', async () => {
    const { page } = one
    await page.getByRole('button', { name: 'Timeline' }).click()
    const timeline = page.getByRole('complementary', { name: 'Timeline' })
    await until(() => timeline.textContent()).toContain('Execution succeeded')
    await until(() => timeline.textContent()).toContain('Step ended')
    await timeline.getByRole('button', { name: 'Close the timeline' }).click()
    await page.locator('.title-button').click()
    await page.getByRole('textbox', { name: 'Title' }).fill('A session with a name')
    await page.getByRole('button', { name: 'Save' }).click()
    await until(() => page.locator('h1').textContent()).toBe('A session with a name')
    await page.keyboard.press('Alt+K')
    await page.keyboard.type('with a name')
    await until(() => page.locator('.session-item').count()).toBe(1)
    await page.getByRole('button', { name: 'More about this session' }).click()
    await page.getByRole('menuitem', { name: 'Archive' }).click()
    await until(() => page.locator('.session-item').count()).toBe(0)
    await page.getByText('Archive', { exact: true }).click()
    await until(() => page.locator('.session-item').count()).toBe(1)
    await page.getByRole('button', { name: 'More about this session' }).click()
    await page.getByRole('menuitem', { name: 'Take out of the archive' }).click()
    await until(() => page.locator('.session-item').count()).toBe(0)
    await page.getByRole('button', { name: 'More about this session' }).click()
    await page.getByRole('menuitem', { name: 'Check against the log' }).click()
    await until(() => page.getByRole('dialog').textContent()).toContain('give exactly what is stored')
  })

  it('a long conversation opens at its end, however often; whoever scrolls up stays there while more comes', async () => {
    const sessionId = `ses_long_${Date.now()}`
    const create = `mutation ($sessionId: ID!) { createSession(input: { sessionId: $sessionId }) { __typename } }`
    await ask(url, create, { sessionId })
    const admit = `mutation ($input: AdmitPromptInput!) { admitPrompt(input: $input) { __typename } }`
    for (let n = 1; n <= 14; n++) {
      // Rows of very different height, which nobody can guess before they are drawn.
      const text = `${n}: ${'many-words-that-take-some-room-on-the-screen-'.repeat((n * 7) % 23)}\n\n\`\`\`js\n${'a=1\n'.repeat((n * 5) % 11)}\`\`\``
      await ask(url, admit, { input: { sessionId, messageId: `msg_long_${n}_${Date.now()}`, text, delivery: 'QUEUE' } })
    }
    await settled(sessionId)
    const fromEnd = (page: Page) =>
      page.locator('.transcript').evaluate((list) => list.scrollHeight - list.scrollTop - list.clientHeight)
    for (let round = 0; round < 3; round++) {
      const { page } = await openTab(browser, `${url}#/session/${sessionId}`, {
        viewport: { width: 1280, height: 860 },
      })
      await until(() => conversation(page)).toContain('You wrote: 14:')
      await until(() => fromEnd(page)).toBeLessThan(2)
      expect(await page.getByRole('button', { name: 'To the end' }).count()).toBe(0)
      if (round === 2) {
        await page.locator('.transcript').hover()
        await page.mouse.wheel(0, -1500)
        await page.getByRole('button', { name: 'To the end' }).waitFor()
        const text = '/slow 30 words that come in while somebody reads further up'
        await ask(url, admit, { input: { sessionId, messageId: `msg_long_more_${Date.now()}`, text } })
        await settled(sessionId)
        expect(await fromEnd(page)).toBeGreaterThan(1000)
        await page.getByRole('button', { name: 'To the end' }).click()
        await until(() => conversation(page)).toContain('further up')
        await until(() => fromEnd(page)).toBeLessThan(2)
        // Also who leaves the end while words come in, and the page follows them.
        const more = `/slow 60 ${'word '.repeat(60)}`
        await ask(url, admit, { input: { sessionId, messageId: `msg_long_left_${Date.now()}`, text: more } })
        await until(async () => ((await conversation(page)).match(/word/g) ?? []).length).toBeGreaterThan(65)
        await page.locator('.transcript').hover()
        await page.mouse.wheel(0, -1500)
        await page.getByRole('button', { name: 'To the end' }).waitFor()
        await settled(sessionId)
        expect(await fromEnd(page)).toBeGreaterThan(1000)
      }
      await page.context().close()
    }
  })

  it('OPS-11: without a token there is a page to sign in, and a wrong key is told from a missing one', async () => {
    const key = 'sesame-0123456789abcdef'
    const env = { DATABASE_URL: database.url, HOLDFAST_API_KEYS: `${key}:acme` }
    const guarded = startServer(env, 'exec node --enable-source-maps dist/server.js')
    const { page, foreign, errors } = await openTab(browser, await guarded.ready)
    const field = page.getByLabel('API key or token')
    await until(() => page.locator('main').textContent()).toContain('This server asks for an API key or a token.')
    await field.fill('open')
    await page.keyboard.press('Enter')
    await until(() => page.locator('main').textContent()).toContain('does not accept the key')
    await field.fill(key)
    await page.keyboard.press('Enter')
    await promptOf(page).waitFor()
    // Another tenant's sessions are not there; its own are.
    await until(() => page.locator('.sessions').textContent()).toContain('No sessions yet.')
    await say(page, 'Hello from acme')
    await until(() => conversation(page)).toContain('You wrote: Hello from acme')
    await page.reload()
    await until(() => conversation(page)).toContain('You wrote: Hello from acme')
    expect(page.url()).not.toContain(key)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await until(() => page.locator('main').textContent()).toContain('This server asks for an API key or a token.')
    expect(foreign).toEqual([])
    expect(errors).toEqual([])
    await page.context().close()
    guarded.signal('SIGTERM')
    await guarded.ended
  })

  it('nothing was asked of another host, and no page had an error', () => {
    for (const tab of [one, two]) {
      expect(tab.foreign).toEqual([])
      expect(tab.errors).toEqual([])
    }
  })
})
