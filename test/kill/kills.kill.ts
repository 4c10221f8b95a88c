import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { connect, type Db } from '../../src/db.ts'
import { findInconsistencies, findStuck, findUnanswered, shown, statusesOf } from '../support/checker.ts'
import { eventually } from '../support/eventually.ts'
import { random } from '../support/random.ts'
import { endServers } from '../support/server-process.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { startPeople } from './people.ts'
import { openPlace, type Place } from './place.ts'

// Real server processes under the load of real clients, killed with SIGKILL at random moments, and the database server under them too, where
// it is theirs. HOLDFAST_KILLS: how many kills (20); HOLDFAST_SEED: another run of the same kind; DATABASE_URL: on that server, which is
// then not killed itself.

const kills = Number(process.env.HOLDFAST_KILLS ?? 20)
const seed = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 32))
const scanMs = 700
const leaseMs = 8000
/** Everything has to be at rest within lease and scan after the last kill, with something for a slow machine. */
const patience = { ms: 60_000, every: 100 }
const patienceMs = 1500
/** Who has waited for so long waits without kills from then on, and complains after `restMsMax` (people.ts). */
const waitMsMax = 30_000
const pauseMsMax = 65_000

let place: Place
let fleet: Fleet
let db: Db | undefined
beforeAll(async () => {
  place = await openPlace()
  fleet = await startFleet(3, {
    ...place.env,
    HOLDFAST_LEASE_MS: String(leaseMs),
    HOLDFAST_RENEW_MS: '2000',
    HOLDFAST_SCAN_MS: String(scanMs),
    HOLDFAST_LIVENESS_GRACE_MS: '800',
    HOLDFAST_INTERRUPT_GRACE_MS: '500',
    HOLDFAST_DB_POOL: '6',
    HOLDFAST_TENANT_ADMISSIONS_PER_SECOND: '0',
    LOG_LEVEL: 'warn',
  })
})
afterAll(async () => {
  await endServers()
  await db?.$disconnect()
  await place?.close()
})

// Whether there is a database to kill is known before the place is opened.
const victims = process.env.DATABASE_URL ? 'servers' : 'servers and their database'

it(`REC-36, DB-17: ${kills} kills of ${victims} under load: nothing acknowledged is lost, no effect happens twice, nothing stays stuck`, async () => {
  console.log(`seed ${seed}, ${kills} kills, ${place.kind} database`)
  const chance = random(seed)
  const people = startPeople(fleet.urls, 10, chance.fork())
  const killed = { servers: 0, 'servers while starting': 0, 'the database': 0 }
  const begun = performance.now()
  let pauses = 0
  for (let n = 0; n < kills; ) {
    await sleep(chance.from(50, 1200))
    // The moment is random, but somebody has to be there to be killed in the middle of something; mostly somebody else, too, who goes on.
    const there = chance.chance(0.7) ? 2 : 1
    await eventually('servers to be ready', () => fleet.urls().length >= there, patience)
    // A slow machine must not spend the whole run on starts: people are to get something done in between, if it does not take too long.
    const wanted = people.answers() + chance.from(0, 40)
    for (const deadline = Date.now() + patienceMs; people.answers() < wanted && Date.now() < deadline; ) await sleep(20)
    // Where kills come faster than a slow machine recovers nothing comes to rest. Then they pause, for as long as a session may take without them.
    if (people.longestWaitMs() > waitMsMax) {
      pauses++
      for (const deadline = Date.now() + pauseMsMax; people.longestWaitMs() > waitMsMax && Date.now() < deadline; )
        await sleep(100)
    }
    // One of them is the database in any run, where it is theirs: chance alone leaves it out of every twenty-fifth run of twenty.
    const isDue = place.kind === 'embedded' && killed['the database'] === 0 && n >= Math.floor(kills / 2)
    const pid = chance.chance(0.15) || isDue ? place.databasePid() : undefined
    if (isDue && pid === undefined) continue
    if (pid !== undefined) {
      process.kill(pid, chance.of(['SIGKILL', 'SIGQUIT']))
      killed['the database']++
      n++
      continue
    }
    const met = await fleet.kill(chance.chance(0.75) ? 'ready' : 'any', chance)
    if (met === 'gone') continue
    killed[met === 'starting' ? 'servers while starting' : 'servers']++
    n++
  }
  const killedMs = performance.now() - begun
  await people.stop()
  await fleet.ready()
  const { sessionIds, admitted, complaints } = people
  db = connect(await place.open(), 4)
  const open = db
  const ids = [...sessionIds]

  // Nobody asks for anything now: what is owed is seen to, within the lease and one scan.
  const restBegun = performance.now()
  const isAtRest = ({ status }: { status: string }) => status !== 'RUNNING' && status !== 'RECOVERING'
  await eventually(
    'every session to be at rest',
    async () => (await statusesOf(open, ids, scanMs)).every(isAtRest),
    patience,
  )
  const restMs = performance.now() - restBegun
  const resting: Record<string, number> = {}
  for (const { status } of await statusesOf(open, ids, scanMs)) resting[status] = (resting[status] ?? 0) + 1
  expect(shown(await findStuck(open, ids, scanMs))).toEqual([])
  const facts = () => ({ sessionIds: ids, admitted, effects: place.effects() })
  expect(shown(await findInconsistencies(open, facts()))).toEqual([])

  // And every session is usable: somebody takes up what was set aside and gets an answer.
  const left = ids.values()
  const ask = async () => {
    for (const id of left) await people.lastWord(id)
  }
  await Promise.all(Array.from({ length: 16 }, ask))
  expect(shown(await findStuck(open, ids, scanMs))).toEqual([])
  expect(shown(await findUnanswered(open, admitted))).toEqual([])
  expect(shown(await findInconsistencies(open, facts()))).toEqual([])
  const answers = await open.$queryRaw<{ n: number }[]>`
    SELECT count(DISTINCT m."sessionId")::int AS n FROM "Input" i JOIN "Message" m ON m."sessionId" = i."sessionId" AND m.seq > i."promotedSeq"
     WHERE i.text = 'one last word' AND m.kind = 'ASSISTANT' AND m.status = 'ENDED'`
  expect(answers[0]!.n).toBe(ids.length)
  expect(complaints).toEqual([])
  expect(fleet.deaths).toEqual([])
  expect(await fleet.stop()).toEqual(Array.from({ length: fleet.size }, () => 0))

  const events = await open.$queryRaw<{ type: string; n: number }[]>`
    SELECT type || COALESCE(' ' || (payload->>'phase'), '') AS type, count(*)::int AS n FROM "Event"
     WHERE type IN ('step.recovered', 'quarantine.opened', 'session.parked', 'interrupt.requested', 'tool.succeeded', 'step.started')
     GROUP BY 1 ORDER BY 1`
  if (fleet.failedStarts.length > 0) console.log(`starts that failed:\n${fleet.failedStarts.join('\n')}`)
  console.log(
    JSON.stringify({
      date: new Date().toISOString().slice(0, 10),
      seed,
      database: place.kind,
      killed,
      killsTookS: Math.round(killedMs / 1000),
      pauses,
      atRestAfterS: Math.round(restMs / 100) / 10,
      resting,
      failedStarts: fleet.failedStarts.length,
      sessions: ids.length,
      admissions: admitted.length,
      effects: place.effects().size,
      people: people.counts,
      events: Object.fromEntries(events.map(({ type, n }) => [type, n])),
    }),
  )
  // The kills met work, and the clients felt them.
  if (place.kind === 'embedded') expect(killed['the database']).toBeGreaterThan(0)
  expect(events.find(({ type }) => type.startsWith('step.recovered'))?.n ?? 0).toBeGreaterThan(0)
  expect(people.counts.retries).toBeGreaterThan(0)
  expect(admitted.length).toBeGreaterThan(kills / 2)
})
