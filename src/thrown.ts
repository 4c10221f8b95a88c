// What foreign code threw, taken in once. Anything can be thrown: no Error at all, an Error whose message is no text, an object whose fields
// throw when they are read. Whoever deals with a failure must not fail over it, so nothing here throws.

import { types } from 'node:util'

/** Is it an Error? False for what cannot even be asked. */
export function isError(value: unknown): value is Error {
  try {
    return value instanceof Error || types.isNativeError(value)
  } catch {
    return false
  }
}

/** One field of a foreign value; undefined where reading it throws. */
export function fieldOf(value: unknown, name: string): unknown {
  try {
    return (value as Record<string, unknown> | null | undefined)?.[name]
  } catch {
    return undefined
  }
}

/** What stands under this name without running any code of the object: undefined for a getter. */
function plainField(value: object, name: string): unknown {
  for (let at: object | null = value; at !== null; at = Object.getPrototypeOf(at)) {
    const found = Object.getOwnPropertyDescriptor(at, name)
    if (found !== undefined) return found.value
  }
  return undefined
}

function classOf(value: object): string {
  try {
    // Asked first: a proxy may answer nothing, not even whether it is a list.
    if (types.isProxy(value)) return 'a proxy'
    if (Array.isArray(value)) return 'a list'
    if (Object.getPrototypeOf(value) === null) return 'an object without a prototype'
    const made = plainField(value, 'constructor')
    const name = typeof made === 'function' ? plainField(made, 'name') : undefined
    if (typeof name === 'string' && name !== 'Object' && /^\w{1,60}$/.test(name))
      return `an object of the class ${name}`
    // Generators have no constructor of their own; what they are stands in a tag.
    const tag = plainField(value, Symbol.toStringTag as unknown as string)
    return typeof tag === 'string' && /^\w{1,60}$/.test(tag) ? `an object of the kind ${tag}` : 'an object'
  } catch {
    return 'an object that cannot be read'
  }
}

/** What kind of value this is, in a few words that hold nothing of it: `a function`, `an object of the class Map`. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'bigint') return 'a BigInt'
  return typeof value === 'object' ? classOf(value) : `a ${typeof value}`
}

/** What was thrown, in words: its message where it has one that is a text, else what kind of value it was. */
export function wordsOf(thrown: unknown): string {
  if (typeof thrown === 'string') return thrown
  const isObject = (typeof thrown === 'object' && thrown !== null) || typeof thrown === 'function'
  if (!isObject) return typeof thrown === 'symbol' || thrown == null ? `${kindOf(thrown)} was thrown` : String(thrown)
  const message = fieldOf(thrown, 'message')
  if (typeof message === 'string') return message
  return `${kindOf(thrown)} was thrown, and it has no message that can be read`
}

/** Would reading its name and message again give the same texts? */
function isOrdinary(error: Error): boolean {
  try {
    if (types.isProxy(error)) return false
    return typeof plainField(error, 'message') === 'string' && typeof plainField(error, 'name') === 'string'
  } catch {
    return false
  }
}

/**
 * Any thrown value as an Error: the one place where unknown throws are coerced. An ordinary Error is itself; of anything else, whose fields may
 * be no texts or change from one look to the next, a copy of what can be read.
 */
export function asError(thrown: unknown): Error {
  if (isError(thrown) && isOrdinary(thrown)) return thrown
  const copy: Error & { code?: unknown } = new Error(wordsOf(thrown))
  const name = fieldOf(thrown, 'name')
  if (isError(thrown) && typeof name === 'string') copy.name = name
  const stack = fieldOf(thrown, 'stack')
  if (typeof stack === 'string') copy.stack = stack
  const code = fieldOf(thrown, 'code')
  if (typeof code === 'string' || typeof code === 'number') copy.code = code
  return copy
}
