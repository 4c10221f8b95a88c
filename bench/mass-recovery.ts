// Ten thousand sessions in the middle of an answer whose process dies, and a real server beside it that people work with: how long until each
// of them is taken over (claim gone, continuation durable), and how long new prompts wait for their admission meanwhile.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { connect, type Db } from '../src/db.ts'
import { event } from '../src/events.ts'
import { newMessageId } from '../src/ids.ts'
import { verifySession } from '../src/verify.ts'
import { startCore } from '../test/support/core.ts'
import { cutOff, promoted, quiet } from '../test/support/cut-off.ts'
import { ask, endServers, startServer } from '../test/support/server-process.ts'
import type { BenchDatabase } from './database.ts'
import { median, quantile, say } from './figures.ts'

/** New prompts a second, sent whether or not the ones before have been answered. */
const promptsPerSecond = 20
const settledMsMax = 300_000

export async function benchMassRecovery({ url }: BenchDatabase, claims: number): Promise<void> {
  const db = connect(url, 3, 3_600_000)
  try {
    let begun = performance.now()
    const sessions = await cutOffMany(url, claims)
    await db.$executeRawUnsafe('VACUUM ANALYZE')
    say(`\n${claims} claims of one process: written in ${((performance.now() - begun) / 1000).toFixed(0)} s`)
    if ((await left(db)) !== claims) throw new Error('not all of them are claimed')

    // Its process lives, as others see it, until this connection ends.
    const owner = new pg.Client({ connectionString: url })
    await owner.connect()
    await owner.query(`SELECT pg_advisory_lock(hashtextextended('own_.gone', 0))`)
    const server = startServer({ DATABASE_URL: url, LOG_LEVEL: 'warn' })
    const address = await server.ready
    const before = startLoad(address, sessions)
    await sleep(10_000)
    const quiet = await before.stop()
    say(`before it dies, ${promptsPerSecond} prompts a second: ${shown(quiet.times)}`)
    if ((await left(db)) !== claims) throw new Error('claims of a living process were taken over')

    await owner.query(`UPDATE "Claim" SET "expiresAt" = now() WHERE owner = 'own_.gone'`)
    await owner.end()
    begun = performance.now()
    const load = startLoad(address, sessions)
    let recoveredMs = 0
    for (;;) {
      const still = await left(db)
      recoveredMs = performance.now() - begun
      if (still === 0) break
      if (recoveredMs > settledMsMax)
        throw new Error(`${still} claims are left after ${settledMsMax} ms\n${server.stderr()}`)
      await sleep(250)
    }
    const { times, failures } = await load.stop()
    say(
      `all taken over ${(recoveredMs / 1000).toFixed(1)} s after its death; prompts admitted meanwhile: ${shown(times)}`,
    )
    const [{ durable }] = await db.$queryRaw<[{ durable: number }]>`
      SELECT count(*)::int AS durable FROM "Recovery" r JOIN "Input" i ON i."sessionId" = r."sessionId" AND i.id = r."continuationMessageId"
       WHERE r."sessionId" LIKE 'ses_cut%'`
    say(`${durable} of ${claims} have a durable continuation`)

    // They all run now, behind those who ask.
    begun = performance.now()
    const later = startLoad(address, sessions)
    await sleep(15_000)
    const after = await later.stop()
    const [{ ran }] = await db.$queryRaw<[{ ran: number }]>`
      SELECT count(*)::int AS ran FROM "Recovery" WHERE "sessionId" LIKE 'ses_cut%' AND NOT "wakePending"`
    const ms = performance.now() - begun
    say(`in the ${(ms / 1000).toFixed(0)} s after it, while they run (${ran} continued by then): ${shown(after.times)}`)
    server.signal('SIGKILL')
    await server.ended
    const sample = await db.$queryRaw<{ id: string }[]>`
      SELECT id FROM "Session" WHERE id LIKE 'ses_cut%' ORDER BY md5(id) LIMIT 200`
    for (const { id } of sample) {
      const verified = await verifySession(db, id)
      if (!verified?.consistent) throw new Error(`${id}: ${verified?.differences.join('; ')}`)
    }
    say(`${sample.length} of them compared with their logs: consistent`)
    const missed = [...quiet.failures, ...failures, ...after.failures]
    if (missed.length > 0) throw new Error(`prompts were not admitted: ${missed[0]}`)
    if (durable !== claims) throw new Error('a continuation is missing')
    if (recoveredMs > 60_000) throw new Error('it took more than 60 s')
    if (quantile(times, 0.99) > 500) throw new Error('p99 of admissions was above 500 ms')
  } finally {
    await endServers()
    await db.$disconnect()
  }
}

const shown = (times: readonly number[]) =>
  `${times.length}, median ${median(times).toFixed(0)} ms, p99 ${quantile(times, 0.99).toFixed(0)} ms, slowest ${Math.max(...times).toFixed(0)} ms`

const left = (db: Db) => db.claim.count({ where: { owner: 'own_.gone', sessionId: { startsWith: 'ses_cut' } } })

/** Each is promoted and in its step, as the log and the tables say, and claimed. Also makes the sessions of those who ask meanwhile. */
async function cutOffMany(url: string, count: number): Promise<string[]> {
  const maker = await startCore({ url, config: { livenessGraceMs: 60_000, dbPool: 10 } })
  quiet(maker.core)
  let made = 0
  const work = async () => {
    while (made < count) {
      made++
      const { sessionId, promptId, executionId } = await cutOff(maker.core, { model: 'demo/echo', leaseMs: 3_600_000 })
      const messageId = newMessageId()
      await maker.core.eventLog.append({
        sessionId,
        events: [promoted(promptId), event('step.started', { messageId, model: 'demo/echo', executionId })],
        fence: { executionId, owner: null, phases: ['READY'], live: false },
        claim: { kind: 'move', to: 'UNKNOWN', messageId },
      })
    }
  }
  await Promise.all(Array.from({ length: 200 }, work))
  const created = event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' })
  const others = Array.from({ length: 400 }, () => `ses_${randomUUID()}`)
  await Promise.all(others.map((sessionId) => maker.core.eventLog.append({ sessionId, events: [created] })))
  await maker.stop()
  return others
}

const admit = `mutation ($s: ID!, $m: ID!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: "Hello" }) {
  ... on PromptAdmission { outcome } } }`

/** People who ask: at an even pace, each session in turn. */
function startLoad(address: string, sessions: readonly string[]) {
  const times: number[] = []
  const failures: unknown[] = []
  const under = new Set<Promise<void>>()
  let stopped = false
  const prompt = async (n: number) => {
    try {
      const s = sessions[n % sessions.length]!
      const begun = performance.now()
      const answer = await ask(address, admit, { s, m: `msg_${randomUUID()}` })
      if (answer.admitPrompt.outcome !== 'ADMITTED') throw new Error(JSON.stringify(answer))
      times.push(performance.now() - begun)
    } catch (thrown) {
      failures.push(thrown)
    }
  }
  const run = (async () => {
    const begun = performance.now()
    for (let n = 0; !stopped; n++) {
      const one = prompt(n).finally(() => under.delete(one))
      under.add(one)
      const due = begun + ((n + 1) * 1000) / promptsPerSecond
      await sleep(Math.max(0, due - performance.now()))
    }
  })()
  return {
    async stop() {
      stopped = true
      await run
      await Promise.all(under)
      return { times, failures }
    },
  }
}
