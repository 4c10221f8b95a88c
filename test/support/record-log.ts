// Records the log of a session in which every event type comes up, with the rows that it gave, as this version makes them. For each release
// once, on a database of its own that is migrated:
//   node --import tsx test/support/record-log.ts <url of a database> > test/fixtures/log-<n>.json && npx biome format --write test/fixtures
// What is recorded is never recorded again: log.replay tests hold every later version to it (scenario LOG-11).
import { migrate } from '../../src/migrate.ts'
import { randomHistory, tour } from './random-history.ts'
import { createSession, streamProcess } from './stream-process.ts'

const url = process.argv[2]
if (url === undefined) throw new Error('name a database')

async function main(url: string): Promise<void> {
  await migrate({ url })
  const here = streamProcess(url)
  const sessionId = await createSession(here)
  const history = randomHistory('recorded')
  for (const [n, op] of tour.entries()) {
    const events = history.choose(op, n * 7 + 6)
    if (events === null) continue
    const outcome = await here.eventLog.append({ sessionId, events })
    if (outcome.kind !== 'appended') throw new Error(`${op}: ${outcome.kind}`)
    history.appended(outcome.at)
  }
  const { db } = here
  const where = { where: { sessionId } }
  const recorded = {
    events: await here.eventLog.read(sessionId, 0, 10_000),
    session: await db.session.findUniqueOrThrow({ where: { id: sessionId } }),
    tables: {
      Input: await db.input.findMany({ ...where, orderBy: { id: 'asc' } }),
      Message: await db.message.findMany({ ...where, orderBy: { seq: 'asc' } }),
      Part: await db.part.findMany({ ...where, orderBy: [{ messageId: 'asc' }, { index: 'asc' }] }),
      ToolCall: await db.toolCall.findMany({ ...where, orderBy: [{ messageId: 'asc' }, { index: 'asc' }] }),
      Interaction: await db.interaction.findMany({ ...where, orderBy: { id: 'asc' } }),
      Recovery: await db.recovery.findMany({ ...where, orderBy: { id: 'asc' } }),
      Quarantine: await db.quarantine.findMany({ ...where, orderBy: { id: 'asc' } }),
    },
  }
  const plain = (_: string, value: unknown) => (typeof value === 'bigint' ? Number(value) : value)
  process.stdout.write(`${JSON.stringify(recorded, plain, 2)}\n`)
  await here.close()
}

main(url).catch((error) => {
  console.error(error)
  process.exitCode = 1
})
