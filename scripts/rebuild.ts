// Rebuilds projected tables from the log and reports what was different: npm run rebuild -- [session]
// Stop the servers of this database first. Exit 0: done (or nothing to do). Exit 1: a session could not be rebuilt; the others were.
import { loadConfig } from '../src/config.ts'
import { connect } from '../src/db.ts'
import { startEmbedded } from '../src/embedded/server.ts'
import { asError } from '../src/errors.ts'
import { rebuildSession } from '../src/rebuild.ts'

const pageSize = 500
const config = await loadConfig()
const embedded = config.databaseUrl === undefined ? await startEmbedded({ dataDir: config.dataDir }) : null
const db = connect(config.databaseUrl ?? embedded!.url, 2)
const [only] = process.argv.slice(2)
let sessions = 0
let changed = 0
let failed = 0

async function rebuild(id: string) {
  sessions++
  try {
    const found = await rebuildSession(db, id)
    if (found === null) throw new Error('there is no such session')
    if (found.consistent) return
    changed++
    console.log(`${id}: rebuilt from ${found.events} events`)
    for (const difference of found.differences) console.log(`  ${difference}`)
  } catch (thrown) {
    failed++
    console.error(`${id}: not rebuilt: ${asError(thrown).message}`)
  }
}

try {
  if (only !== undefined) await rebuild(only)
  else {
    for (let after = ''; ; ) {
      const page = await db.session.findMany({
        where: { id: { gt: after } },
        orderBy: { id: 'asc' },
        take: pageSize,
        select: { id: true },
      })
      for (const { id } of page) await rebuild(id)
      if (page.length < pageSize) break
      after = page.at(-1)!.id
    }
  }
  console.log(`${sessions} sessions looked at, ${changed} rebuilt, ${failed} failed`)
} finally {
  await db.$disconnect()
  await embedded?.stop()
}
process.exit(failed === 0 ? 0 : 1)
