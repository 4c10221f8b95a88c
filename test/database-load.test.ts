import { afterAll, beforeAll, expect, it } from 'vitest'
import { sqlStateOf } from '../src/db.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import { archiveSession, createSession, updateSession } from '../src/runner/sessions.ts'
import { type Beside, beside } from './support/beside.ts'
import { startCore, type TestCore } from './support/core.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { tenant } from './support/stage.ts'
import { streamProcess, titled } from './support/stream-process.ts'

// Everything that takes locks, against each other: the order (Session rows by id, Claims, the rest) leaves no circle.

let database: TestDatabase
let outside: Beside
const cores: TestCore[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  outside = await beside(database.url)
  // A circle is found, and counted, as soon as it closes.
  await outside.query(`ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET deadlock_timeout = '20ms'`)
})
afterAll(async () => {
  await Promise.all(cores.map((core) => core.stop()))
  await outside?.close()
  await database?.drop()
})

const start = async () => {
  const started = await startCore({
    url: database.url,
    recovers: true,
    config: { scanMs: 100, renewMs: 100, leaseMs: 2000, livenessGraceMs: 300, pollMs: 50, recoveryAttempts: 1000 },
  })
  cores.push(started)
  return started
}
const deadlocks = async () => {
  // What the backends have counted is told when they come to rest.
  const [row] = await outside.query(
    'SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()',
  )
  return row.n
}

it('DB-05: mutations, grouped appends, renewals, live text, drains, takeovers and a death against each other: no deadlock', async () => {
  const [one, two, victim] = [await start(), await start(), await start()]
  const grouping = [1, 2].map(() => streamProcess(database.url))
  const sessions = Array.from({ length: 8 }, (_, n) => `ses_load-test${n}`)
  for (const sessionId of sessions) await createSession(one.core, tenant, { sessionId, model: 'demo/echo' })
  const failures: unknown[] = []
  const done: Record<string, number> = {}
  const ids: { sessionId: string; messageId: string }[] = []
  let made = 0
  const ops: Record<string, (core: Core, sessionId: string, n: number) => Promise<unknown>> = {
    async admit(core, sessionId, n) {
      const messageId = `msg_load-test${++made}`
      ids.push({ sessionId, messageId })
      const delivery = n % 3 ? 'STEER' : 'QUEUE'
      return admitPrompt(core, tenant, {
        sessionId,
        messageId,
        text: `say something ${n}`,
        delivery,
        resume: n % 4 > 0,
      })
    },
    async again(core, _, n) {
      const which = ids[n % ids.length]
      return which && admitPrompt(core, tenant, { ...which, text: 'another text' })
    },
    async move(core, _, n) {
      const which = ids[ids.length - 1 - (n % Math.min(ids.length, 5))]
      return which && changeDelivery(core, tenant, { ...which, delivery: n % 2 ? 'STEER' : 'QUEUE' })
    },
    async withdraw(core, _, n) {
      const which = ids[ids.length - 1 - (n % Math.min(ids.length, 3))]
      return which && withdrawPrompt(core, tenant, which)
    },
    interrupt: (core, sessionId) => interruptSession(core, tenant, { sessionId }),
    resume: (core, sessionId) => resumeSession(core, tenant, { sessionId }),
    update: (core, sessionId, n) => updateSession(core, tenant, { sessionId, title: `t${n}` }),
    archive: (core, sessionId) => archiveSession(core, tenant, { sessionId }),
    compact: (core, sessionId, n) =>
      compactSession(core, tenant, { sessionId, messageId: `msg_load-compact${n}x${++made}` }),
    // All sessions at once, in another order each time: groups of two processes that own none of them.
    group: (_, __, n) =>
      Promise.all(
        sessions
          .toSorted((a, b) => ((a.charCodeAt(13) * n) % 7) - ((b.charCodeAt(13) * n) % 7))
          .flatMap((sessionId) =>
            grouping.map(({ eventLog }) => eventLog.append({ sessionId, events: [titled(`g${n}`)] })),
          ),
      ),
  }
  const names = [...Object.keys(ops), 'admit', 'admit', 'admit', 'interrupt', 'group']
  async function worker(w: number) {
    for (let n = 0; n < 15; n++) {
      const name = names[(w * 7 + n * 5) % names.length]!
      const core = (n % 3 === 2 && n < 7 ? victim : n % 2 ? one : two).core
      try {
        await ops[name]!(core, sessions[(w * 3 + n) % sessions.length]!, w * 100 + n)
        done[name] = (done[name] ?? 0) + 1
      } catch (thrown) {
        failures.push(thrown)
      }
      // Its claims are found by the others while all goes on.
      if (w === 0 && n === 8) void victim.kill()
    }
  }
  // Holds one session at a time for a moment: whoever locks several then stops in the middle, which is when circles close.
  let isOver = false
  async function disturb() {
    for (let n = 0; !isOver; n++) {
      await outside.lock(sessions[(n * 3) % sessions.length]!)
      await new Promise((resolve) => setTimeout(resolve, 10))
      await outside.query('ROLLBACK')
    }
  }
  const disturbing = disturb()
  await Promise.all(Array.from({ length: 10 }, (_, w) => worker(w)))
  isOver = true
  await disturbing
  await Promise.all([one, two].map(({ core }) => core.coordinator.idle()))
  expect(Object.keys(done).toSorted()).toEqual(Object.keys(ops).toSorted())
  // What was asked of the victim may have failed; nothing because of a circle.
  expect(failures.filter((thrown) => sqlStateOf(thrown) === '40P01')).toEqual([])
  for (const each of grouping) await each.close()
  await Promise.all(cores.map((core) => core.stop()))
  expect(await deadlocks()).toBe(0)
  expect(await inconsistencies((await start()).core.db)).toEqual([])

  // The counter counts: a circle made by hand is seen.
  const [a, b] = [await beside(database.url), await beside(database.url)]
  await a.lock(sessions[0]!)
  await b.lock(sessions[1]!)
  const crossing = [a, b].map((each, n) =>
    each.query('SELECT 1 FROM "Session" WHERE id = $1 FOR UPDATE', [sessions[1 - n]!]).catch((error) => error.code),
  )
  await Promise.race(crossing)
  for (const each of [a, b]) await each.query('ROLLBACK').catch(() => {})
  expect(await Promise.all(crossing)).toContain('40P01')
  await Promise.all([a.close(), b.close()])
  for (let look = 0; (await deadlocks()) === 0; look++) expect(look).toBeLessThan(2000)
  expect(await deadlocks()).toBe(1)
}, 90_000)
