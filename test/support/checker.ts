// What must hold of a database whatever died over it, and however often: nothing acknowledged is lost, nothing is there twice that must be
// once, nothing is stuck. It looks from beside every server, at the rows, the log, and what tools have done outside.

import type { Db } from '../../src/db.ts'
import type { StoredEvent } from '../../src/events.ts'
import type { Prisma } from '../../src/generated/prisma/client.ts'
import { type Status, statusOf } from '../../src/schema/status.ts'
import { verifySession } from '../../src/verify.ts'
import { type Finding, findInLog, type StillOpen } from './checker-log.ts'

export type { Finding } from './checker-log.ts'

export interface Admitted {
  sessionId: string
  messageId: string
  text: string
  /** It was asked to run by itself. */
  isToRun?: boolean
}

export interface Facts {
  sessionIds: readonly string[]
  /** Admissions whose answer has reached a client. */
  admitted: readonly Admitted[]
  /** How often the effect of each tool call of these sessions has happened, by call id (unique among them), counted outside of every server. */
  effects: ReadonlyMap<string, number>
}

/** What must hold at any moment, also while servers run: of the log, the tables and the effects. */
export async function findInconsistencies(db: Db, facts: Facts): Promise<Finding[]> {
  const found: Finding[] = []
  const unknown = new Set(facts.effects.keys())
  for (const sessionId of facts.sessionIds) {
    const add = (kind: Finding['kind'], what: string) => found.push({ kind, sessionId, what })
    const session = await db.session.findUnique({ where: { id: sessionId } })
    const events = (await db.event.findMany({
      where: { sessionId },
      orderBy: { seq: 'asc' },
    })) as unknown as StoredEvent[]
    if (session === null) {
      if (events.length > 0) add('broken', 'there are events and no session')
      continue
    }
    if (session.seq < events.length) add('broken', `the session is at ${session.seq}, its log at ${events.length}`)
    for (const each of findInLog(events, await stillOpen(db, sessionId))) add(each.kind, each.what)
    for (const [callId, n] of effectsIn(events, facts.effects)) {
      unknown.delete(callId)
      if (n > 1) add('doubled', `the tool call ${callId} took effect ${n} times`)
      if (!events.some((each) => each.type === 'tool.started' && each.payload.callId === callId))
        add('broken', `the tool call ${callId} took effect, and the log does not say that it was started`)
    }
    const verified = await verifySession(db, sessionId)
    for (const difference of verified?.differences ?? ['it cannot be replayed']) add('broken', difference)
  }
  for (const callId of unknown)
    found.push({ kind: 'broken', sessionId: 'none', what: `the tool call ${callId} took effect, and no log knows it` })
  for (const { sessionId, messageId, text } of facts.admitted) {
    const input = await db.input.findUnique({ where: { id: messageId } })
    if (input === null) found.push({ kind: 'lost', sessionId, what: `${messageId} was acknowledged and is not there` })
    else if (input.sessionId !== sessionId || input.text !== text)
      found.push({ kind: 'broken', sessionId, what: `${messageId} is not what was acknowledged` })
  }
  return found
}

/** The effects of the calls that this log knows. */
const effectsIn = (events: readonly StoredEvent[], effects: Facts['effects']) => {
  const calls = new Set(events.flatMap((each) => (each.type === 'tool.called' ? [each.payload.callId] : [])))
  return [...effects].filter(([callId]) => calls.has(callId))
}

/** What may lack its end: whatever is claimed, set aside included, and a step that waits for a person. */
async function stillOpen(db: Db, sessionId: string): Promise<StillOpen> {
  const claim = await db.claim.findUnique({ where: { sessionId } })
  const waits = await db.interaction.findMany({
    where: { sessionId, OR: [{ state: 'OPEN' }, { wakePending: true }] },
    select: { messageId: true },
  })
  const waiting = new Set(waits.map(({ messageId }) => messageId))
  const running = (await db.message.findMany({ where: { sessionId, status: 'RUNNING' }, select: { id: true } })).map(
    ({ id }) => id,
  )
  const messages = new Set(claim === null ? running.filter((id) => waiting.has(id)) : running)
  const calls = await db.toolCall.findMany({ where: { sessionId, messageId: { in: [...messages] } } })
  return {
    executions: new Set(claim === null ? [] : [claim.executionId]),
    messages,
    calls: new Set(calls.map(({ messageId, callId }) => `${messageId}/${callId}`)),
  }
}

export interface Resting {
  sessionId: string
  status: Status
  /** Why it is parked or set aside. */
  reason: string | null
}

/** How each session stands, with the reason where a person has to act. */
export async function statusesOf(db: Db, sessionIds: readonly string[], scanMs: number): Promise<Resting[]> {
  return db.$queryRaw<Resting[]>`
    SELECT s.id AS "sessionId", (${statusOf(scanMs) as Prisma.Sql})::text AS status,
           COALESCE(s."parkedReason", (SELECT q.reason FROM "Quarantine" q
                     WHERE q."sessionId" = s.id AND q.kind = 'EXECUTION' AND q."resolvedAt" IS NULL LIMIT 1)) AS reason
      FROM "Session" s WHERE s.id = ANY (${[...sessionIds]}) ORDER BY s.id`
}

/**
 * What must hold once lease and one scan have passed since the last death, and nothing is being asked: every session is idle, waits
 * for a person, or says why it is set aside; nothing runs without an owner.
 */
export async function findStuck(db: Db, sessionIds: readonly string[], scanMs: number): Promise<Finding[]> {
  const found: Finding[] = []
  for (const { sessionId, status, reason } of await statusesOf(db, sessionIds, scanMs)) {
    const add = (what: string) => found.push({ kind: 'stuck', sessionId, what })
    if (status === 'RUNNING' || status === 'RECOVERING') add(`it is still ${status}`)
    if ((status === 'PARKED' || status === 'QUARANTINED') && !reason) add(`it is ${status} and does not say why`)
    const claim = await db.claim.findUnique({ where: { sessionId } })
    if (claim !== null && status !== 'QUARANTINED') add(`a claim in phase ${claim.phase} is left`)
    if (status === 'QUARANTINED') continue
    const open = await stillOpen(db, sessionId)
    const running = await db.message.findMany({ where: { sessionId, status: 'RUNNING' } })
    for (const { id, kind } of running)
      if (!open.messages.has(id)) add(`the ${kind} message ${id} runs, and nobody runs it`)
  }
  return found
}

/** What must hold of sessions that are idle: what was to run has run, unless a stop or a park came after it. */
export async function findUnrun(db: Db, admitted: Facts['admitted']): Promise<Finding[]> {
  const found: Finding[] = []
  for (const { sessionId, messageId, isToRun } of admitted) {
    if (!isToRun) continue
    const input = await db.input.findUnique({ where: { id: messageId } })
    if (input?.state !== 'PENDING') continue
    const type = { in: ['interrupt.requested', 'session.parked'] }
    const stops = await db.event.count({ where: { sessionId, seq: { gt: input.admittedSeq }, type } })
    if (stops === 0) found.push({ kind: 'stuck', sessionId, what: `${messageId} was to run, and does not` })
  }
  return found
}

/** What must hold at the very end, when a person has taken up whatever was set aside and has asked once more: no prompt still waits. */
export async function findUnanswered(db: Db, admitted: Facts['admitted']): Promise<Finding[]> {
  const found: Finding[] = []
  for (const { sessionId, messageId } of admitted) {
    const input = await db.input.findUnique({ where: { id: messageId } })
    if (input?.state === 'PENDING') found.push({ kind: 'stuck', sessionId, what: `${messageId} was never promoted` })
  }
  return found
}

/** One line for each finding. */
export const shown = (findings: readonly Finding[]) =>
  findings.map(({ kind, sessionId, what }) => `${kind}: ${sessionId}: ${what}`)
