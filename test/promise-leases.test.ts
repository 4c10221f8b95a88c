// What an owner takes for proven: from when a lease and a liveness lock count, which claims are renewed, and when a claim is given up.
import { createServer, connect as dial, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { boundedSockets } from '../src/bounded-socket.ts'
import { renewClaims } from '../src/claim.ts'
import { connect, type Db } from '../src/db.ts'
import { newOwnerId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import { createHold } from '../src/runner/hold.ts'
import { createLeases } from '../src/runner/leases.ts'
import { startCore, type TestCore } from './support/core.ts'
import { cutOff } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { eventually } from './support/eventually.ts'

let database: TestDatabase
let running: TestCore
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  db = connect(database.url, 2)
})
afterAll(async () => {
  await running?.stop()
  await db?.$disconnect()
  await database?.drop()
})

const hour = 3_600_000
const log = createLog('silent')
const leasesOf = (owner: string, over: { db?: Db; leaseMs?: number; now?: () => number } = {}) =>
  createLeases({ db, owner, leaseMs: hour, renewMs: hour, log, metrics: createMetrics(), ...over })

/** A claim of this owner, as it holds it. */
async function holdOf(owner: string, leaseMs: number) {
  const { sessionId, executionId } = await cutOff(running.core, { owner, leaseMs })
  return createHold(sessionId, executionId, owner)
}

it('PROMISE-267: an owner whose fence failed and whose lease has run out gives its claim up, though the row is its own still', async () => {
  const owner = newOwnerId()
  const leases = leasesOf(owner)
  const [late, lives] = [await holdOf(owner, -1000), await holdOf(owner, hour)]
  for (const hold of [late, lives]) {
    leases.add(hold, performance.now())
    await leases.examine(hold)
  }
  expect([late.ended, lives.ended]).toEqual(['lost', null])
  leases.close()
})

it('PROMISE-268: a lease counts from when its renewal was sent, however late the answer comes', async () => {
  let time = 0
  let answers = 0
  const slow = new Proxy(db, {
    get: (target, property) =>
      property !== '$queryRaw'
        ? Reflect.get(target, property)
        : async (...sql: Parameters<Db['$queryRaw']>) => {
            const rows = await target.$queryRaw(...sql)
            time = 25_000
            answers++
            return rows
          },
  }) as Db
  const owner = newOwnerId()
  const leases = leasesOf(owner, { db: slow, leaseMs: 30_000, now: () => time })
  const hold = await holdOf(owner, 30_000)
  leases.add(hold, 0)
  time = 10_000
  await leases.renewNow()
  expect(answers).toBe(1)
  // A second before the lease ends, as everywhere.
  time = 39_000
  expect(await leases.mayStart(hold)).toBe(true)
  time = 39_001
  expect(await leases.mayStart(hold)).toBe(false)
  leases.close()
})

it('PROMISE-067: a claim is proven by its renewals also while its owner gives it back, and one that nobody renews is lost then too', async () => {
  let time = 0
  const owner = newOwnerId()
  const leases = leasesOf(owner, { leaseMs: 30_000, now: () => time })
  const hold = await holdOf(owner, 30_000)
  hold.closing = true
  leases.add(hold, 0)
  time = 10_000
  await leases.renewNow()
  time = 39_000
  expect(await leases.mayStart(hold)).toBe(true)
  expect(hold.ended).toBeNull()
  time = 39_001
  expect(await leases.mayStart(hold)).toBe(false)
  expect(hold.ended).toBe('lost')
  leases.close()
})

/** A wire on which answers wait until they are let through; what is asked goes through, until `mute`. */
async function gatedWire(target: string) {
  const to = new URL(target)
  const sockets: Socket[] = []
  const kept: (() => void)[] = []
  const state = { asked: 0, waits: false, mute: false }
  const server = createServer((near) => {
    const far = dial(Number(to.port || 5432), to.hostname)
    for (const socket of [near, far]) sockets.push(socket.on('error', () => {}))
    near.on('data', (data) => {
      state.asked++
      if (!state.mute) far.write(data)
    })
    far.on('data', (data) => (state.waits ? kept.push(() => near.write(data)) : near.write(data)))
    near.on('close', () => far.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(target)
  url.host = `127.0.0.1:${(server.address() as { port: number }).port}`
  return {
    url: url.href,
    state,
    kept: () => kept.length,
    letThrough() {
      state.waits = false
      for (const pass of kept.splice(0)) pass()
    },
    close() {
      for (const socket of sockets) socket.destroy()
      return new Promise((resolve) => server.close(resolve))
    },
  }
}

it('PROMISE-269: a liveness lock is proven as of when it was asked for, however late the answer comes', async () => {
  const wire = await gatedWire(database.url)
  let time = 0
  const graceMs = 400
  const liveness = createLiveness({
    url: wire.url,
    owner: newOwnerId(),
    graceMs,
    silentMs: 60_000,
    log,
    now: () => time,
  })
  expect(await liveness.whenHeld()).toBe(true)
  wire.state.waits = true
  await eventually('an answer that waits', () => wire.kept() > 0)
  time = graceMs
  // What is asked next is not answered at all: only the late answer can have proven anything.
  wire.state.mute = true
  const { asked } = wire.state
  wire.letThrough()
  await eventually('the next question', () => wire.state.asked > asked)
  expect(liveness.isHeld()).toBe(false)
  await wire.close()
  await liveness.close()
})

it('PROMISE-271: a renewal renews the executions it names, and no claim that its owner has given up', async () => {
  const owner = newOwnerId()
  const [kept, abandoned] = [await holdOf(owner, 60_000), await holdOf(owner, 60_000)]
  const expiryOf = async ({ sessionId }: { sessionId: string }) =>
    (await db.claim.findUniqueOrThrow({ where: { sessionId } })).expiresAt.getTime()
  const before = [await expiryOf(kept), await expiryOf(abandoned)] as const
  const renewed = await renewClaims(db, owner, [kept.executionId], hour)
  expect(renewed.map(({ executionId }) => executionId)).toEqual([kept.executionId])
  expect(await expiryOf(kept)).toBeGreaterThan(before[0])
  expect(await expiryOf(abandoned)).toBe(before[1])
})

it('PROMISE-276: whoever waits for a liveness lock is told when it is given up, or when it need not wait any more', async () => {
  const owner = newOwnerId()
  const first = createLiveness({ url: database.url, owner, graceMs: 60_000, log })
  expect(await first.whenHeld()).toBe(true)
  // The lock is taken: this one waits for it.
  const second = createLiveness({ url: database.url, owner, graceMs: 60_000, log })
  expect(await second.whenHeld(AbortSignal.abort())).toBe(false)
  const waits = new AbortController()
  const [aborted, closed] = [second.whenHeld(waits.signal), second.whenHeld()]
  waits.abort()
  expect(await aborted).toBe(false)
  await second.close()
  expect(await closed).toBe(false)
  expect(await second.whenHeld()).toBe(false)
  await first.close()
})

it('PROMISE-270: a process that stood still itself gives no wire up on which the answer has come meanwhile', async () => {
  let answered = () => {}
  const answers = createServer((socket) => {
    socket.on('data', () => {
      socket.write('answer')
      answered()
    })
  })
  await new Promise<void>((resolve) => answers.listen(0, '127.0.0.1', resolve))
  const silentMs = 200
  const socket = boundedSockets(silentMs)()
  const heard: string[] = []
  socket.on('data', (data) => heard.push(String(data)))
  socket.on('error', (error) => heard.push(String(error)))
  socket.connect((answers.address() as { port: number }).port, '127.0.0.1')
  for (let n = 1; n <= 3; n++) {
    // The answer is under way; then nothing of this process runs until the wire's time is over, and only then it reads.
    await new Promise<void>((resolve) => {
      answered = resolve
      socket.write('question')
    })
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, silentMs + 50)
    await eventually(`answer ${n}`, () => heard.length >= n)
  }
  expect(heard).toEqual(['answer', 'answer', 'answer'])
  socket.destroy()
  await new Promise((resolve) => answers.close(resolve))
})
