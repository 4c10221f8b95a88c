// The guards of locks and waits: who lives, and what a process that stands still may keep from others.

import type { Guard } from './mutant.ts'

const liveness = 'promise-liveness.test.ts'
const locks = 'promise-locks.test.ts'
const renewal = 'prisma/migrations/20261130030000_renew_passes_over_locked/migration.sql'

export const lockGuards: readonly Guard[] = [
  {
    id: 'liveness-ghost',
    file: 'src/recovery/liveness.ts',
    find: 'const ghosts = await endGhosts(next, owner)',
    replace: 'const ghosts = HIT(0)',
    keeps: 'a process from waiting behind a session of its own that nobody is at the other end of',
    tests: [[liveness, 'PROMISE-020']],
  },
  {
    id: 'liveness-ghost-own',
    file: 'src/recovery/liveness.ts',
    find: 'WHERE a.application_name = $1 AND',
    replace: `WHERE \${HIT('')} $1::text IS NOT NULL AND`,
    keeps: 'a process from ending the liveness sessions of others',
    tests: [['recovery-liveness.test.ts', 'CLAIM-28']],
  },
  {
    id: 'ready-liveness',
    file: 'src/http/health.ts',
    find: 'if (reason !== null || (await leases.whenAlive(AbortSignal.timeout(livenessMsMax)))) return reason',
    replace: 'if (HIT(true)) return reason',
    keeps: 'a process that runs nothing from being sent requests',
    tests: [[liveness, 'PROMISE-022']],
  },
  {
    id: 'renew-expired',
    file: renewal,
    find: 'c.owner = p_owner AND c."expiresAt" > v_now',
    replace: 'c.owner = p_owner AND HIT(true)',
    keeps: 'a lease that has run out from coming back',
    tests: [['claim.test.ts', 'CLAIM-05']],
  },
  {
    id: 'renew-passes-over',
    file: renewal,
    find: 'FOR NO KEY UPDATE SKIP LOCKED) l;',
    replace: 'AND HIT(true) FOR NO KEY UPDATE) l;',
    keeps: 'one claim that is locked from costing all others of its owner their leases',
    tests: [[locks, 'PROMISE-033']],
  },
  {
    id: 'renewals-own-connections',
    file: 'src/runner/create-core.ts',
    find: 'const renewals = options.db ?? connect(url, 2, undefined, 4 * config.renewMs)',
    replace: 'const renewals = HIT(db)',
    keeps: 'whoever takes all connections of a process from taking its leases',
    tests: [[locks, 'PROMISE-034']],
  },
  {
    id: 'renewal-looks-apart',
    file: 'src/runner/leases.ts',
    find: 'unanswered.push(hold)',
    replace: 'HIT(await examine(hold))',
    keeps: 'one claim that cannot be read from leaving the others unproven',
    tests: [[locks, 'PROMISE-080']],
  },
  {
    id: 'transaction-stands-still',
    file: 'src/bounded-session.ts',
    find: `set_config('idle_in_transaction_session_timeout', \${ms(1 / 3)}, false),`,
    replace: `set_config('idle_in_transaction_session_timeout', '\${HIT(0)}', false),`,
    keeps: 'a process that stands still inside of a transaction from keeping its locks',
    tests: [[locks, 'PROMISE-030']],
  },
  {
    id: 'lock-places',
    file: 'src/append-queue.ts',
    find: 'if (lockWaiters >= lockWaitersMax) return tryLater(entry)',
    replace: 'HIT(entry)',
    keeps: 'appends that wait for locks from taking all connections',
    tests: [[locks, 'PROMISE-031']],
  },
  {
    id: 'locked-for-long',
    file: 'src/append-queue.ts',
    find: 'if (performance.now() - locked.since >= lockedMs)',
    replace: 'if (HIT(false))',
    keeps: 'a caller from waiting for a locked session without an end',
    tests: [[locks, 'PROMISE-032']],
  },
  {
    id: 'liveness-all-back',
    file: 'src/recovery/liveness.ts',
    find: 'const away = free.get(other)?.isBack ? 0 : allBackAt - sentAt',
    replace: 'const away = HIT(0)',
    keeps: 'an owner that comes back later than its neighbour, after the database was away, from losing its claims',
    tests: [[liveness, 'PROMISE-130']],
  },
  {
    id: 'wire-bound-again',
    file: 'src/bounded-socket.ts',
    find: 'if (socket.bytesRead !== seen) return void bound()',
    replace: 'if (socket.bytesRead !== seen) return void HIT(0)',
    keeps: 'a wire from waiting for ever once it was forgiven a silence',
    tests: [['promise-wire.test.ts', 'PROMISE-120']],
  },
  {
    id: 'lease-in-doubt',
    file: 'src/runner/leases.ts',
    find: 'if (!isInDoubt(hold)) return true',
    replace: 'return HIT(true)',
    keeps: 'a process whose machine slept from starting what has been taken over since',
    tests: [['promise-standstill.test.ts', 'PROMISE-081']],
  },
  {
    id: 'liveness-in-doubt',
    file: 'src/recovery/liveness.ts',
    find: 'graceMs * 0.75 && provenAt > standstill.noticedAt()',
    replace: 'graceMs * 0.75 && HIT(true)',
    keeps: 'a process whose machine slept from believing in a lock that may have been freed since',
    tests: [['promise-standstill.test.ts', 'PROMISE-083']],
  },
]
