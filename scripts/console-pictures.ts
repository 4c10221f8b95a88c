// The pictures of docs/console.md, taken anew: node --import tsx scripts/console-pictures.ts. Needs a Chromium, and DATABASE_URL or nothing.
import { fileURLToPath } from 'node:url'
import { openBenchDatabase } from '../bench/database.ts'
import { conversation, launch, openTab, say } from '../test/support/browser.ts'
import { endServers, startServer } from '../test/support/server-process.ts'
import { buildStale } from './build.mjs'

const plan = `/reason The user wants a plan. Short steps, each of which can be taken back; then the code for it.
Here is the plan for the **rollout**:

1. build it and look at what the tests say
2. deploy it to one region with a canary
3. deploy it to the others

\`\`\`ts
export async function rollout(regions: string[]) {
  // one at a time, so that each can be taken back
  for (const region of regions) await deploy(region, { canary: 0.05 })
}
\`\`\``

const path = (name: string) => fileURLToPath(new URL(`../docs/${name}.png`, import.meta.url))
const config = fileURLToPath(new URL('../test/support/console-tools.mjs', import.meta.url))

await buildStale()
const database = await openBenchDatabase()
const browser = await launch()
try {
  const env = { DATABASE_URL: database.url, HOLDFAST_CONFIG: config }
  const url = await startServer(env, 'exec node --enable-source-maps dist/server.js').ready
  const { page } = await openTab(browser, url, { colorScheme: 'light', reducedMotion: 'reduce' })
  const shown = async (words: string) => {
    while (!(await conversation(page)).includes(words)) await page.waitForTimeout(50)
  }
  const begin = async (title: string, text: string) => {
    await page.goto(`${url}#/new`)
    await page.getByRole('textbox', { name: 'Title' }).fill(title)
    await say(page, text)
    await page.waitForURL(/session/)
  }
  const shoot = async (name: string) => {
    await page.waitForTimeout(400)
    await page.screenshot({ path: path(name), animations: 'disabled' })
  }
  await begin(
    'Which database for the archive?',
    '/tool ask_user {"question":"Where shall the archive live?","options":["in the same database","in one of its own"]}',
  )
  await shown('Where shall')
  await begin('Weekly report', '/slow 40 The figures of this week, and what has changed since the last one.')
  await shown('since the last one.')
  await begin('Rollout of version 2', plan)
  await shown('canary: 0.05 })')
  await shown('out ·')
  await shoot('console')
  await say(page, '/tool deploy {"to":"production"}')
  await shown('waits for you')
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.getByRole('button', { name: 'Timeline' }).click()
  await page.locator('.timeline-item').last().waitFor()
  await shoot('console-dark')
  await page.goto(`${url}#/inbox`)
  await page.locator('.card').nth(1).waitFor()
  await shoot('console-inbox')
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize({ width: 390, height: 760 })
  await page.goBack()
  await page.getByRole('region', { name: 'Approval of deploy' }).waitFor()
  await shoot('console-narrow')
} finally {
  await browser.close()
  await endServers()
  await database.drop()
}
