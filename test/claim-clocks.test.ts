// Clocks of nodes that are wrong: leases are taken, renewed and judged by the database's time alone (design section 3).
import { afterEach, expect, it, vi } from 'vitest'
import { passTime, resetTime } from './support/asking.ts'
import { eventually, type TestCore } from './support/core.ts'
import { quiet } from './support/cut-off.ts'
import { finish, hang, reply, text } from './support/provider.ts'
import { prompt, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(async () => {
  vi.unstubAllGlobals()
  await resetTime(stage)
})

const leaseMs = 60_000
const minute = 60_000
const Real = Date

/** Lets the clock of this node be wrong by so much. What comes back from the database are dates all the same. */
function wrongBy(ms: number) {
  class Wrong extends Real {
    constructor(...at: unknown[]) {
      super(...((at.length === 0 ? [Real.now() + ms] : at) as [number]))
    }
    static override now() {
      return Real.now() + ms
    }
    static override [Symbol.hasInstance](what: unknown) {
      return Object.prototype.toString.call(what) === '[object Date]'
    }
  }
  vi.stubGlobal('Date', Wrong)
}

/** By the database's clock. */
async function leftOf(sessionId: string): Promise<number> {
  const rows = await stage.db.$queryRaw<{ left: number }[]>`
    SELECT (extract(epoch FROM "expiresAt" - holdfast_now()) * 1000)::float8 AS left FROM "Claim" WHERE "sessionId" = ${sessionId}`
  return rows[0]!.left
}

it.each([
  { owners: 'ahead', ownerMs: 10 * minute, others: 'behind', otherMs: -10 * minute },
  { owners: 'behind', ownerMs: -10 * minute, others: 'ahead', otherMs: 10 * minute },
])(
  "CLAIM-13: with the owner's clock ten minutes $owners and that of another node ten minutes $others, leases are taken, renewed and judged by the database alone",
  async ({ ownerMs, otherMs }) => {
    const config = { leaseMs, renewMs: 3_600_000 }
    const owner = await stage.start({ config })
    const other = await stage.start({ config })
    quiet(other.core)
    const at = async <T>(ms: number, work: () => Promise<T>): Promise<T> => {
      wrongBy(ms)
      try {
        // The fault is there.
        expect(Math.abs(Date.now() - Real.now() - ms)).toBeLessThan(minute)
        return await work()
      } finally {
        vi.unstubAllGlobals()
      }
    }
    const taken = ({ recovery }: TestCore, ms: number) => at(ms, async () => (await recovery.scan()).taken)
    const s = await stage.session()
    // The second is for the one who goes on.
    stage.provider.script(reply(text('a'), hang()), reply(text('b'), finish()))
    await at(ownerMs, async () => {
      await prompt(owner.core, s)
      await stage.logged(s, 'text.started')
    })
    // Others know of the text what was written.
    await eventually('the text to be written', async () => {
      await owner.core.live.flush()
      return (await stage.db.chunk.count({ where: { sessionId: s } })) > 0
    })
    const { executionId } = (await stage.claim(s))!
    const acquired = await leftOf(s)
    expect(acquired).toBeGreaterThan(0)
    expect(acquired).toBeLessThanOrEqual(leaseMs)
    for (const [node, ms] of [
      [other, otherMs],
      [owner, ownerMs],
    ] as const)
      expect(await taken(node, ms)).toBe(0)

    await passTime(stage, leaseMs / 2)
    const half = await leftOf(s)
    expect(half).toBeLessThanOrEqual(leaseMs / 2)
    await at(ownerMs, () => owner.core.leases.renewNow())
    const renewed = await leftOf(s)
    expect(renewed).toBeGreaterThan(half)
    expect(renewed).toBeLessThanOrEqual(leaseMs)
    expect(await taken(other, otherMs)).toBe(0)
    expect(owner.core.leases.heldBy(s)?.ended).toBeNull()

    // It has run out by the database, whatever the one who looks believes.
    await passTime(stage, leaseMs + 1000)
    expect(await leftOf(s)).toBeLessThan(0)
    expect(await taken(other, otherMs)).toBe(1)
    expect(await stage.payloads(s, 'step.recovered')).toHaveLength(1)
    expect((await stage.claim(s))?.executionId).not.toBe(executionId)
    await eventually('the owner to know', async () => owner.core.leases.heldBy(s)?.executionId !== executionId)
    for (const { core } of [owner, other]) await core.coordinator.idle()
    expect((await stage.payloads(s, 'text.ended')).map(({ text }) => text)).toEqual(['a', 'b'])
  },
)
