import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import pg from 'pg'

/**
 * A process that uses the embedded database, for tests to kill: node --import tsx embedded-child.ts <dataDir> <mode> [launcher].
 * It says `log <text>`, `ready {"url","joined","ms"}` or `failed <text>`, one line each. Modes: `hold` waits for the line
 * `stop` on its input, `exit` simply has nothing more to do, `write` commits rows and says `acked <n>` after each.
 */
const [dataDir = '', mode = 'hold', launcher = new URL('../../src/embedded/server.ts', import.meta.url).href] =
  process.argv.slice(2)
const say = (line: string) => process.stdout.write(`${line}\n`)

async function main(): Promise<void> {
  const source = launcher.startsWith('file:') ? launcher : pathToFileURL(launcher).href
  const { startEmbedded } = (await import(source)) as typeof import('../../src/embedded/server.ts')
  const begun = performance.now()
  const database = await startEmbedded({ dataDir, log: (line) => say(`log ${line}`) })
  say(
    `ready ${JSON.stringify({ url: database.url, joined: database.joined, ms: Math.round(performance.now() - begun) })}`,
  )
  if (mode === 'exit') return
  if (mode === 'write') return writeForEver(database.url)
  for await (const line of createInterface({ input: process.stdin })) {
    if (line !== 'stop') continue
    await database.stop()
    say('stopped')
    process.stdin.destroy()
    return
  }
}

async function writeForEver(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('CREATE TABLE IF NOT EXISTS acked (n bigserial PRIMARY KEY)')
  for (;;) {
    const { rows } = await client.query<{ n: string }>('INSERT INTO acked DEFAULT VALUES RETURNING n')
    say(`acked ${rows[0]!.n}`)
  }
}

main().catch((error) => {
  say(`failed ${error instanceof Error ? error.message.replaceAll('\n', ' ') : error}`)
  process.exitCode = 1
})
