/** Time and chance, as tests can set them. */
export interface Clock {
  /** Calls the function after so many ms, unless the function that it gives back is called before. */
  after(ms: number, fn: () => void): () => void
  /** From 0 to below 1. */
  random(): number
}

export const realClock: Clock = {
  after(ms, fn) {
    const timer = setTimeout(fn, ms)
    return () => clearTimeout(timer)
  },
  random: Math.random,
}

const firstMs = 500
const longestMs = 30_000

/** How long to wait after so many failures in a row (from 1): 0.5 s, then twice as long each time up to 30 s, less up to half of it by chance. */
export function delayMs(failures: number, clock: Clock): number {
  const longest = Math.min(longestMs, firstMs * 2 ** Math.min(failures - 1, 16))
  return Math.round(longest * (1 - clock.random() / 2))
}
