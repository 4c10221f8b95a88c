// Lanes: each is a database with one client, in which worlds are played one after the other. The clock of a lane only goes forward, and a
// scan of one lane meets nothing of another, so worlds run beside each other without touching.
import { connect, type Db } from '../../src/db.ts'
import { createTestDatabase } from '../support/database.ts'

export interface Lane {
  db: Db
  url: string
  /** Moves the database's clock on by this much. */
  shift(ms: number): Promise<void>
  close(): Promise<void>
}

export async function openLane(): Promise<Lane> {
  const database = await createTestDatabase()
  database.exempt('all', 'the checker replays each world when it is over, and mutants break theirs')
  const db = connect(database.url, 4)
  let shifted = 0
  return {
    db,
    url: database.url,
    async shift(ms) {
      shifted += ms
      await db.$executeRawUnsafe(
        `CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE
         AS $$ SELECT clock_timestamp() + interval '${shifted} milliseconds' $$`,
      )
    },
    async close() {
      await db.$disconnect()
      await database.drop()
    },
  }
}

/** Does each piece of work in the next lane that is free. A lane whose work says so is replaced: what is left in it could reach others. */
export async function inLanes<T>(
  lanes: Lane[],
  work: readonly T[],
  act: (piece: T, lane: Lane) => Promise<{ spoilt: boolean }>,
): Promise<void> {
  const queue = [...work]
  await Promise.all(
    lanes.map(async (_, n) => {
      for (let piece = queue.shift(); piece !== undefined; piece = queue.shift()) {
        const { spoilt } = await act(piece, lanes[n]!)
        if (!spoilt) continue
        await lanes[n]!.close()
        lanes[n] = await openLane()
      }
    }),
  )
}
