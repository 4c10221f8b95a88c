// The core is broken on purpose, one guard at a time, and dies where that guard matters: the checker has to see it. The same death of the
// core as it is shows that nothing else is found.
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { AppendRequest } from '../../src/event-log.ts'
import type { EventType } from '../../src/events.ts'
import { type Finding, shown } from '../support/checker.ts'
import type { Death } from './gate.ts'
import type { Incarnation } from './incarnation.ts'
import { type Lane, openLane } from './lanes.ts'
import { scenarios } from './scenarios.ts'
import { type Plan, play } from './world.ts'

let lane: Lane
beforeAll(async () => {
  lane = await openLane()
})
afterAll(async () => {
  await lane.close()
})

type Append = Incarnation['core']['eventLog']['append']

/** Stands in for the appends that hold an event of this type; `said` counts them. */
function instead(type: EventType, act: (request: AppendRequest, append: Append) => ReturnType<Append>) {
  let said = 0
  return {
    said: () => said,
    mutate({ core }: Incarnation) {
      const { append } = core.eventLog
      core.eventLog = {
        ...core.eventLog,
        append(request) {
          if (!request.events.some((each) => each.type === type)) return append(request)
          said++
          return act(request, append)
        },
      }
    },
  }
}

const nothingWritten = ({ expectedSeq = 0 }: AppendRequest) =>
  Promise.resolve({ kind: 'appended', seq: expectedSeq, lastSeq: expectedSeq, at: new Date(), appendId: '' } as const)

interface Mutant {
  what: string
  scenario: string
  plan: Plan
  /** Where the defect gives the same place another name. */
  planBroken?: Plan
  kind: Finding['kind']
  finding: RegExp
  make(): { mutate: (life: Incarnation) => void; said: () => number }
}

const at = (label: string, mode: Death['mode']): Death => ({ label, nth: 1, mode })
const afterAdmission = at('append prompt.admitted', 'after')

const mutants: Mutant[] = [
  {
    what: 'an admission that is acknowledged before it is durable',
    scenario: 'text',
    plan: [at('append prompt.admitted', 'before')],
    kind: 'lost',
    finding: /was acknowledged and is not there/,
    make: () =>
      instead('prompt.admitted', (request, append) => {
        // Written in its own time, when the answer has gone out.
        setImmediate(() => void append(request))
        return nothingWritten(request)
      }),
  },
  {
    what: 'an admission that is not armed',
    scenario: 'text',
    plan: [afterAdmission],
    kind: 'stuck',
    finding: /was to run, and does not/,
    make: () =>
      instead('prompt.admitted', (request, append) =>
        append({
          ...request,
          events: request.events.map((each) =>
            each.type === 'prompt.admitted' ? { ...each, payload: { ...each.payload, requestExecution: false } } : each,
          ),
        }),
      ),
  },
  {
    what: 'a tool that is dispatched before its start is durable',
    scenario: 'approval',
    plan: [at('tool deploy', 'after')],
    kind: 'doubled',
    finding: /took effect \d times/,
    make: () => instead('tool.started', (request) => nothingWritten(request)),
  },
  {
    what: 'an accepted stop that leaves the phase of the claim',
    // Whose client does not ask again: that would end it in time.
    scenario: 'a stop that is cut off',
    plan: [at('append interrupt.requested + to CANCELLING', 'after')],
    planBroken: [at('append interrupt.requested', 'after')],
    kind: 'doubled',
    finding: /goes on after the stop/,
    make: () => instead('interrupt.requested', (request, append) => append({ ...request, claim: undefined } as never)),
  },
  {
    what: 'a takeover that leaves the claim it has settled',
    scenario: 'text',
    plan: [at('request for a step', 'after')],
    kind: 'stuck',
    finding: /claim in phase|runs, and nobody runs it|still (RUNNING|RECOVERING)/,
    make: () => {
      let said = 0
      return {
        said: () => said,
        mutate({ recovery }) {
          const { scan } = recovery
          recovery.scan = async () => {
            said++
            await lane.db.$executeRawUnsafe('UPDATE "Claim" SET "expiresAt" = holdfast_now() + interval \'1 hour\'')
            return scan()
          }
        },
      }
    },
  },
  {
    what: 'a scan that does not look for what is owed',
    scenario: 'text',
    plan: [afterAdmission],
    kind: 'stuck',
    finding: /still (RUNNING|RECOVERING)/,
    make: () => {
      let said = 0
      return {
        said: () => said,
        mutate({ core }) {
          const { wake } = core.coordinator
          core.coordinator.wake = (sessionId) => {
            if (new Error().stack!.includes('wakeOnce')) said++
            else wake(sessionId)
          }
        },
      }
    },
  },
  {
    what: 'a table that is changed past the log',
    scenario: 'text',
    plan: [at('append text.ended', 'after')],
    kind: 'broken',
    finding: /the log gives/,
    make: () => {
      let said = 0
      return {
        said: () => said,
        mutate({ recovery }) {
          const { scan } = recovery
          recovery.scan = async () => {
            said++
            const report = await scan()
            await lane.db.$executeRawUnsafe(`UPDATE "Recovery" SET "assistantMessageId" = NULL`)
            return report
          }
        },
      }
    },
  },
]

for (const { what, scenario: name, plan, planBroken, kind, finding, make } of mutants)
  it(`REC-36: the checker sees ${what}`, async () => {
    const scenario = scenarios.find((each) => each.name === name)!
    const whole = await play(scenario, plan, lane)
    expect({ found: shown(whole.findings), missed: whole.missed }).toEqual({ found: [], missed: [] })
    const { mutate, said } = make()
    const broken = await play(scenario, planBroken ?? plan, lane, mutate)
    // What is left of it must not reach the next one.
    await lane.close()
    lane = await openLane()
    expect(said()).toBeGreaterThan(0)
    expect(broken.findings.filter((each) => each.kind === kind).map(({ what }) => what)).toContainEqual(
      expect.stringMatching(finding),
    )
  })
