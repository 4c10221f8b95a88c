// Replays a log in memory: the same changes as the append function applies, in the same order, under the same rules.
// verifySession compares its result with the tables; a rebuild writes it back.

import { AppendRefusedError } from './errors.ts'
import type { StoredEvent } from './events.ts'
import { isOpen, keyOf } from './fold.ts'
import { type Change, project, type Row, type RowTable, type SessionCounter } from './project.ts'
import { sumOfTokens } from './tokens.ts'

export interface Replayed {
  session: Row | null
  tables: Record<RowTable, Map<string, Row>>
}

const matches = (row: Row, where: Row) => Object.entries(where).every(([column, value]) => row[column] === value)

const isLive = (table: 'Input' | 'Recovery' | 'Interaction', row: Row) =>
  table === 'Input' ? row.state === 'PENDING' : row.wakePending === true

const refuse = (event: StoredEvent, rule: string): never => {
  throw new AppendRefusedError(event.sessionId, 'HF001', null, `replay of event ${event.seq} (${event.type}): ${rule}`)
}

function apply(state: Replayed, event: StoredEvent, change: Change): void {
  if (change.op === 'create') {
    state.session = { ...change.row }
    return
  }
  if (state.session === null) refuse(event, 'the log does not begin with session.created')
  if (change.op === 'session') {
    Object.assign(state.session!, change.set)
    for (const [column, value] of Object.entries(change.add ?? {}) as [SessionCounter, number][])
      state.session![column] = sumOfTokens(state.session![column] as number, value)
    return
  }
  const rows = state.tables[change.table]
  if (change.op === 'each') {
    for (const row of rows.values())
      if (isLive(change.table, row) && matches(row, change.where)) Object.assign(row, change.set)
    return
  }
  const key = keyOf(change.table, change.op === 'insert' ? change.row : change.key)
  const row = rows.get(key)
  if (change.op === 'insert') {
    if (row !== undefined) refuse(event, `${change.table} exists already`)
    if (change.table === 'Part' || change.table === 'ToolCall') {
      const step = state.tables.Message.get(keyOf('Message', { id: change.row.messageId }))
      if (step?.kind !== 'ASSISTANT' || !isOpen('Message', step))
        refuse(event, `the step of the ${change.table} is not running`)
    }
    rows.set(key, { ...change.row })
    return
  }
  if (row === undefined || !isOpen(change.table, row)) refuse(event, `${change.table} is not open`)
  Object.assign(row!, change.set)
}

export const emptyReplay = (): Replayed => ({
  session: null,
  tables: {
    Input: new Map(),
    Message: new Map(),
    Part: new Map(),
    ToolCall: new Map(),
    Interaction: new Map(),
    Recovery: new Map(),
    Quarantine: new Map(),
  },
})

/** Applies the next event of the log. Events must come in order of seq; throws AppendRefusedError where the live append would have. */
export function replayEvent(state: Replayed, event: StoredEvent): void {
  const at = event.at.toISOString()
  for (const change of project({ ...event, at })) apply(state, event, change)
  if (state.session !== null) Object.assign(state.session, { seq: event.seq, updatedAt: at })
}
