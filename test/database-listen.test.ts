import type { AddressInfo } from 'node:net'
import { connect, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { connect as connectDb } from '../src/db.ts'
import { createDoorbell } from '../src/doorbell.ts'
import { beside } from './support/beside.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { eventually } from './support/eventually.ts'
import { append, createSession, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

let database: TestDatabase
let elsewhere: StreamProcess
beforeAll(async () => {
  database = await createTestDatabase()
  elsewhere = streamProcess(database.url, { deaf: true })
})
afterAll(async () => {
  await elsewhere?.close()
  await database?.drop()
})

/** A wire on which nothing arrives any more, though it stays open: as when a firewall forgets a connection. */
async function silentWire(target: string) {
  const to = new URL(target)
  const sockets: Socket[] = []
  let swallowed = 0
  const server = createServer((near) => {
    const far = connect(Number(to.port || 5432), to.hostname)
    const isDoomed = sockets.length === 0
    for (const [from, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.push(from)
      from.on('error', () => {})
      from.on('close', () => other.destroy())
      from.on('data', (data) => {
        if (isDoomed && wire.isSilent) swallowed++
        else other.write(data)
      })
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  const wire = {
    url: url.href,
    /** Concerns the first connection only. */
    isSilent: false,
    swallowed: () => swallowed,
    connections: () => sockets.length / 2,
    isFirstClosed: () => sockets[0]!.destroyed,
    close: () =>
      new Promise<void>((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
  return wire
}

it('DB-14: a LISTEN connection that goes silent: the poll delivers what other nodes commit, and the connection is renewed', async () => {
  const wire = await silentWire(database.url)
  const watcher = await beside(database.url)
  const db = connectDb(database.url, 2)
  const sessionId = await createSession(elsewhere)
  const warned: string[] = []
  const pollMs = 1000
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
  const doorbell = createDoorbell({
    db,
    url: wire.url,
    origin: 'own_.listening',
    pollMs,
    warn: (error, what) => void warned.push(`${what}: ${error.message}`),
  })
  try {
    let rung = 0
    const stop = doorbell.listen(sessionId, () => void rung++)
    const listening = async () => {
      const rows = await watcher.query(
        `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast listen'
           AND query LIKE 'LISTEN%' AND state = 'idle'`,
      )
      return rows.length
    }
    await eventually('LISTEN', async () => (await listening()) > 0)
    // It works: heard without any poll.
    await append(elsewhere, sessionId, titled('heard'))
    await eventually('the bell', () => rung === 1)

    wire.isSilent = true
    await append(elsewhere, sessionId, titled('not heard'))
    await eventually('the lost notification', () => wire.swallowed() > 0)
    expect(rung).toBe(1)
    await vi.advanceTimersByTimeAsync(pollMs)
    await eventually('the poll', () => rung === 2)
    expect(warned).toEqual([])

    // Asked whether it lives, it does not answer, and is replaced.
    const swallowed = wire.swallowed()
    await vi.advanceTimersByTimeAsync(10_000 - pollMs)
    await eventually('the question', () => wire.swallowed() > swallowed)
    expect(wire.connections()).toBe(1)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(warned).toEqual(['LISTEN: the LISTEN connection does not answer'])
    await vi.advanceTimersByTimeAsync(50)
    await eventually('a new connection', () => wire.connections() === 2)
    await eventually('LISTEN again', async () => {
      const [row] =
        await watcher.query(`SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'holdfast listen' AND query LIKE 'LISTEN%' AND state = 'idle'`)
      return row.n >= 1 && wire.connections() === 2
    })
    const before = rung
    await eventually('the bell through the new connection', async () => {
      await append(elsewhere, sessionId, titled('heard again'))
      return rung > before
    })
    stop()
  } finally {
    vi.useRealTimers()
    await doorbell.close()
    await db.$disconnect()
    await watcher.close()
    await wire.close()
  }
})
