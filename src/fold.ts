// Folds the changes of one append into rounds that the append function can apply set-based: within a round each row is touched
// once (two updates of one row in one statement would lose one silently). A sweep over live rows (`each`) is a barrier, since what
// it does depends on what came before it.

import type { NewEvent } from './events.ts'
import { type Change, project, type Row, type RowTable, type SessionCounter } from './project.ts'
import { sumOfTokens } from './tokens.ts'

/** Stands for "the time of this append" until the database knows it. */
export const nowPlaceholder = '-infinity'

/** Stands for "the n-th event of this append" (0-based) until the database knows its sequence number. */
export const seqPlaceholder = (ordinal: number) => -(ordinal + 1)

interface KeyedChange {
  key: Row
  set: Row
}

export interface Round {
  each: { table: 'Input' | 'Recovery' | 'Interaction'; where: Row; set: Row }[]
  insert: Map<RowTable, Map<string, Row>>
  update: Map<RowTable, Map<string, KeyedChange>>
}

export interface Folded {
  create: Row | null
  sessionSet: Row
  sessionAdd: Partial<Record<SessionCounter, number>>
  rounds: Round[]
  /** Steps that get a part or a tool call and began in an earlier append: each must still run. */
  continued: string[]
  /** Parts whose live text ends with this append; index null: all of the message. */
  ended: { messageId: string; index: number | null }[]
  /** Ids that enter the tables with this append and must be new among all inputs and messages. */
  newIds: string[]
}

/** A change that the rows of the same append already rule out, such as a second terminal. */
export class FoldError extends Error {
  override name = 'FoldError'
}

/** What tells the rows of one session apart, table by table. */
export const keyColumns: Record<RowTable, readonly string[]> = {
  Input: ['id'],
  Message: ['id'],
  Part: ['messageId', 'index'],
  ToolCall: ['messageId', 'callId'],
  Interaction: ['id'],
  Recovery: ['id'],
  Quarantine: ['id'],
}

/** The key of a row within its session, as one string. */
export const keyOf = (table: RowTable, row: Row) =>
  keyColumns[table].map((column) => String(row[column])).join('\u0001')

/** May this row still be updated? The same rule stands in holdfast_append's WHERE clauses. Columns not given count as open. */
export function isOpen(table: RowTable, row: Row): boolean {
  switch (table) {
    case 'Input':
      return row.state === undefined || row.state === 'PENDING'
    case 'Message':
      return row.status === undefined || row.status === 'RUNNING'
    case 'Part':
      return !row.complete
    case 'ToolCall':
      return row.settledAt === undefined || row.settledAt === null
    case 'Interaction':
      return row.state === undefined || row.state === 'OPEN'
    case 'Quarantine':
      return row.resolvedAt === undefined || row.resolvedAt === null
    case 'Recovery':
      return false
  }
}

const emptyRound = (): Round => ({ each: [], insert: new Map(), update: new Map() })

const touched = (round: Round, table: RowTable) =>
  round.insert.has(table) || round.update.has(table) || round.each.some((sweep) => sweep.table === table)

/** Rows that belong to a step and may enter only while it runs. */
const hangsOn = (table: RowTable) => table === 'Part' || table === 'ToolCall'

/** The same append has ended the step already: what the database holds of it cannot tell. */
function refuseBehindEnd(rounds: Round[], table: RowTable, row: Row): void {
  const key = keyOf('Message', { id: row.messageId })
  for (const { insert, update } of rounds) {
    const step = update.get('Message')?.get(key)?.set ?? insert.get('Message')?.get(key)
    if (step !== undefined && !isOpen('Message', step)) throw new FoldError(`${table} enters a settled step`)
  }
}

/** Steps that rows of this append enter, but for those that begin in it. */
function continuedSteps(rounds: Round[]): string[] {
  const begun = new Set(rounds.flatMap(({ insert }) => [...(insert.get('Message')?.keys() ?? [])]))
  const entered = rounds.flatMap(({ insert }) =>
    (['Part', 'ToolCall'] as const).flatMap((table) =>
      [...(insert.get(table)?.values() ?? [])].map(({ messageId }) => String(messageId)),
    ),
  )
  return [...new Set(entered)].filter((id) => !begun.has(id))
}

function addTo(rounds: Round[], change: Extract<Change, { op: 'insert' | 'update' | 'each' }>): void {
  let round = rounds.at(-1)
  if (round === undefined || (change.op === 'each' && touched(round, change.table))) {
    round = emptyRound()
    rounds.push(round)
  }
  if (change.op === 'each') {
    round.each.push({ table: change.table, where: change.where, set: change.set })
    return
  }
  const key = keyOf(change.table, change.op === 'insert' ? change.row : change.key)
  if (change.op === 'insert' && hangsOn(change.table)) refuseBehindEnd(rounds, change.table, change.row)
  const inserts = round.insert.get(change.table)
  const inserted = inserts?.get(key)
  if (change.op === 'insert') {
    if (inserted !== undefined) throw new FoldError(`${change.table} is inserted twice`)
    if (inserts === undefined) round.insert.set(change.table, new Map([[key, change.row]]))
    else inserts.set(key, change.row)
    return
  }
  if (inserted !== undefined) {
    if (!isOpen(change.table, inserted)) throw new FoldError(`${change.table} is settled twice`)
    Object.assign(inserted, change.set)
    return
  }
  const updates = round.update.get(change.table) ?? new Map<string, KeyedChange>()
  round.update.set(change.table, updates)
  const updated = updates.get(key)
  if (updated === undefined) {
    updates.set(key, { key: change.key, set: { ...change.set } })
    return
  }
  if (!isOpen(change.table, updated.set)) throw new FoldError(`${change.table} is settled twice`)
  if (change.table === 'ToolCall' && 'startedAt' in change.set && 'startedAt' in updated.set)
    throw new FoldError('ToolCall is started twice')
  Object.assign(updated.set, change.set)
}

function addToSession(folded: Folded, change: Extract<Change, { op: 'session' }>): void {
  for (const [column, value] of Object.entries(change.set ?? {})) {
    folded.sessionSet[column] = value
    delete folded.sessionAdd[column as SessionCounter]
  }
  for (const [column, value] of Object.entries(change.add ?? {}) as [SessionCounter, number][])
    folded.sessionAdd[column] = sumOfTokens(folded.sessionAdd[column] ?? 0, value)
}

function endedBy(event: NewEvent): Folded['ended'] {
  switch (event.type) {
    case 'text.ended':
    case 'reasoning.ended':
    case 'tool.called':
      return [{ messageId: event.payload.messageId, index: event.payload.index }]
    case 'step.ended':
    case 'step.failed':
    case 'step.interrupted':
      return [{ messageId: event.payload.messageId, index: null }]
    default:
      return []
  }
}

function newIdsOf(event: NewEvent): string[] {
  switch (event.type) {
    case 'prompt.admitted':
    case 'step.started':
    case 'synthetic.appended':
      return [event.payload.messageId]
    case 'compaction.started':
      return event.payload.automatic ? [event.payload.messageId] : []
    case 'step.recovered':
      return [event.payload.continuationMessageId]
    default:
      return []
  }
}

/** The rounds of one append, with placeholders for its time and sequence numbers. Throws FoldError. */
export function fold(sessionId: string, events: readonly NewEvent[]): Folded {
  const folded: Folded = {
    create: null,
    sessionSet: {},
    sessionAdd: {},
    rounds: [],
    continued: [],
    ended: [],
    newIds: [],
  }
  events.forEach((event, ordinal) => {
    folded.ended.push(...endedBy(event))
    folded.newIds.push(...newIdsOf(event))
    for (const change of project({ ...event, sessionId, seq: seqPlaceholder(ordinal), at: nowPlaceholder })) {
      if (change.op === 'create') folded.create = change.row
      else if (change.op === 'session') addToSession(folded, change)
      else addTo(folded.rounds, change)
    }
  })
  folded.continued = continuedSteps(folded.rounds)
  return folded
}
