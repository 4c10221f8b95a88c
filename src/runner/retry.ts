// When a failed attempt is tried again (design section 6). Pure.

/** One attempt and four more per step, also where output made a new message of it. */
export const attemptsMax = 5
const baseMs = [2_000, 4_000, 8_000, 16_000]
export const retryAfterMsMax = 15 * 60_000

/**
 * The wait in ms before attempt `next` (2 to 5): 2, 4, 8, 16 s, each times 0.8 to 1.2. What the provider asks for is a floor, capped at
 * 15 minutes; zero or less asks for nothing. `random` gives 0 up to 1.
 */
export function retryDelayMs(
  next: number,
  retryAfterMs: number | undefined,
  random: () => number = Math.random,
): number {
  const base = baseMs[Math.min(next - 2, baseMs.length - 1)]!
  const own = base * (0.8 + 0.4 * random())
  const asked = retryAfterMs !== undefined && retryAfterMs > 0 ? Math.min(retryAfterMs, retryAfterMsMax) : 0
  return Math.round(Math.max(own, asked))
}
