// Conditions that say whose row it is, and which of several siblings: without one of them everything still works for a session, a tenant
// or an owner that is alone.

import type { Guard } from './mutant.ts'

const whose: Guard[] = [
  {
    id: 'interrupted-of-session',
    file: 'src/runner/interrupt.ts',
    find: `SELECT 1 FROM "Event" WHERE "sessionId" = \${sessionId} AND type`,
    replace: `SELECT 1 FROM "Event" WHERE \${HIT(sessionId)} <> '' AND type`,
    keeps: 'an interrupt from telling what happened in another session',
    tests: [['promise-predicates.test.ts', 'PROMISE-260']],
  },
  {
    id: 'activity-poll-tenant',
    file: 'src/activity-hub.ts',
    find: 'const tenant = tenants.get(name)\n    if',
    replace: 'const tenant = tenants.get(HIT([...tenants.keys()])[0]!)\n    if',
    keeps: 'a session of another tenant out of an activity stream',
    tests: [['promise-predicates.test.ts', 'PROMISE-261']],
  },
  {
    id: 'activity-poll-tenants-read',
    file: 'src/activity-poll.ts',
    find: `WHERE tenant = ANY (\${tenants()})`,
    replace: `WHERE \${HIT(tenants())}::text[] IS NOT NULL`,
    keeps: 'a busy tenant to whom nobody listens from filling the page of the poll',
    tests: [['promise-predicates.test.ts', 'PROMISE-262']],
  },
]

const siblings: Guard[] = [
  {
    id: 'disarm-own-call',
    file: 'src/project.ts',
    find: 'where: { messageId: payload.messageId, callId: payload.callId },\n  set: { wakePending: false },',
    replace: 'where: { messageId: HIT(payload.messageId) },\n  set: { wakePending: false },',
    keeps: 'a tool from disarming the decisions on its siblings',
    tests: [['promise-predicates.test.ts', 'PROMISE-263']],
  },
  {
    id: 'settle-own-recovery',
    file: 'src/project.ts',
    find: 'where: { continuationMessageId },',
    replace: 'where: HIT({}),',
    keeps: 'a promoted continuation from settling the recovery of another execution',
    tests: [['promise-predicates.test.ts', 'PROMISE-264']],
  },
  {
    id: 'recovery-set-aside-alone',
    file: 'src/recovery/passes.ts',
    find: `OR q.kind = 'RECOVERY' AND q."executionId" = r."executionId"`,
    replace: `OR q.kind = 'RECOVERY' AND \${HIT(true)}`,
    keeps: 'a recovery that was set aside from hiding those of other executions',
    tests: [['promise-predicates.test.ts', 'PROMISE-265']],
  },
  {
    id: 'expire-not-cancelling',
    file: 'src/recovery/passes.ts',
    find: `AND NOT EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = n."sessionId" AND c.phase = 'CANCELLING')`,
    replace: `AND \${HIT(true)}`,
    keeps: 'a question of a session that is being cleaned up from expiring',
    tests: [['promise-predicates.test.ts', 'PROMISE-266']],
  },
]

const others: Guard[] = [
  {
    id: 'recovery-hidden-by-own',
    file: 'src/recovery/passes.ts',
    find: `WHERE q."sessionId" = r."sessionId"\n                        AND (q.kind`,
    replace: `WHERE \${HIT(true)}\n                        AND (q.kind`,
    keeps: 'a session that is set aside from hiding the recoveries of all others',
    tests: [['promise-passes.test.ts', 'PROMISE-283']],
  },
  {
    id: 'expire-cancelling-own',
    file: 'src/recovery/passes.ts',
    find: `WHERE c."sessionId" = n."sessionId" AND c.phase = 'CANCELLING'`,
    replace: `WHERE \${HIT(true)} AND c.phase = 'CANCELLING'`,
    keeps: 'one cleanup from keeping the questions of all sessions open',
    tests: [['promise-passes.test.ts', 'PROMISE-283']],
  },
  {
    id: 'owed-open-questions-only',
    file: 'src/recovery/passes.ts',
    find: `WHERE n."sessionId" = s.id AND n.state = 'OPEN')`,
    replace: `WHERE n."sessionId" = s.id AND \${HIT(true)})`,
    keeps: 'a session that asked once, and waits for nobody any more, from being found by no scan',
    tests: [['promise-passes.test.ts', 'PROMISE-287']],
  },
  {
    id: 'interrupt-set-aside-own',
    file: 'src/runner/interrupt.ts',
    find: "where: { sessionId, executionId, kind: 'EXECUTION', resolvedAt: null }",
    replace: "where: { sessionId: HIT(sessionId), kind: 'EXECUTION', resolvedAt: null }",
    keeps: 'an owner that lives from being taken for one that was set aside',
    tests: [['promise-predicates.test.ts', 'PROMISE-288']],
  },
  {
    id: 'decided-arms',
    file: 'src/project.ts',
    find: 'const wakePending = decided.has(state) && !stops',
    replace: 'const wakePending = HIT(!stops)',
    keeps: 'a question that was cancelled from arming its session',
    tests: [['promise-predicates.test.ts', 'PROMISE-289']],
  },
  {
    id: 'remove-claim-lock',
    file: 'src/recovery/takeover.ts',
    find: `export async function removeClaim(tx: Tx, sessionId: string, { claim }: Evidence, right: Right): Promise<boolean> {
  await tx.$queryRaw\`SELECT id FROM "Session" WHERE id = \${sessionId}`,
    replace: `export async function removeClaim(tx: Tx, sessionId: string, { claim }: Evidence, right: Right): Promise<boolean> {
  await tx.$queryRaw\`SELECT id FROM "Session" WHERE id = \${HIT('')}`,
    keeps: 'a claim from being removed beside an append to its session',
    tests: [['recovery-guards.test.ts', 'PROMISE-284']],
  },
]

const ended: Guard[] = [
  {
    id: 'failed-for-good',
    file: 'src/recovery/resolution.ts',
    find: "(phase === 'CANCELLED' || isFailedForGood)",
    replace: "(phase === 'CANCELLED' || HIT(false))",
    keeps: 'a step that failed for good from being gone on with after a death',
    tests: [['recovery-guards.test.ts', 'PROMISE-285']],
  },
]

const proven: Guard[] = [
  {
    id: 'examine-live',
    file: 'src/runner/leases.ts',
    find: 'claim.owner !== owner || !claim.live)',
    replace: 'HIT(claim.owner !== owner))',
    keeps: 'an owner whose fence failed for its lease from going on',
    tests: [['promise-leases.test.ts', 'PROMISE-267']],
  },
  {
    id: 'lease-from-send',
    file: 'src/runner/leases.ts',
    find: 'holds.get(hold.sessionId)!.provenAt = sentAt',
    replace: 'holds.get(hold.sessionId)!.provenAt = HIT(monotonic())',
    keeps: 'an owner whose renewal was answered late from counting on more than its lease',
    tests: [['promise-leases.test.ts', 'PROMISE-268']],
  },
  {
    id: 'lease-while-closing',
    file: 'src/runner/leases.ts',
    find: 'if (claim !== undefined) holds',
    replace: 'if (claim !== undefined && !HIT(hold).closing) holds',
    keeps: 'a claim that is given back during an outage from counting as lost though it is renewed',
    tests: [['promise-leases.test.ts', 'PROMISE-067']],
  },
  {
    id: 'liveness-from-send',
    file: 'src/recovery/liveness.ts',
    find: `await ask(live, 'SELECT 1')
        if (client !== live) return
        prove(sentAt)`,
    replace: `await ask(live, 'SELECT 1')
        if (client !== live) return
        prove(HIT(now()))`,
    keeps: 'a late answer from proving a lock that others may have seen free since it was asked for',
    tests: [['promise-leases.test.ts', 'PROMISE-269']],
  },
  {
    id: 'renew-named',
    file: 'prisma/migrations/20261130030000_renew_passes_over_locked/migration.sql',
    find: `WHERE c."executionId" = ANY (p_executions) AND c.owner = p_owner
       FOR NO KEY UPDATE SKIP LOCKED) l;
  v_now := holdfast_now();
  RETURN QUERY
    UPDATE "Claim" c SET "expiresAt" = v_now + make_interval(secs => p_lease_ms / 1000.0)
     WHERE c."sessionId" = ANY (v_free)
       AND c."executionId" = ANY (p_executions) AND`,
    replace: `WHERE HIT(true) AND c.owner = p_owner
       FOR NO KEY UPDATE SKIP LOCKED) l;
  v_now := holdfast_now();
  RETURN QUERY
    UPDATE "Claim" c SET "expiresAt" = v_now + make_interval(secs => p_lease_ms / 1000.0)
     WHERE c."sessionId" = ANY (v_free)
       AND`,
    keeps: 'a claim that its owner has given up from being renewed for ever',
    tests: [['promise-leases.test.ts', 'PROMISE-271']],
  },
]

const doors: Guard[] = [
  {
    id: 'wire-forgives-own-stall',
    file: 'src/bounded-socket.ts',
    find: 'if (socket.bytesRead !== seen)',
    replace: 'if (HIT(false))',
    keeps: 'a process that stood still itself from giving its wires up',
    tests: [['promise-leases.test.ts', 'PROMISE-270']],
  },
  {
    id: 'decide-kind',
    file: 'src/runner/decide.ts',
    find: "if (row.kind !== 'APPROVAL') return wrongKind(row)",
    replace: 'HIT(row)',
    keeps: 'a question from being approved',
    tests: [['promise-predicates.test.ts', 'PROMISE-279']],
  },
  {
    id: 'watermark-open-parts',
    file: 'src/stream-watermark.ts',
    find: 'WHERE p."sessionId" = s.id AND NOT p.complete',
    replace: `WHERE p."sessionId" = s.id AND \${HIT(true)}`,
    keeps: 'a part that has ended from being taken for open, and asked for until its step ends',
    tests: [['promise-listeners.test.ts', 'STREAM-27']],
  },
  {
    id: 'interrupt-again-seq',
    file: 'src/runner/interrupt.ts',
    find: `fence: { executionId, owner: null, phases: ['CANCELLING'] },
      expectedSeq: work.seq,`,
    replace: `fence: { executionId, owner: null, phases: ['CANCELLING'] },
      ...HIT({}),`,
    keeps: 'two interrupts during one cleanup from being logged for the same work',
    tests: [['promise-predicates.test.ts', 'PROMISE-275']],
  },
  {
    id: 'door-tool-session',
    file: 'prisma/migrations/20261129000000_ground/migration.sql',
    find: `WHERE t."sessionId" = u.s AND t."messageId" = u.message AND t."callId" = u.call AND t."settledAt" IS NULL`,
    replace: `WHERE HIT(true) AND t."messageId" = u.message AND t."callId" = u.call AND t."settledAt" IS NULL`,
    keeps: 'an event of one session from settling a tool call of another',
    tests: [['promise-predicates.test.ts', 'PROMISE-272']],
  },
  {
    id: 'listen-stop-own',
    file: 'src/live-text.ts',
    find: 'if (ofSession.size === 0 && heards.get(sessionId) === ofSession)',
    replace: 'if (HIT(ofSession.size === 0))',
    keeps: 'who stops listening twice from cutting off who began in between',
    tests: [['promise-listeners.test.ts', 'PROMISE-277']],
  },
]

export const proofGuards: readonly Guard[] = [...whose, ...siblings, ...others, ...ended, ...proven, ...doors]
