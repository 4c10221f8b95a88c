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
    file: 'src/activity-poll.ts',
    find: 'row.tenant === tenant && row.ms >= since + ahead',
    replace: 'HIT(row.ms) >= since + ahead',
    keeps: 'a session of another tenant out of an activity stream',
    tests: [['promise-predicates.test.ts', 'PROMISE-261']],
  },
  {
    id: 'activity-poll-tenants-read',
    file: 'src/activity-poll.ts',
    find: `WHERE tenant = ANY (\${tenants})`,
    replace: `WHERE \${HIT(tenants)}::text[] IS NOT NULL`,
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
    find: 'where: { continuationMessageId: messageId },',
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

export const proofGuards: readonly Guard[] = [...whose, ...siblings]
