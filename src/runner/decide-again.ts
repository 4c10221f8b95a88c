// What every change that a caller asks for goes through: read, decide, append; and again when the session moved in between.

import { setTimeout as pause } from 'node:timers/promises'
import { patiently } from '../db.ts'
import { BusyError } from '../errors.ts'
import type { Core } from './core.ts'
import type { Rank } from './turns.ts'

/** What a decision answers that found the session moved: nothing was written, look again. */
export const again = Symbol('again')

/** Within a process callers take turns, so these are lost to other processes only, or to the run of the session itself. */
const triesMax = 16
/** About 5, 10, 20 … up to 100 ms: all of it is hardly more than a second, as those behind wait for it. */
const pauseMs = (tries: number) => Math.min(100, 5 * 2 ** tries) * (0.5 + Math.random())

/**
 * Decides on a session of the tenant: callers of one session one after the other, in order of arrival. `decide` reads, appends what it
 * decided with what it read as expectation, and answers `again` when that was stale; it is asked a bounded number of times, with a random
 * pause in between, then BusyError is thrown. It must not wait for anything but the database.
 */
export const decideAgain = <T>(
  core: Core,
  { tenant, sessionId, rank = 'caller' }: { tenant: string; sessionId: string; rank?: Rank },
  decide: () => Promise<T | typeof again>,
): Promise<T> => core.turns.take(lineOf(tenant, sessionId), rank, () => untilDecided(decide))

/** The same for the owner of a run: it decides at once, and where callers were faster it has the next turn. */
export async function ownerDecides<T>(
  core: Core,
  sessionId: string,
  decide: () => Promise<T | typeof again>,
): Promise<T> {
  const decided = await decide()
  if (decided !== again) return decided
  return core.turns.take(await patiently(() => lineOfOwner(core, sessionId), core.stopping), 'owner', () =>
    untilDecided(decide),
  )
}

/** Callers of a session that is not theirs stand in a line of their own, and are told there that there is none. */
const lineOf = (tenant: string, sessionId: string) => [tenant, sessionId].join(' ')

/** The line of the callers whose session it is. One read: who asks tries it again. */
export async function lineOfOwner(core: Core, sessionId: string): Promise<string> {
  const select = { tenant: true } as const
  const found = await core.db.session.findUnique({ where: { id: sessionId }, select })
  return lineOf(found?.tenant ?? '', sessionId)
}

async function untilDecided<T>(decide: () => Promise<T | typeof again>): Promise<T> {
  for (let tries = 0; tries < triesMax; tries++) {
    if (tries > 0) await pause(pauseMs(tries - 1))
    const decided = await decide()
    if (decided !== again) return decided
  }
  throw new BusyError(`the session moved ${triesMax} times while it was decided on`)
}
