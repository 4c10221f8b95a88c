// A database client whose every statement goes through a gate. Statements that write are points, named by what they write; a transaction
// is one point, at its commit: "before" rolls it back, "after" has it durable and unanswered.
import type { Db, Tx } from '../../src/db.ts'
import { Died, type Gate, type Point, unanswered } from './gate.ts'

interface Member {
  ev: { t: string; p: { callId?: string } }[]
  c?: string
  ct?: string
}

/** A call id begins with the name of its tool, which is the same in every run. */
const ofCall = (callId: string | undefined) => (callId === undefined ? '' : `(${callId.split('.')[0]})`)

function appendLabel(parameter: unknown): string {
  const { members } = JSON.parse(String(parameter)) as { members: Member[] }
  const each = members.map(({ ev, c, ct }) => {
    const events = ev.map(({ t, p }) => `${t}${ofCall(p.callId)}`)
    const move = c === 'move' ? [`to ${ct}`] : c === undefined ? [] : [`${c} claim`]
    return [...events, ...move].join(' + ')
  })
  return `append ${each.sort().join(' | ')}`
}

/** What a raw statement writes; null: it only reads. */
function labelOf(sql: string, values: readonly unknown[]): string | null {
  if (sql.includes('holdfast_append(')) return appendLabel(values[0])
  if (sql.includes('holdfast_renew(')) return 'renew'
  if (sql.includes('holdfast_write_chunks(')) {
    const chunks = JSON.parse(String(values[0])) as { i: number; f: number; t: string }[]
    return `chunks ${chunks.map(({ i, f, t }) => `${i}: ${f} to ${f + t.length}`).join(', ')}`
  }
  const write = /^\s*(UPDATE|DELETE FROM|INSERT INTO)\s+"(\w+)"/.exec(sql)
  return write === null ? null : `${write[1]} ${write[2]}`
}

// biome-ignore lint/suspicious/noExplicitAny: stands in for every method of a Prisma client
type Any = any

/** Has this statement changed anything? An append that was refused, or chunks whose claim is gone, have not. */
function hasWritten(answer: Any): boolean {
  if (typeof answer === 'number') return answer > 0
  const row = answer[0] as { answer?: { r?: { o: string }[]; error?: string }; written?: number[] } | undefined
  if (row?.answer !== undefined) return row.answer.error === undefined && row.answer.r!.some(({ o }) => o === 'ok')
  return row?.written === undefined ? answer.length > 0 : row.written.length > 0
}

/** Wraps a client or a transaction; `wrote` is told what a raw statement of a transaction writes. */
function gated(real: Any, gate: Gate, through: (label: string | null, work: () => Promise<Any>) => Promise<Any>): Any {
  return new Proxy(real, {
    get(target, name) {
      if (name === '$queryRaw' || name === '$executeRaw')
        return (query: Any, ...values: unknown[]) => {
          const isTemplate = Array.isArray(query)
          const sql: string = (isTemplate ? query : query.strings).join(' ? ')
          return through(labelOf(sql, isTemplate ? values : query.values), async () => target[name](query, ...values))
        }
      // Shared by all incarnations of a lane.
      if (name === '$disconnect') return async () => {}
      if (typeof name === 'string' && name.startsWith('$') && name !== '$transaction')
        return () => {
          throw new Error(`${name} does not go through the gate`)
        }
      const model = target[name]
      if (typeof name === 'symbol' || typeof model !== 'object' || model === null) return model
      return new Proxy(model, {
        get(delegate, method) {
          const call = delegate[method]
          if (typeof call !== 'function') return call
          if (!/^(find|count|aggregate|groupBy)/.test(String(method)))
            throw new Error(`${String(name)}.${String(method)} writes past the log`)
          return (...args: unknown[]) => gate.passing(async () => call.apply(delegate, args))
        },
      })
    },
  })
}

/** The client as an incarnation gets it. */
export function gatedDb(real: Db, gate: Gate): Db {
  const plain = gated(real, gate, (label, work) =>
    label === null ? gate.passing(work) : gate.through(label, work, hasWritten),
  )

  async function transaction(work: (tx: Tx) => Promise<unknown>, options?: object): Promise<unknown> {
    if (gate.isDead) return unanswered()
    let point: Point | null = null
    const answer = await gate.passing(() =>
      real.$transaction(async (tx) => {
        const written: string[] = []
        const inside = gated(tx, gate, async (label, statement) => {
          const answer = await gate.passing(statement)
          if (label !== null && hasWritten(answer)) written.push(label)
          return answer
        })
        const dying = gate.died.then(() => {
          throw new Died('in a transaction')
        })
        const result = await Promise.race([work(inside as Tx), dying])
        if (written.length > 0) point = gate.enter(`transaction: ${written.join(', ')}`)
        return result
      }, options),
    )
    if (point !== null) gate.leave(point)
    return gate.isDead ? unanswered() : answer
  }

  return new Proxy(plain, { get: (target, name) => (name === '$transaction' ? transaction : target[name]) }) as Db
}
