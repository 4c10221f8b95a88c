// npm run bench:recovery: what recovery costs among very many sessions, and how fast it is when very many were cut off. On the server
// of DATABASE_URL if that is set, else on an embedded one. Fails when a figure misses what the design promises (docs/recovery-cost.md).
//
//   npm run bench:recovery -- [scan|mass] [sessions or claims]
import { cpus } from 'node:os'
import { openBenchDatabase } from './database.ts'
import { say } from './figures.ts'
import { benchMassRecovery } from './mass-recovery.ts'
import { benchScan } from './scan-cost.ts'

const [only, count] = process.argv.slice(2)
if (only !== undefined && only !== 'scan' && only !== 'mass') throw new Error(`scan or mass, not ${only}`)
if (count !== undefined && !/^[1-9]\d{2,7}$/.test(count)) throw new Error(`a number from 100 to 99999999, not ${count}`)

const parts = [
  { name: 'mass', run: benchMassRecovery, amount: 10_000 },
  { name: 'scan', run: benchScan, amount: 1_000_000 },
]
for (const { name, run, amount } of parts) {
  if (only !== undefined && only !== name) continue
  const database = await openBenchDatabase()
  try {
    say(
      `\n# ${new Date().toISOString().slice(0, 10)}, ${database.name}, Node ${process.versions.node}, ${cpus().length} cores`,
    )
    await run(database, Number(count ?? amount))
  } finally {
    await database.drop()
  }
}
