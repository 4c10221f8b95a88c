// npm run bench:console: does the web console stay quick? A conversation of 2 000 messages, all of it loaded, in a real Chromium, while an
// answer streams in at fifty deltas a second and somebody scrolls and types. Prints the time from frame to frame, and fails when one
// took more than 100 ms. On the server of DATABASE_URL if that is set, else on an embedded one.
//
//   npm run bench:console -- [seconds]
import { cpus } from 'node:os'
import { buildStale } from '../scripts/build.mjs'
import { connect } from '../src/db.ts'
import { createDoorbell } from '../src/doorbell.ts'
import { createEventLog } from '../src/event-log.ts'
import { conversation, launch, openTab, promptOf, say as send } from '../test/support/browser.ts'
import { endServers, startServer } from '../test/support/server-process.ts'
import { admitted, created, promoted, step } from '../test/support/story.ts'
import { openBenchDatabase } from './database.ts'
import { quantile, say } from './figures.ts'

const seconds = Number(process.argv[2] ?? 20)
if (!(seconds >= 1 && seconds <= 600)) throw new Error(`seconds from 1 to 600, not ${process.argv[2]}`)
const exchanges = 1000
const frameMsMax = 100
const sessionId = 'ses_bench_console'

const answer = (n: number) => `## Answer ${n}

The **rollout** of part ${n} goes in steps, each of which can be taken back:

1. build it, with \`npm ci && npm run build\`
2. look at what the tests say
3. deploy it to one region, then to the others

\`\`\`ts
export async function rollout${n}(regions: string[]): Promise<void> {
  for (const region of regions) await deploy(region, { canary: 0.05 }) // one at a time
}
\`\`\`

| region | state |
|---|---|
| north | done |
| south | waits |
`

async function seed(url: string): Promise<void> {
  const db = connect(url, 2, 3_600_000)
  const doorbell = createDoorbell({ db, url: null, origin: 'own_.bench', pollMs: 1000 })
  const log = createEventLog({ db, doorbell, origin: 'own_.bench' })
  await log.append({ sessionId, events: [created('A long conversation')] })
  for (let first = 0; first < exchanges; first += 50) {
    const events = Array.from({ length: 50 }, (_, offset) => {
      const n = first + offset
      const id = `msg_bench_${String(n).padStart(8, '0')}`
      const words = `What about part ${n}? Tell me how it goes, and what comes after it.`
      return [admitted(id, words), promoted(id, words), ...step(`msg_.bench${n}`, answer(n))]
    })
    const outcome = await log.append({ sessionId, events: events.flat() })
    if (outcome.kind !== 'appended') throw new Error(outcome.kind)
  }
  await doorbell.close()
  await db.$disconnect()
}

const database = await openBenchDatabase()
const browser = await launch()
try {
  await buildStale()
  await seed(database.url)
  const server = startServer({ DATABASE_URL: database.url }, 'exec node --enable-source-maps dist/server.js')
  const url = await server.ready
  const { page, errors } = await openTab(browser, `${url}#/session/${sessionId}`)
  page.on('pageerror', (error) => say(error.stack))
  const frame = page.locator('.transcript-frame')
  await frame.waitFor()
  // Everything is read, page by page, by going to the top again and again.
  while (Number(await frame.getAttribute('data-messages')) < 2 * exchanges) {
    await page.evaluate(() => document.querySelector('.transcript')!.scrollTo(0, 0))
    await page.waitForTimeout(50)
  }
  await page.getByRole('button', { name: 'To the end' }).click()
  await send(page, `/slow 20 /length ${seconds * 50 + 500}`)
  while (!(await conversation(page)).includes('This is demo/echo')) await page.waitForTimeout(50)

  // As text: what tsx makes of a function needs helpers that the page does not have.
  await page.evaluate(`{
    const gaps = []
    let last = performance.now()
    const onFrame = (now) => {
      gaps.push(now - last)
      last = now
      requestAnimationFrame(onFrame)
    }
    requestAnimationFrame(onFrame)
    window.frameGaps = gaps
  }`)
  const box = (await frame.boundingBox())!
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2)
  await promptOf(page).focus()
  const until = Date.now() + seconds * 1000
  for (let turn = 0; Date.now() < until; turn++) {
    // Up through older messages for a while, then down again to the text that grows.
    await page.mouse.wheel(0, turn % 60 < 30 ? -240 : 280)
    if (turn % 2 === 0) await page.keyboard.type('x')
    await page.waitForTimeout(16)
  }
  const gaps: number[] = await page.evaluate('window.frameGaps.slice(1)')
  const typed = (await promptOf(page).inputValue()).length
  const messages = await frame.getAttribute('data-messages')
  const worst = Math.max(...gaps)
  const late = gaps.filter((gap) => gap > frameMsMax).length
  const ms = (value: number) => `${value.toFixed(1)} ms`
  say(
    `# ${new Date().toISOString().slice(0, 10)}, ${database.name}, Node ${process.versions.node}, ${cpus().length} cores, Chromium ${browser.version()}`,
  )
  say(`${messages} messages, ${seconds} s of 50 deltas a second, ${typed} keys typed, scrolled all the time`)
  say(
    `${gaps.length} frames: median ${ms(quantile(gaps, 0.5))}, 95 % ${ms(quantile(gaps, 0.95))}, 99 % ${ms(quantile(gaps, 0.99))}, longest ${ms(worst)}`,
  )
  say(`longer than ${frameMsMax} ms: ${late}`)
  if (errors.length > 0) say(errors)
  if (late > 0 || errors.length > 0) process.exitCode = 1
} finally {
  await browser.close()
  await endServers()
  await database.drop()
}
