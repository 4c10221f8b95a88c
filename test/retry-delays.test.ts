import fc from 'fast-check'
import { expect, it } from 'vitest'
import { attemptsMax, retryAfterMsMax, retryDelayMs } from '../src/runner/retry.ts'

const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

it('RETRY-02: five attempts; the waits are 2, 4, 8 and 16 s, each times 0.8 to 1.2', () => {
  expect(attemptsMax).toBe(5)
  const bases = [2000, 4000, 8000, 16_000]
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 5 }), random, (next, value) => {
      const base = bases[next - 2]!
      const delay = retryDelayMs(next, undefined, () => value)
      expect(delay).toBeGreaterThanOrEqual(base * 0.8)
      expect(delay).toBeLessThanOrEqual(base * 1.2)
    }),
  )
  // The whole span is used, not its middle only.
  expect(bases.map((_, n) => retryDelayMs(n + 2, undefined, () => 0))).toEqual([1600, 3200, 6400, 12_800])
  expect(bases.map((_, n) => retryDelayMs(n + 2, undefined, () => 1))).toEqual([2400, 4800, 9600, 19_200])
})

it('RETRY-03: what the provider asks for is a floor, capped at 15 minutes; zero or less asks for nothing', () => {
  expect(retryAfterMsMax).toBe(900_000)
  expect(retryDelayMs(2, 5000, () => 0.5)).toBe(5000)
  expect(retryDelayMs(5, 5000, () => 0.5)).toBe(16_000)
  expect(retryDelayMs(2, 3_600_000, () => 0.9)).toBe(900_000)
  expect(retryDelayMs(2, 0, () => 0)).toBe(1600)
  expect(retryDelayMs(2, -1000, () => 0)).toBe(1600)
})
