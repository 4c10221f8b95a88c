/** Numbers that follow from a seed (mulberry32): the same ones for the same seed. What processes do with their time does not. */
export interface Random {
  /** From 0 up to, and without, 1. */
  next(): number
  /** A whole number from 0 up to, and without, `limit`. */
  below(limit: number): number
  /** A whole number from `least` to `most`, both included. */
  from(least: number, most: number): number
  of<T>(choices: readonly [T, ...T[]]): T
  /** True that often. */
  chance(part: number): boolean
  /** Another one that follows from this one. */
  fork(): Random
}

export function random(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (limit: number) => Math.floor(next() * limit)
  const from = (least: number, most: number) => least + below(most - least + 1)
  return {
    next,
    below,
    from,
    of: (choices) => choices[below(choices.length)]!,
    chance: (part) => next() < part,
    fork: () => random(from(0, 2 ** 32 - 1)),
  }
}
