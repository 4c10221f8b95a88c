import type { Db, Tx } from '../../src/db.ts'

export interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Shared Hit Blocks': number
  'Shared Read Blocks': number
  Plans?: PlanNode[]
}

export interface Explained {
  /** Every node of the plan, the top one first. */
  nodes: PlanNode[]
  /** Pages of 8 KiB that the whole statement has looked at, cached or not. */
  pages: number
}

/** A stand-in for the client that hands each statement to `see` and answers with no rows. */
function explaining(see: (text: string, values: unknown[]) => Promise<void>): Tx {
  const client = {
    async $queryRaw(sql: TemplateStringsArray, ...values: unknown[]) {
      await see(
        sql.reduce((before, part, n) => `${before}$${n}${part}`),
        values,
      )
      return []
    },
  }
  return client as unknown as Tx
}

/** Runs a read of one statement under EXPLAIN (ANALYZE, BUFFERS). */
export async function explain(db: Db, run: (tx: Tx) => Promise<unknown>): Promise<Explained> {
  const nodes: PlanNode[] = []
  const see = async (text: string, values: unknown[]) => {
    const rows = await db.$queryRawUnsafe<{ 'QUERY PLAN': { Plan: PlanNode }[] }[]>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
      ...values,
    )
    const walk = (node: PlanNode) => {
      nodes.push(node)
      node.Plans?.forEach(walk)
    }
    walk(rows[0]!['QUERY PLAN'][0]!.Plan)
  }
  await run(explaining(see))
  return { nodes, pages: nodes[0]!['Shared Hit Blocks'] + nodes[0]!['Shared Read Blocks'] }
}

/** The same as people read it. */
export async function explainText(db: Db, run: (tx: Tx) => Promise<unknown>): Promise<string> {
  let text = ''
  const see = async (sql: string, values: unknown[]) => {
    const rows = await db.$queryRawUnsafe<{ 'QUERY PLAN': string }[]>(`EXPLAIN (ANALYZE, BUFFERS) ${sql}`, ...values)
    text += rows.map((row) => row['QUERY PLAN']).join('\n')
  }
  await run(explaining(see))
  return text
}
