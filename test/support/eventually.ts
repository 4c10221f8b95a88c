import { setTimeout as sleep } from 'node:timers/promises'

// Taken before a test can set a clock: what waits here waits in real time.
const { now } = Date

/** Waits until `look` finds something, and gives it; `ms` at most, with a pause of `every` ms after each look that found nothing. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  { ms = 30_000, every = 10 }: { ms?: number; every?: number } = {},
): Promise<T> {
  const deadline = now() + ms
  for (;;) {
    const found = await look()
    if (found) return found
    if (now() > deadline) throw new Error(`waited ${ms / 1000} s for ${what}`)
    await sleep(every)
  }
}
