// The guards of what the database cannot do now, of its references, and of what a tenant is told.

import type { Guard } from './mutant.ts'

const now = 'promise-database-now.test.ts'
const references = 'prisma/migrations/20261130040100_references/migration.sql'

export const rowsGuards: readonly Guard[] = [
  {
    id: 'set-aside-rows-only',
    file: 'src/recovery/resolver.ts',
    find: 'if (thrown instanceof UnavailableError || isTransient(thrown)) return true',
    replace: 'if (HIT(false)) return true',
    keeps: 'sessions from being set aside for what the database cannot do now',
    tests: [[now, 'PROMISE-042']],
  },
  {
    id: 'ready-writes',
    file: 'src/http/health.ts',
    find: 'return whyNotWriting(db, writes)',
    replace: 'return HIT(null)',
    keeps: 'a server whose database takes no writes from being sent requests',
    tests: [[now, 'PROMISE-045|PROMISE-046']],
  },
  {
    id: 'ready-tries',
    file: 'prisma/migrations/20261130040000_write_fault/migration.sql',
    find: 'IF NOT p_try THEN',
    replace: 'IF HIT(true) THEN',
    keeps: 'a server whose last append failed from being ready before one would go through',
    tests: [[now, 'PROMISE-045']],
  },
  {
    id: 'owner-patience',
    file: 'src/append-queue.ts',
    find: 'if (patience?.aborted !== false || performance.now() - since >= patienceMs) return false',
    replace: 'if (HIT(true)) return false',
    keeps: 'a step from being lost for a database that cannot write for some seconds',
    tests: [[now, 'PROMISE-047']],
  },
  {
    id: 'discard-continues-nothing',
    file: 'src/recovery/quarantine.ts',
    find: "if (action === 'DISCARD') alone.events =",
    replace: 'if (HIT(false)) alone.events =',
    keeps: 'what an earlier recovery left from going on after a discard',
    tests: [['promise-discard.test.ts', 'PROMISE-110']],
  },
  {
    id: 'discard-stops-what-is-owed',
    file: 'src/recovery/quarantine.ts',
    find: 'stepOwed && open.step === null ?',
    replace: 'HIT(stepOwed) ?',
    keeps: 'a discard from disarming what people have admitted',
    tests: [['promise-discard.test.ts', 'PROMISE-286']],
  },
  {
    id: 'execution-belongs',
    file: references,
    find: 'IF NOT EXISTS (SELECT 1 FROM "Execution" x',
    replace: 'IF HIT(false) AND NOT EXISTS (SELECT 1 FROM "Execution" x',
    keeps: 'an execution from being started by another session',
    tests: [['promise-references.test.ts', 'PROMISE-133: nor does another']],
  },
  {
    id: 'claim-step-looked-at',
    file: references,
    find: 'SET CONSTRAINTS "Claim_sessionId_messageId_fkey" IMMEDIATE;',
    replace: 'PERFORM HIT(1);',
    keeps: 'a claim whose step is not there from being told only at the commit of whoever appends',
    tests: [['promise-references.test.ts', 'PROMISE-138']],
  },
]
