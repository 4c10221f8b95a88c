import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { isAlive } from '../src/embedded/process-table.ts'
import { startEmbedded } from '../src/embedded/server.ts'
import { migrate } from '../src/migrate.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { createSession } from '../src/runner/sessions.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { inconsistencies } from './support/cut-off.ts'
import { openDirectory, serverPid, sweep, until } from './support/embedded-processes.ts'
import { tenant } from './support/stage.ts'

// A database server of its own, so that it can be ended at once again and again; what watches over it starts it anew.

const restarts = 5
/** Acknowledged between two restarts: what a restart finds under way is more. */
const acknowledgedBetween = 8
let home: string
let database: Awaited<ReturnType<typeof startEmbedded>>
let cores: TestCore[]
beforeAll(async () => {
  home = join(openDirectory(), 'home')
  database = await startEmbedded({ dataDir: home })
  await migrate({ url: database.url })
  cores = await Promise.all(
    [1, 2].map(() =>
      startCore({
        url: database.url,
        recovers: true,
        config: { scanMs: 200, livenessGraceMs: 1000, leaseMs: 5000, renewMs: 1000, recoveryAttempts: 1000 },
      }),
    ),
  )
})
afterAll(async () => {
  await Promise.all((cores ?? []).map((core) => core.stop()))
  await database?.stop()
  await sweep([home])
})

it('DB-13: the database is restarted at once again and again under load: nothing acknowledged is lost or doubled, and all comes to rest', async () => {
  const acknowledged: { sessionId: string; messageId: string }[] = []
  let isOver = false
  const failures: string[] = []
  /** Asks until it is answered, as a client does. */
  async function insist<T>(ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask()
      } catch (thrown) {
        failures.push(String(thrown))
        await sleep(20)
      }
    }
  }
  async function client(n: number) {
    const sessionId = `ses_restart${n}`
    for (let turn = 0; !isOver; turn++) {
      const { core } = cores[(n + turn) % cores.length]!
      if (turn === 0) await insist(() => createSession(core, tenant, { sessionId, model: 'demo/echo' }))
      const messageId = `msg_restart${n}-${turn}`
      const answer = await insist(() => admitPrompt(core, tenant, { sessionId, messageId, text: `say ${n} ${turn}` }))
      expect(answer.type).toBe('PromptAdmission')
      acknowledged.push({ sessionId, messageId })
      await sleep(50)
    }
  }
  async function restarting() {
    for (let n = 1; n <= restarts; n++) {
      const seen = acknowledged.length
      await until(() => acknowledged.length >= seen + acknowledgedBetween, 'acknowledgements')
      const pid = serverPid(home)!
      // At once: what is under way is not awaited, what is in memory is lost.
      process.kill(pid, 'SIGQUIT')
      await until(() => !isAlive(pid), 'the database server to end')
      await until(() => serverPid(home) !== undefined, 'the database server to be back')
    }
    isOver = true
  }
  await Promise.all([restarting(), ...Array.from({ length: 6 }, (_, n) => client(n))])
  expect(failures.length).toBeGreaterThan(0)
  expect(acknowledged.length).toBeGreaterThanOrEqual(restarts * acknowledgedBetween)

  const { db } = cores[0]!.core
  await eventually('rest', async () => {
    try {
      const owed = await db.$queryRaw<{ n: number }[]>`
        SELECT (SELECT count(*) FROM "Claim") + (SELECT count(*) FROM "Session" WHERE "stepOwed")
             + (SELECT count(*) FROM "Input" WHERE state = 'PENDING')
             + (SELECT count(*) FROM "Message" WHERE status = 'RUNNING') AS n`
      return Number(owed[0]!.n) === 0
    } catch {
      return false
    }
  })
  for (const { sessionId, messageId } of acknowledged) {
    expect(await db.input.findUnique({ where: { id: messageId } })).toMatchObject({ sessionId, state: 'PROMOTED' })
    const where = { sessionId, payload: { path: ['messageId'], equals: messageId } }
    const types = (await db.event.findMany({ where, orderBy: { seq: 'asc' } })).map(({ type }) => type)
    expect(types).toEqual(['prompt.admitted', 'prompt.promoted'])
  }
  expect(await db.input.count({ where: { kind: 'PROMPT' } })).toBe(acknowledged.length)
  expect(await inconsistencies(db)).toEqual([])
}, 90_000)
