// What a recovery scan costs among a million sessions of which a hundred owe work: the plans of its reads, then whole scans by the clock.
import { connect, type Tx } from '../src/db.ts'
import * as passes from '../src/recovery/passes.ts'
import { startCore } from '../test/support/core.ts'
import { quiet } from '../test/support/cut-off.ts'
import { explain, explainText } from '../test/support/explain.ts'
import type { BenchDatabase } from './database.ts'
import { median, say } from './figures.ts'
import { deadOwner, owe, owed, owedInAll, writeSessions } from './many-sessions.ts'

const looks: [string, (tx: Tx) => Promise<unknown>][] = [
  ['claims of a dead owner', (tx) => passes.claimsOf(tx, deadOwner, '')],
  ['expired claims', (tx) => passes.expiredClaims(tx, null)],
  ['armed recoveries', (tx) => passes.armedRecoveries(tx, null)],
  ['expired interactions', (tx) => passes.expiredInteractions(tx, null)],
  ['owed sessions', (tx) => passes.owedSessions(tx, '')],
  ['gauges', (tx) => passes.countSetAside(tx)],
]
const scans = 50

export async function benchScan({ url }: BenchDatabase, sessions: number): Promise<void> {
  const db = connect(url, 2, 3_600_000)
  try {
    let begun = performance.now()
    await writeSessions(db, sessions)
    await owe(db, sessions)
    await db.$executeRawUnsafe('VACUUM ANALYZE')
    say(`${sessions} sessions, ${owedInAll} of which owe work: written in ${seconds(begun)} s`)

    for (const [name, look] of looks) {
      await look(db)
      const times: number[] = []
      for (let n = 0; n < scans; n++) {
        begun = performance.now()
        await look(db)
        times.push(performance.now() - begun)
      }
      const { pages } = await explain(db, look)
      say(`\n## ${name}: ${pages} pages, ${median(times).toFixed(1)} ms\n\n${await explainText(db, look)}`)
    }

    const running = await startCore({ url, config: { livenessGraceMs: 60_000 } })
    try {
      const woken = quiet(running.core)
      // The claims whose lease runs are no dead owner's within this grace; they stay what a scan has to pass over.
      begun = performance.now()
      const first = await running.recovery.scan()
      say(`\nfirst scan, ${owed.expired} claims taken over: ${(performance.now() - begun).toFixed(1)} ms`, first)
      const times: number[] = []
      for (let n = 0; n < scans; n++) {
        woken.length = 0
        begun = performance.now()
        await running.recovery.scan()
        times.push(performance.now() - begun)
      }
      const slowest = Math.max(...times)
      say(
        `whole scans, ${woken.length} sessions woken by each: median ${median(times).toFixed(1)} ms, slowest ${slowest.toFixed(1)} ms of ${scans}`,
      )
      if (median(times) >= 50) throw new Error('a scan takes 50 ms or more')
    } finally {
      await running.stop()
    }
  } finally {
    await db.$disconnect()
  }
}

const seconds = (begun: number) => ((performance.now() - begun) / 1000).toFixed(0)
