import { expect } from 'vitest'

/** Waits until the function gives something that satisfies the expectation. */
export const until = <T>(what: () => Promise<T> | T, timeout = 30_000) => expect.poll(what, { timeout, interval: 50 })
