import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startEmbedded } from '../src/embedded/server.ts'
import { newOwnerId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { migrate } from '../src/migrate.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import { beside } from './support/beside.ts'
import { eventually, startCore } from './support/core.ts'
import { cutOff } from './support/cut-off.ts'
import { openDirectory, sweep } from './support/embedded-processes.ts'

// A database server of its own, one of whose processes is killed: the server ends all others and starts itself anew under the same postmaster.

const home = join(openDirectory(), 'home')
let database: Awaited<ReturnType<typeof startEmbedded>>
beforeAll(async () => {
  database = await startEmbedded({ dataDir: home })
  await migrate({ url: database.url })
})
afterAll(async () => {
  await database?.stop()
  await sweep([home])
})

it('PROMISE-1311: a database that has started itself anew, as one of its processes was killed, was away: a process that starts then gives owners their time to come back', async () => {
  const owner = 'own_.neighbour'
  const telling = await startCore({ url: database.url })
  await cutOff(telling.core, { owner, leaseMs: 600_000 })
  await telling.stop()

  const victim = new pg.Client({ connectionString: database.url })
  const ended = new Promise<void>((resolve) => victim.on('error', () => resolve()))
  await victim.connect()
  process.kill((await victim.query('SELECT pg_backend_pid() AS pid')).rows[0].pid, 'SIGKILL')
  await ended
  const outside = await eventually('the database to answer again', () => beside(database.url).catch(() => null))
  const [{ ms: sinceItsPostmaster }] = await outside.query(
    'SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 * 1000 AS ms',
  )
  await outside.close()

  // By the postmaster all the time was over by now.
  let time = 0
  const graceMs = 2000
  const live = createLiveness({
    url: database.url,
    owner: newOwnerId(),
    graceMs,
    returnsWithinMs: sinceItsPostmaster + graceMs,
    log: createLog('silent'),
    now: () => time,
  })
  const deadAt = async (at: number) => {
    time = at
    await live.whenHeld()
    return (await live.observe()).dead
  }
  try {
    expect(await deadAt(0)).toEqual([])
    expect(await deadAt(graceMs + 1)).toEqual([])
    expect(await deadAt(sinceItsPostmaster + graceMs + 1)).toEqual([owner])
  } finally {
    await live.close()
  }
})
