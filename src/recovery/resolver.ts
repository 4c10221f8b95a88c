// The scans that make sessions move again (design section 9): at boot and periodically, one at a time per process. Every pass works on
// durable rows and only redrives, so a scan that dies half way, or runs twice, changes nothing about the outcome.
//
//   claims of dead owners, expired claims → takeover     armed recoveries, owed sessions → wake     expired interactions → EXPIRED

import { isOfTheRows } from '../database-fault.ts'
import type { Tx } from '../db.ts'
import { isTransient, sqlStateOf } from '../db.ts'
import { AppendRefusedError, asError, UnavailableError } from '../errors.ts'
import { type Core, wake } from '../runner/core.ts'
import { told } from '../told.ts'
import { root, startSpan } from '../tracing.ts'
import type { Liveness } from './liveness.ts'
import * as passes from './passes.ts'
import { expireInteraction, recoveryFault, settleAsReplayed } from './settle-rows.ts'
import { type Right, setAside, takeOver } from './takeover.ts'
import { takeOverTogether } from './takeover-together.ts'

/** How many rows of each kind a scan dealt with. */
export interface ScanReport {
  /** Claims taken over, with a continuation or without, or removed because their execution had its end. */
  taken: number
  quarantined: number
  woken: number
  /** Recovery rows brought to what the log says. */
  settled: number
  expired: number
  /** Rows that could not be dealt with now; each has been logged. */
  failed: number
}

export interface Recovery {
  /** Begins the first scan as soon as this process holds its liveness lock, and one every `scanMs` from then on. Waits for neither. */
  start(): Promise<void>
  /** One whole scan now. While one runs it is the next; those who ask meanwhile share it. Never throws. */
  scan(): Promise<ScanReport>
  /** No further scan; resolves when the one under way has stopped at its next row. */
  stop(): Promise<void>
}

/** `liveness` null: claims are taken over by their leases alone. */
export function createRecovery(core: Core, liveness: Liveness | null): Recovery {
  const stopping = new AbortController()
  let running: Promise<ScanReport> | null = null
  let queued: Promise<ScanReport> | null = null
  let cancelTimer = () => {}
  let cancelLook = () => {}

  /** One scan as a span, if it found anything: most find nothing, and nobody wants to read of those. */
  async function runScan(): Promise<ScanReport> {
    const span = startSpan('recovery', { parent: root })
    try {
      const report = await span.within(runPasses)
      const counts = Object.entries(report) as [keyof ScanReport, number][]
      if (counts.every(([, count]) => count === 0)) span.drop()
      span.set(Object.fromEntries(counts.map(([what, count]) => [`holdfast.recovery.${what}`, count])))
      return report
    } finally {
      span.end()
    }
  }

  async function runPasses(): Promise<ScanReport> {
    const report: ScanReport = { taken: 0, quarantined: 0, woken: 0, settled: 0, expired: 0, failed: 0 }
    const startedAt = performance.now()
    const woken = new Set<string>()
    const isStopped = () => stopping.signal.aborted
    const scan = { core, report, woken, isStopped }
    const pass = async (name: string, run: () => Promise<void>) => {
      if (isStopped()) return
      try {
        await run()
      } catch (thrown) {
        report.failed++
        if (!isStopped())
          core.log.error({ err: asError(thrown), pass: name }, 'a recovery pass failed; the next scan tries again')
      }
    }
    if (liveness !== null) await pass('dead owners', () => takeDeadOwners(scan, liveness))
    await pass('expired claims', () => takeExpired(scan))
    await pass('recoveries', () => redriveRecoveries(scan))
    await pass('expired interactions', () => expireInteractions(scan))
    await pass('owed sessions', () => wakeOwed(scan))
    await pass('gauges', async () => {
      const { parked, quarantined } = await passes.countSetAside(core.db)
      core.metrics.parked.set(parked)
      core.metrics.quarantined.set(quarantined)
    })
    core.metrics.scanSeconds.observe((performance.now() - startedAt) / 1000)
    return report
  }

  /** Between scans: an owner whose lock was seen free is looked at again until the grace has passed or it is back. */
  async function lookAtOwners(): Promise<void> {
    if (liveness === null || stopping.signal.aborted) return
    cancelLook()
    try {
      const { dead, lookAgainInMs } = await liveness.observe()
      if (stopping.signal.aborted) return
      if (dead.length > 0) await scan()
      if (lookAgainInMs !== null && !stopping.signal.aborted)
        cancelLook = core.clock.setTimeout(() => void lookAtOwners(), lookAgainInMs)
    } catch (thrown) {
      core.log.warn({ err: asError(thrown) }, 'the liveness of other owners could not be observed')
    }
  }

  function begin(): Promise<ScanReport> {
    const run = runScan().finally(() => {
      if (running === run) running = null
    })
    running = run
    return run
  }

  function scan(): Promise<ScanReport> {
    if (running === null) return begin()
    queued ??= running.then(() => {
      queued = null
      return begin()
    })
    return queued
  }

  async function tick(): Promise<void> {
    await scan()
    if (stopping.signal.aborted) return
    await lookAtOwners()
    if (!stopping.signal.aborted) cancelTimer = core.clock.setTimeout(() => void tick(), core.config.scanMs)
  }

  return {
    async start() {
      const ready = liveness === null ? Promise.resolve(true) : liveness.whenHeld(stopping.signal)
      void ready.then((isHeld) => {
        if (isHeld && !stopping.signal.aborted) void tick()
      })
    },
    scan,
    async stop() {
      stopping.abort()
      cancelTimer()
      cancelLook()
      while (running !== null || queued !== null) await (queued ?? running)
    },
  }
}

interface Scan {
  core: Core
  report: ScanReport
  woken: Set<string>
  isStopped: () => boolean
}

/** No reason to set a row aside: it is the database that cannot do it, now or at all, and not this row. */
function isNoneOfItsFault(thrown: unknown): boolean {
  if (thrown instanceof UnavailableError || isTransient(thrown)) return true
  const state = thrown instanceof AppendRefusedError ? thrown.sqlState : sqlStateOf(thrown)
  return state !== null && !isOfTheRows(state)
}

/**
 * How many rows of a page are dealt with at once. Each is a decision of its own on a session of its own, and most of its time is waiting
 * for the database; half of the pool stays free for requests and drains.
 */
const atOnce = ({ config }: Core) => Math.max(1, Math.min(8, Math.floor(config.dbPool / 2)))

/** Deals with these rows; one that fails is logged, once in this scan, and passed over. */
async function each<R extends object>(scan: Scan, rows: readonly R[], deal: (row: R) => Promise<void>): Promise<void> {
  const { core, report, isStopped } = scan
  const left = rows.values()
  const dealWithRest = async () => {
    for (const row of left) {
      if (isStopped()) return
      try {
        await deal(row)
      } catch (thrown) {
        report.failed++
        core.log.error({ err: asError(thrown), row: { ...row } }, 'recovery could not deal with a row')
      }
    }
  }
  await Promise.all(Array.from({ length: atOnce(core) }, dealWithRest))
}

/** Goes through all pages. */
async function eachPage<R extends object>(
  { core, isStopped }: Scan,
  page: (db: Tx, after: R | null) => Promise<R[]>,
  deal: (rows: R[]) => Promise<void>,
): Promise<void> {
  for (let after: R | null = null; !isStopped(); ) {
    const rows: R[] = await page(core.db, after)
    await deal(rows)
    if (rows.length < passes.pageSize) return
    after = rows.at(-1)!
  }
}

const eachRow = <R extends object>(
  scan: Scan,
  page: (db: Tx, after: R | null) => Promise<R[]>,
  deal: (row: R) => Promise<void>,
): Promise<void> => eachPage(scan, page, (rows) => each(scan, rows, deal))

/** Takes a page of claims: together as far as that goes, the rest one by one. */
async function takeClaims(scan: Scan, claims: readonly passes.ClaimKey[], right: Right): Promise<void> {
  const { core, report } = scan
  let taken: ReadonlySet<string> = new Set()
  if (claims.length > 1) {
    try {
      taken = await takeOverTogether(core, claims, right)
      report.taken += taken.size
    } catch (thrown) {
      // One of them, or the database: looking at each alone tells.
      core.log.debug({ err: asError(thrown), claims: claims.length }, 'claims could not be taken over together')
    }
  }
  const left = claims.filter(({ sessionId }) => !taken.has(sessionId))
  await each(scan, left, (claim) => takeClaim(scan, claim, right))
}

/** Takes one claim; what contradicts itself or cannot be read is set aside with the reason. */
async function takeClaim(
  { core, report }: Scan,
  { sessionId, executionId }: passes.ClaimKey,
  right: Right,
): Promise<void> {
  let reason: string
  try {
    const taken = await takeOver(core, sessionId, executionId, right)
    if (taken === 'quarantined') report.quarantined++
    else if (taken !== 'gone') report.taken++
    return
  } catch (thrown) {
    if (isNoneOfItsFault(thrown)) throw thrown
    core.log.error({ err: asError(thrown), sessionId, executionId }, 'a claim cannot be taken over; it is set aside')
    const { code, message } = told(thrown, 'session id')
    reason = `recovery cannot decide on it (${code}): ${message}`
  }
  if (await setAside(core, { sessionId, executionId, kind: 'EXECUTION', right, reason })) report.quarantined++
}

const takeExpired = (scan: Scan) =>
  eachPage<passes.ClaimKey>(scan, passes.expiredClaims, (claims) => takeClaims(scan, claims, { kind: 'expired' }))

async function takeDeadOwners(scan: Scan, liveness: Liveness): Promise<void> {
  const { dead } = await liveness.observe()
  for (const owner of dead) {
    await liveness.holding(owner, (isStill) =>
      eachPage<passes.ClaimKey>(
        scan,
        (db, after) => (isStill() ? passes.claimsOf(db, owner, after?.sessionId ?? '') : Promise.resolve([])),
        (claims) => takeClaims(scan, claims, { kind: 'dead', isStill }),
      ),
    )
  }
}

/** Once per scan and session. */
function wakeOnce({ core, report, woken }: Scan, sessionId: string) {
  if (woken.has(sessionId)) return
  woken.add(sessionId)
  report.woken++
  wake(core, sessionId)
}

const redriveRecoveries = (scan: Scan) =>
  eachRow<passes.ArmedRecovery>(scan, passes.armedRecoveries, async (row) => {
    const { core, report } = scan
    const { sessionId, executionId } = row
    let fault = recoveryFault(row)
    if (fault === null && row.inputState === 'PENDING') {
      if (!row.claimed) wakeOnce(scan, sessionId)
      return
    }
    if (fault === null) {
      if (await settleAsReplayed(core.db, row)) {
        report.settled++
        return
      }
      fault = `the continuation is ${row.inputState}, and the log does not say why`
    }
    // The session's other work goes on: only this row is passed over from now on.
    if (await setAside(core, { sessionId, executionId, kind: 'RECOVERY', reason: fault })) report.quarantined++
  })

const wakeOwed = (scan: Scan) =>
  eachRow<{ id: string; due: boolean }>(
    scan,
    (db, after) => passes.owedSessions(db, after?.id ?? ''),
    async ({ id, due }) => {
      if (due) wakeOnce(scan, id)
    },
  )

const expireInteractions = (scan: Scan) =>
  eachRow<passes.ExpiringKey>(scan, passes.expiredInteractions, async ({ sessionId, id }) => {
    if (await expireInteraction(scan.core, sessionId, id)) scan.report.expired++
  })
