// Servers that come and go while there is work: a boot with sessions owed, a rolling restart of two nodes, and what /metrics says.
import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { connect, type Db } from '../src/db.ts'
import { serveHttp } from '../src/http/serve.ts'
import { sessionStream } from '../src/session-stream.ts'
import { verifySession } from '../src/verify.ts'
import { beside } from './support/beside.ts'
import { eventually, startCore } from './support/core.ts'
import { cutOff, inconsistencies, inStep, phased, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { finish, gate, hang, reply, startProvider, status, text, wait } from './support/provider.ts'
import { ask, endServers, type ServerProcess, startServer } from './support/server-process.ts'

let database: TestDatabase
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, 3)
})
afterEach(endServers)
afterAll(async () => {
  await endServers()
  await db?.$disconnect()
  await database?.drop()
})

const create = 'mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }'
const admit = `mutation ($s: ID!, $m: ID!, $t: String!) {
  admitPrompt(input: { sessionId: $s, messageId: $m, text: $t, delivery: QUEUE }) { __typename ... on PromptAdmission { outcome } } }`
const newId = (prefix: 'ses' | 'msg') => `${prefix}_${randomUUID()}`

it('OPS-03: with 150 cut-off sessions at boot the API is ready, answers and takes prompts while recovery has dealt with none of them', async () => {
  const owed: string[] = []
  const maker = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  quiet(maker.core)
  for (let n = 0; n < 150; n += 10) {
    const cuts = await Promise.all(Array.from({ length: 10 }, () => cutOff(maker.core, { model: 'demo/echo' })))
    owed.push(...cuts.map(({ sessionId }) => sessionId))
  }
  await maker.stop()
  // Recovery cannot get past the very first of them.
  const blocker = await beside(database.url)
  try {
    await blocker.query('BEGIN')
    await blocker.query('SELECT id FROM "Session" WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE', [owed])
    const server = startServer({ DATABASE_URL: database.url, HOLDFAST_SCAN_MS: '1000' })
    const url = await server.ready
    await blocker.blocked()
    const left = () => db.claim.count({ where: { sessionId: { in: owed } } })
    expect((await fetch(new URL('readyz', url))).status).toBe(200)
    const session = newId('ses')
    await ask(url, create, { s: session })
    const answer = await ask(url, admit, { s: session, m: newId('msg'), t: 'hello' })
    expect(answer.admitPrompt).toMatchObject({ outcome: 'ADMITTED' })
    await eventually('the new prompt to be answered', () =>
      db.event.count({ where: { sessionId: session, type: 'execution.settled' } }),
    )
    const page = await ask(url, '{ sessions(first: 5) { edges { node { id status } } } }')
    expect(page.sessions.edges).toHaveLength(5)
    expect(await left()).toBe(150)
    await blocker.query('ROLLBACK')
    await eventually(
      'all to be answered',
      async () =>
        (await db.event.count({ where: { sessionId: { in: owed }, type: 'step.ended' } })) === 150 &&
        (await left()) === 0,
    )
    server.signal('SIGTERM')
    expect((await server.ended).code).toBe(0)
  } finally {
    await blocker.close()
  }
  expect(await inconsistencies(db)).toEqual([])
}, 180_000)

it('OPS-05: a rolling restart of two nodes during 20 runs: each prompt is answered once, none fails, is lost or parked, and nothing waits for a lease', async () => {
  const env = {
    DATABASE_URL: database.url,
    // Whoever waited for one would be seen.
    HOLDFAST_LEASE_MS: '600000',
    HOLDFAST_SCAN_MS: '500',
    HOLDFAST_SHUTDOWN_GRACE_MS: '1000',
  }
  const nodes: [ServerProcess, ServerProcess] = [startServer(env), startServer(env)]
  const urls = await Promise.all(nodes.map(({ ready }) => ready))
  const sessions = Array.from({ length: 20 }, () => newId('ses'))
  const prompts = new Map<string, string>()
  /** As a client does it: the other node, and again, until it is acknowledged. */
  async function acknowledged(query: string, variables: Record<string, string>, at: number): Promise<void> {
    const deadline = Date.now() + 60_000
    for (let n = at; ; n++) {
      try {
        await ask(urls[n % 2]!, query, variables)
        return
      } catch (error) {
        if (Date.now() > deadline) throw error
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    }
  }
  const send = async (s: string, at: number, words: string) => {
    const m = newId('msg')
    prompts.set(m, s)
    await acknowledged(admit, { s, m, t: words }, at)
  }
  // Ten short runs, and ten that would take most of a minute: those are in the middle of something when their node leaves.
  const words = (n: number) =>
    n % 2 === 0 ? '/length 20' : '/slow 2000 One two three four five six seven eight nine ten'
  await Promise.all(
    sessions.map(async (s, n) => {
      await acknowledged(create, { s }, n)
      await send(s, n, words(n))
    }),
  )
  await eventually('runs on both nodes', async () => {
    const claims = await db.claim.findMany({ where: { sessionId: { in: sessions } } })
    return new Set(claims.map(({ owner }) => owner)).size === 2
  })
  let restarted = false
  const more = (async () => {
    // People go on writing meanwhile.
    for (let n = 0; !restarted || n < 20; n++) {
      await send(sessions[n % 20]!, n, 'more')
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  })()
  for (const n of [0, 1] as const) {
    nodes[n].signal('SIGTERM')
    expect((await nodes[n].ended).code).toBe(0)
    nodes[n] = startServer(env)
    urls[n] = await nodes[n].ready
  }
  restarted = true
  await more
  await eventually('all to be promoted and at rest', async () => {
    const promoted = await db.input.count({ where: { id: { in: [...prompts.keys()] }, state: 'PROMOTED' } })
    return promoted === prompts.size && (await db.claim.count({ where: { sessionId: { in: sessions } } })) === 0
  })
  const where = { sessionId: { in: sessions } }
  const events = await db.event.findMany({ where, orderBy: [{ sessionId: 'asc' }, { seq: 'asc' }] })
  const of = (type: string) => events.filter((each) => each.type === type)
  const field = ({ payload }: { payload: unknown }, name: string) => (payload as Record<string, unknown>)[name]
  // Each once, and a step that ended clean behind it before the next one.
  for (const m of prompts.keys()) {
    expect(of('prompt.promoted').filter((each) => field(each, 'messageId') === m)).toHaveLength(1)
  }
  for (const s of sessions) {
    let owed = 0
    for (const each of events.filter(({ sessionId }) => sessionId === s)) {
      if (each.type === 'prompt.promoted' && field(each, 'inputKind') === 'PROMPT') {
        expect(owed, `${s} at ${each.seq}`).toBe(0)
        owed = 1
      }
      if (each.type === 'step.ended') {
        expect(owed, `${s} at ${each.seq}`).toBe(1)
        owed = 0
      }
    }
    expect(owed, s).toBe(0)
  }
  expect(of('execution.settled').filter((each) => field(each, 'outcome') === 'FAILED')).toEqual([])
  expect(of('session.parked')).toEqual([])
  expect(of('quarantine.opened')).toEqual([])
  // What was cut off was handed over in order; nobody died.
  const recovered = of('step.recovered')
  expect(recovered.length).toBeGreaterThan(0)
  expect(recovered.map((each) => field(each, 'handover'))).toEqual(recovered.map(() => true))
  const { rows } = await query(
    'SELECT status FROM (SELECT "parkedReason" AS status FROM "Session" WHERE id = ANY ($1)) s',
    [sessions],
  )
  expect(rows).toEqual(sessions.map(() => ({ status: null })))
  for (const s of sessions) expect(await verifySession(db, s)).toMatchObject({ consistent: true, differences: [] })
}, 240_000)

async function query(sql: string, values: unknown[]) {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  try {
    return await client.query(sql, values)
  } finally {
    await client.end()
  }
}

it('OPS-07: over HTTP each metric moves with what it counts: drains, queue, retries, recoveries, parked, quarantined, refused writes, slow readers, appends', async () => {
  const provider = await startProvider()
  const a = await startCore({
    url: database.url,
    models: { compatible: { baseUrl: provider.baseUrl } },
    config: {
      model: 'compatible/scripted',
      maxDrains: 1,
      stallMs: 300,
      recoveryMaxAgeMs: 3_600_000,
      livenessGraceMs: 60_000,
    },
    clock: { now: Date.now, setTimeout: hurried },
  })
  const { core } = a
  const server = await serveHttp(core, { host: '127.0.0.1', port: 0 })
  const read = async () => {
    const response = await fetch(`${server.url}metrics`)
    expect(response.status).toBe(200)
    const values = new Map<string, number>()
    for (const line of (await response.text()).split('\n')) {
      const [, name, value] = /^holdfast_(\w+)(?:\{.*\})? (\S+)$/.exec(line) ?? []
      if (name !== undefined && !name.endsWith('_bucket')) values.set(name, (values.get(name) ?? 0) + Number(value))
    }
    return (name: string) => values.get(name) ?? Number.NaN
  }
  try {
    const before = await read()
    expect(before('drains_in_progress')).toBe(0)
    for (const name of ['retries_total', 'recoveries_total', 'parked', 'quarantined', 'slow_consumers_total'])
      expect(before(name), name).toBe(0)

    // A drain that waits for its provider, and another one that waits for its place.
    const open = gate()
    provider.script(reply(text('a'), wait(open.promise), finish()), reply(text('b'), finish()))
    const url = server.url
    const [first, second] = [newId('ses'), newId('ses')]
    for (const s of [first, second]) {
      await ask(url, create, { s })
      await ask(url, admit, { s, m: newId('msg'), t: 'hi' })
    }
    await provider.request(0)
    expect((await read())('drains_in_progress')).toBe(1)
    open.open()
    await core.coordinator.idle()
    const ran = await read()
    expect(ran('drains_in_progress')).toBe(0)
    expect(ran('drain_queue_seconds_count')).toBeGreaterThanOrEqual(2)
    expect(ran('provider_attempts_total')).toBe(2)
    expect(ran('append_seconds_count')).toBeGreaterThan(before('append_seconds_count') + 10)
    expect(ran('append_seconds_sum')).toBeGreaterThan(0)
    expect(ran('append_group_size_count')).toBeGreaterThan(10)
    expect(ran('append_group_size_sum')).toBeGreaterThanOrEqual(ran('append_group_size_count'))

    provider.script(status(503), reply(text('c'), finish()))
    await ask(url, admit, { s: first, m: newId('msg'), t: 'again' })
    await core.coordinator.idle()
    expect((await read())('retries_total')).toBe(1)

    // A claim that is replaced behind its owner's back.
    provider.script(reply(text('d'), hang()))
    const third = newId('ses')
    await ask(url, create, { s: third })
    await ask(url, admit, { s: third, m: newId('msg'), t: 'stolen' })
    await eventually('its text', () => db.event.count({ where: { sessionId: third, type: 'text.started' } }))
    const expiresAt = new Date(Date.now() - 7_200_000)
    await db.claim.update({ where: { sessionId: third }, data: { owner: 'own_.thief', expiresAt } })
    await core.leases.renewNow()
    await core.coordinator.idle()
    expect((await read())('refused_stale_writes_total')).toBeGreaterThan(before('refused_stale_writes_total') || 0)

    // That one is too old to go on by itself, one is recovered, and one is set aside.
    quiet(core)
    await cutOff(core)
    const cancelling = await inStep(core)
    await phased(core, cancelling, [], 'CANCELLING')
    await a.recovery.scan()
    const scanned = await read()
    expect(scanned('recoveries_total')).toBe(2)
    expect(scanned('parked')).toBe(1)
    expect(scanned('quarantined')).toBe(1)
    expect(scanned('scan_seconds_count')).toBe(1)

    // A reader that takes one item and then nothing more.
    const stream = sessionStream(core, { sessionId: first, after: 0 })
    await stream.next()
    expect((await read())('streams')).toBe(1)
    await eventually('its end', async () => (await read())('slow_consumers_total') === 1)
    await stream.return!()
    expect((await read())('streams')).toBe(0)
  } finally {
    await provider.close()
    await server.close(1000)
    await a.stop()
  }
  expect(await inconsistencies(db)).toEqual([])
}, 120_000)

/** Back-offs at once: what a metric counts does not hang on their length. */
function hurried(fn: () => void, ms: number) {
  const timer = setTimeout(fn, Math.min(ms, ms > 60_000 ? ms : 50))
  timer.unref()
  return () => clearTimeout(timer)
}
