// One append: what a caller asks of the door into history, how it is handed to holdfast_append, and what comes back.
// event-log.ts groups many of them; recovery passes one inside its own Prisma transaction.

import { isTransientState } from './database-fault.ts'
import { isTransient, sqlStateOf, type Tx } from './db.ts'
import { AppendRefusedError, asError, UnavailableError } from './errors.ts'
import type { ExecutionPhase, NewEvent } from './events.ts'
import { FoldError, type Folded, fold, type Round } from './fold.ts'
import { newAppendId } from './ids.ts'
import type { Row } from './project.ts'

/**
 * The check "the claim is still mine". Compared under the session's lock, on a snapshot taken after it was granted.
 * - `owner` null: whoever owns it (an interrupt moves another owner's claim)
 * - `phases`: the phases that the caller expects; the row must be in one of them
 * - `live`: unexpired by the database's clock (default true)
 * - `expiresAt`, `expired`: a takeover names the very expiry it saw, and asks that it has passed
 */
export interface Fence {
  executionId: string
  owner: string | null
  phases: readonly ExecutionPhase[] | null
  live?: boolean
  expiresAt?: Date
  expired?: boolean
}

/** What happens to the claim in the same commit. `move` and `remove` act on the fenced row and need a fence. */
export type ClaimMove =
  | { kind: 'acquire'; executionId: string; owner: string; leaseMs: number }
  | { kind: 'move'; to: ExecutionPhase; messageId?: string | null }
  | { kind: 'remove' }

export interface AppendRequest {
  sessionId: string
  /**
   * Each has its place in the log, in this order. May be empty only with a claim `move`, whose fence must then also allow the phase
   * it moves to: with no event to look for, a repeat after a lost reply has to be harmless.
   */
  events: readonly NewEvent[]
  fence?: Fence
  /** Refused (`fenced`) if any claim row exists: for settling a session that nobody owns. */
  unclaimed?: boolean
  /** The watermark the caller decided on; if it has moved the answer is `stale` and nothing is written. */
  expectedSeq?: number
  claim?: ClaimMove
  /**
   * While this is not aborted it is tried for minutes instead of a second or two: an owner has a step to lose, and its claim says how
   * long it may wait.
   */
  patience?: AbortSignal
}

/**
 * - `appended`: committed; `seq` is the first event's, `lastSeq` the last one's
 * - `exists`: session.created for an id that is taken
 * - `missing`: no such session
 * - `fenced`: the claim is not (or no longer) as the fence says; `claimed`: there is one already
 * - `stale`: expectedSeq has moved
 * - `conflict`: an id of a new input or message is taken, in whichever session
 */
export type AppendOutcome =
  | { kind: 'appended'; seq: number; lastSeq: number; at: Date; appendId: string }
  | { kind: 'exists' | 'missing' | 'fenced' | 'claimed' | 'stale' | 'conflict' }

/** A request made ready: its id, its projection, and its form for the database. */
export interface PreparedAppend {
  request: AppendRequest
  appendId: string
  folded: Folded
  /** Of its events, as text: what it will take to send and to store, about twice over. */
  bytes: number
}

/** Projects and checks a request. Throws AppendRefusedError when its own events contradict each other. */
export function prepareAppend(request: AppendRequest): PreparedAppend {
  const { claim, fence } = request
  const repeatable = claim?.kind === 'move' && fence?.phases?.includes(claim.to) === true
  if (request.events.length === 0 && !repeatable)
    throw new AppendRefusedError(request.sessionId, 'HF002', null, 'no events')
  if (claim !== undefined && claim.kind !== 'acquire' && fence === undefined)
    throw new AppendRefusedError(request.sessionId, 'HF002', null, `a claim ${claim.kind} needs a fence`)
  const json = JSON.stringify(request.events)
  if (hasUnstorableText(json))
    throw new AppendRefusedError(request.sessionId, '22P05', null, 'text with NUL or a lone surrogate cannot be stored')
  try {
    const folded = fold(request.sessionId, request.events)
    return { request, appendId: newAppendId(), folded, bytes: Buffer.byteLength(json) }
  } catch (thrown) {
    if (!(thrown instanceof FoldError)) throw thrown
    throw new AppendRefusedError(request.sessionId, 'HF001', null, thrown.message)
  }
}

/**
 * Does this JSON text hold a NUL or a lone surrogate, which jsonb refuses? Well-formed JSON.stringify writes lone surrogates as
 * escapes, so an escape that is not itself escaped is one.
 */
export function hasUnstorableText(json: string): boolean {
  for (const [, unstorable] of json.matchAll(/\\(?:u(0000|d[89a-f][0-9a-f]{2})|.)/g))
    if (unstorable !== undefined) return true
  return false
}

type MemberSlot = { m: number }

function memberOf({ request, appendId, folded }: PreparedAppend, i: number): Row {
  const { fence, claim } = request
  const member: Row = {
    i,
    s: request.sessionId,
    a: appendId,
    ev: request.events.map(({ type, payload }) => ({ t: type, p: payload })),
  }
  if (folded.create !== null) member.create = true
  if (request.expectedSeq !== undefined) member.es = request.expectedSeq
  if (request.unclaimed) member.fn = true
  if (fence !== undefined) {
    member.fx = fence.executionId
    member.fl = fence.live ?? true
    if (fence.owner !== null) member.fo = fence.owner
    if (fence.phases !== null) member.fp = fence.phases
    if (fence.expiresAt !== undefined) member.fe = fence.expiresAt.toISOString()
    if (fence.expired) member.fd = true
  }
  if (folded.newIds.length > 0) member.ids = folded.newIds
  if (Object.keys(folded.sessionSet).length > 0) member.ss = folded.sessionSet
  if (Object.keys(folded.sessionAdd).length > 0) member.sa = folded.sessionAdd
  if (claim !== undefined) {
    member.c = claim.kind
    if (claim.kind === 'acquire') Object.assign(member, { cx: claim.executionId, co: claim.owner, cl: claim.leaseMs })
    if (claim.kind === 'move') {
      member.ct = claim.to
      if (claim.messageId !== undefined) Object.assign(member, { ck: true, cm: claim.messageId })
    }
  }
  return member
}

/** The rounds of all members side by side: round n of the group holds round n of each. */
function mergeRounds(group: readonly PreparedAppend[]): Record<string, (Row & MemberSlot)[]>[] {
  const merged: Record<string, (Row & MemberSlot)[]>[] = []
  const add = (n: number, name: string, entry: Row & MemberSlot) => {
    let round = merged[n]
    if (round === undefined) merged[n] = round = {}
    const list = round[name]
    if (list === undefined) round[name] = [entry]
    else list.push(entry)
  }
  group.forEach(({ folded }, m) => {
    folded.rounds.forEach((round: Round, n) => {
      for (const { table, where, set } of round.each) add(n, `each${table}`, { m, where, set })
      for (const [table, rows] of round.insert) for (const row of rows.values()) add(n, `${table}Ins`, { m, row })
      for (const [table, rows] of round.update)
        for (const { key, set } of rows.values()) add(n, `${table}Upd`, { m, key, set })
    })
  })
  return merged
}

/** The one parameter of holdfast_append. `wait`: wait for locked sessions instead of passing over them. */
export function groupParameter(group: readonly PreparedAppend[], origin: string, wait: boolean): string {
  const creates = group.flatMap(({ folded }, m) => (folded.create === null ? [] : [{ m, row: folded.create }]))
  const ended = group.flatMap(({ folded }, m) =>
    folded.ended.map(({ messageId, index }) => ({ m, message: messageId, index })),
  )
  const continued = group.flatMap(({ folded }, m) => folded.continued.map((message) => ({ m, message })))
  return JSON.stringify({
    members: group.map(memberOf),
    rounds: mergeRounds(group),
    origin,
    wait,
    ...(creates.length > 0 ? { SessionIns: creates } : {}),
    ...(continued.length > 0 ? { continued } : {}),
    ...(ended.length > 0 ? { ended } : {}),
  })
}

export interface GroupAnswer {
  now?: string
  r?: {
    i: number
    o: 'ok' | 'locked' | 'missing' | 'exists' | 'fenced' | 'claimed' | 'stale' | 'conflict'
    seq: number
  }[]
  error?: string
  message?: string
  constraint?: string
}

/**
 * Calls the append function once. A violated rule comes back as a value, so that the connection is not dropped for it; so does a
 * statement that the server refuses before the function begins, as one that is too large. Throws where no answer says what became of it.
 */
export async function callAppend(db: Tx, parameter: string): Promise<GroupAnswer> {
  try {
    const rows = await db.$queryRaw<
      { answer: GroupAnswer }[]
    >`SELECT holdfast_append(${parameter}::text::jsonb) AS answer`
    return rows[0]!.answer
  } catch (thrown) {
    const error = sqlStateOf(thrown)
    if (error === null || isTransient(thrown)) throw thrown
    return { error, message: asError(thrown).message }
  }
}

/** The outcome of one member of an answered group; `locked` means: not decided yet. */
export function outcomeOf(
  prepared: PreparedAppend,
  answer: GroupAnswer,
  i: number,
): AppendOutcome | { kind: 'locked' } {
  const result = answer.r![i]!
  if (result.o !== 'ok') return { kind: result.o }
  const seq = result.seq + 1
  const lastSeq = result.seq + prepared.request.events.length
  return { kind: 'appended', seq, lastSeq, at: new Date(answer.now!), appendId: prepared.appendId }
}

/**
 * Appends inside a caller's Prisma transaction (recovery, design section 9): same function, same rules, committed with the rest.
 * Throws AppendRefusedError on a violated rule, and UnavailableError where the database cannot write now; the caller must then let its
 * transaction fail. `appendId`: where it has to know its own.
 */
export async function appendIn(
  tx: Tx,
  request: AppendRequest,
  origin = '',
  appendId = newAppendId(),
): Promise<AppendOutcome> {
  const [outcome] = await callIn(tx, [{ ...prepareAppend(request), appendId }], origin, true)
  // Waiting for the lock leaves no "locked": a session that is there has been locked.
  return outcome!.kind === 'locked' ? { kind: 'missing' } : outcome!
}

/**
 * Several appends, at most one per session, in the same way and in one statement. It waits for nobody: a session whose lock is held is
 * passed over (`locked`). A rule that one of them violates refuses them all, with AppendRefusedError.
 */
export const appendGroupIn = (tx: Tx, requests: readonly AppendRequest[], origin = '') =>
  callIn(tx, requests.map(prepareAppend), origin, false)

async function callIn(tx: Tx, prepared: readonly PreparedAppend[], origin: string, wait: boolean) {
  const answer = await callAppend(tx, groupParameter(prepared, origin, wait))
  if (answer.error !== undefined) {
    const [first, second] = prepared
    const what = second === undefined ? first!.request.sessionId : `${prepared.length} sessions`
    const refused = new AppendRefusedError(what, answer.error, answer.constraint || null, answer.message ?? '')
    throw isTransientState(answer.error) ? new UnavailableError(`append to ${what}`, { cause: refused }) : refused
  }
  return prepared.map((each, i) => outcomeOf(each, answer, i))
}
