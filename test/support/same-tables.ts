// The proof that every session's tables are what its log says, over a whole database of tests.
import { connect, type Db, type Tx } from '../../src/db.ts'
import { verifyIn } from '../../src/verify.ts'

export interface SameTables {
  /** Replays each session whose log has moved since it was proved last, and finds in the tables what the logs give. */
  prove(): Promise<void>
  /**
   * This test wrote rows of these sessions by hand, past the log, or breaks them on purpose: the proof is that they differ. 'all': of any
   * session of the database, and nothing is proved.
   */
  exempt(sessionIds: readonly string[] | 'all', why: string): void
  /** Gives its connection back. */
  end(): Promise<void>
}

const sessionsAtOnce = 200

export function sameTables(url: string): SameTables {
  let db: Db | null = null
  const exempted = new Map<string, string>()
  let allExempted = false
  /** Up to which seq each session has been proved. */
  const proved = new Map<string, number>()

  /** A line for each session that is not as it has to be. */
  async function findWrong(tx: Tx): Promise<string[]> {
    const sessions = await tx.session.findMany({ select: { id: true, seq: true } })
    const moved = sessions.filter(({ id, seq }) => proved.get(id) !== seq)
    const found: string[] = []
    for (let from = 0; from < moved.length; from += sessionsAtOnce) {
      const some = moved.slice(from, from + sessionsAtOnce)
      const rows = await readAtOnce(
        tx,
        some.map(({ id }) => id),
      )
      for (const { id, seq } of some) {
        proved.set(id, seq)
        const { consistent, differences } = (await verifyIn(rows, id))!
        const why = exempted.get(id)
        if (why !== undefined && consistent) found.push(`${id} is as its log says, and exempted: ${why}`)
        if (why === undefined && !consistent) found.push(`${id}: ${differences.join('; ')}`)
      }
    }
    return found
  }

  return {
    async prove() {
      if (allExempted) return
      db ??= connect(url, 1)
      const wrong = await db.$transaction(findWrong, { isolationLevel: 'RepeatableRead', timeout: 120_000 })
      if (wrong.length > 0) throw new Error(`the tables are not what the logs say:\n${wrong.join('\n')}`)
    },
    exempt(sessionIds, why) {
      if (sessionIds === 'all') allExempted = true
      else for (const id of sessionIds) exempted.set(id, why)
    },
    async end() {
      await db?.$disconnect()
      db = null
    },
  }
}

interface Asked {
  where: { sessionId: string; seq?: { gt: number } }
  take?: number
}

/** Answers what verifyIn asks of these sessions, from memory: to read them one by one would be a good part of some files' time. */
async function readAtOnce(tx: Tx, ids: string[]): Promise<Tx> {
  const where = { sessionId: { in: ids } }
  const sessions = new Map((await tx.session.findMany({ where: { id: { in: ids } } })).map((each) => [each.id, each]))
  function table(rows: readonly { sessionId: string; seq?: number | null }[]) {
    const bySession = new Map<string, (typeof rows)[number][]>(ids.map((id) => [id, []]))
    for (const row of rows) bySession.get(row.sessionId)!.push(row)
    return {
      findMany: async ({ where: { sessionId, seq }, take }: Asked) =>
        bySession
          .get(sessionId)!
          .filter((row) => seq === undefined || row.seq! > seq.gt)
          .slice(0, take),
    }
  }
  return {
    session: { findUnique: async (asked: { where: { id: string } }) => sessions.get(asked.where.id) ?? null },
    event: table(await tx.event.findMany({ where, orderBy: { seq: 'asc' } })),
    input: table(await tx.input.findMany({ where })),
    message: table(await tx.message.findMany({ where })),
    part: table(await tx.part.findMany({ where })),
    toolCall: table(await tx.toolCall.findMany({ where })),
    interaction: table(await tx.interaction.findMany({ where })),
    recovery: table(await tx.recovery.findMany({ where })),
    quarantine: table(await tx.quarantine.findMany({ where })),
  } as unknown as Tx
}
