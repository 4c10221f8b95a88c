// Many claims of one scan at once: when a process with thousands of sessions dies, taking each over by itself would keep the last of them
// waiting for minutes. Evidence is read for all of a page, decided on for each by itself, and the appends share one transaction. Each still
// has its own fence and its own outcome; what this page cannot settle is taken one by one afterwards (takeover.ts).

import { appendGroupIn } from '../event-log.ts'
import type { Core } from '../runner/core.ts'
import { readEvidenceOf } from './evidence.ts'
import { resolve } from './resolution.ts'
import { announce, isTakeable, type Right, requestOf } from './takeover.ts'

/**
 * Takes these claims over, of different sessions, as far as that goes at once, and gives the ids of those sessions. Not those that somebody
 * has locked, whose log has moved, or that need another way than a plain append (an end that is there already, quarantine). Throws when one
 * of them makes the whole page fail: then none is taken, and it is found by looking at each alone.
 */
export async function takeOverTogether(
  core: Core,
  claims: readonly { sessionId: string; executionId: string }[],
  right: Right,
): Promise<Set<string>> {
  const taken = await core.db.$transaction(async (tx) => {
    const evidences = await readEvidenceOf(
      tx,
      claims.map(({ sessionId }) => sessionId),
    )
    const planned = claims.flatMap(({ sessionId, executionId }) => {
      const evidence = evidences.get(sessionId)
      if (evidence === undefined || !isTakeable(evidence, executionId, right)) return []
      const decision = resolve(evidence)
      if (decision.kind !== 'Recover' && decision.kind !== 'Clear') return []
      return [{ sessionId, executionId, ...requestOf(core, sessionId, evidence, decision, right) }]
    })
    if (planned.length === 0) return []
    const outcomes = await appendGroupIn(
      tx,
      planned.map(({ request }) => request),
      core.owner,
    )
    return planned.filter((_, n) => outcomes[n]!.kind === 'appended')
  })
  for (const each of taken) announce(core, each.sessionId, each.executionId, each.taken, right)
  return new Set(taken.map(({ sessionId }) => sessionId))
}
