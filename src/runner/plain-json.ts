// JSON from outside (clients, tools, models) as it can be kept and walked: plain, storable, and not nested without end. What has passed here
// can be handed to any function that goes down level by level: stringifying, validation, a comparison.

import { types } from 'node:util'
import type { JsonValue } from '../events.ts'
import { isError, kindOf } from '../thrown.ts'
import { toolWords } from '../tool-words.ts'
import { safeText } from './models/safe-text.ts'

/** How deep lists and objects may stand inside each other. Functions that go down by recursion give up somewhere beyond 2000. */
export const jsonLevelsMax = 100

export const tooDeepRule = `must not be nested deeper than ${jsonLevelsMax} levels`

/** How deep this JSON text is nested: 0 for a text or a number, 1 for a list of them. Reads on without recursion. */
export function levelsOf(json: string): number {
  let level = 0
  let most = 0
  let isInText = false
  for (let at = 0; at < json.length; at++) {
    const unit = json[at]
    if (unit === '"') isInText = !isInText
    else if (isInText) {
      if (unit === '\\') at++
    } else if (unit === '[' || unit === '{') most = Math.max(most, ++level)
    else if (unit === ']' || unit === '}') level--
  }
  return most
}

const leftOut = `[nested deeper than ${jsonLevelsMax} levels: left out]`

/** So many values and characters of text are looked at: what a proxy or a generated list makes up as it is read may have no end. */
const valuesMax = 1_000_000
const charactersMax = 64 * 1024 * 1024

/** Why a value has no JSON form, and where in it. */
class NoJson extends Error {
  constructor(path: readonly (string | number)[], reason: string) {
    const shown = path.slice(-8).map((key) => (typeof key === 'number' ? `[${key}]` : `.${key.slice(0, 60)}`))
    const cut = path.length > shown.length ? '...' : ''
    super(`${path.length === 0 ? 'the value' : `the value at "${cut}${shown.join('').replace(/^\./, '')}"`} ${reason}`)
  }
}

/**
 * A storable copy of whatever a tool or a model's library gave: what lies too deep is replaced by a text that says so, texts that the
 * database refuses are made safe. `undefined` for what is undefined itself. A value that JSON would pass over or empty in silence is no
 * output that anybody meant: it is refused with words. Throws an Error that says where and why: a cycle, a BigInt, a function, a Map, a
 * Promise, bytes, a getter that throws.
 */
export function plainJson(value: unknown): JsonValue | undefined {
  const path: (string | number)[] = []
  const around = new Set<object>()
  let values = 0
  let characters = 0

  let refused: NoJson | undefined
  const refuse = (reason: string): never => {
    refused = new NoJson(path, reason)
    throw refused
  }
  /** Runs code of the value's own: a getter, a proxy, a toJSON. */
  function asking<T>(what: string, ask: () => T): T {
    try {
      return ask()
    } catch (thrown) {
      // What was refused further inside is told as it is. Anything else may be anything: no question is asked of it.
      if (refused !== undefined && thrown === refused) throw thrown
      return refuse(`${what}: ${toolWords(thrown)}`)
    }
  }
  function text(given: string): string {
    characters += given.length
    if (characters > charactersMax) refuse(`has more than ${charactersMax} characters with what stands before it`)
    return safeText(given)
  }

  function copy(given: unknown, level: number): JsonValue | undefined {
    if (++values > valuesMax) refuse(`is one of more than ${valuesMax} values`)
    switch (typeof given) {
      case 'string':
        return text(given)
      case 'number':
        return Number.isFinite(given) ? given : null
      case 'boolean':
      case 'undefined':
        return given
      case 'object':
        return given === null ? null : asking('cannot be read', () => ofObject(given, level))
      default:
        return refuse(`is ${kindOf(given)}`)
    }
  }

  function ofObject(given: object, level: number): JsonValue | undefined {
    if (isBytes(given)) return refuse('is binary data: give a media part with base64, or a text')
    const { toJSON } = given as { toJSON?: unknown }
    if (typeof toJSON !== 'function') return ofPlain(given, level)
    const own = asking('has a toJSON that throws', () => toJSON.call(given, String(path.at(-1) ?? '')) as unknown)
    return typeof own === 'object' && own !== null ? ofPlain(own, level) : copy(own, level)
  }

  function ofPlain(given: object, level: number): JsonValue | undefined {
    if (types.isBoxedPrimitive(given)) return copy(given.valueOf(), level)
    if (around.has(given)) refuse('contains itself (circular)')
    // Before anything inside is looked at, so that nothing here ever goes deeper.
    if (level >= jsonLevelsMax) return leftOut
    around.add(given)
    const inner = (key: string | number) => {
      path.push(key)
      const found = copy(
        asking('cannot be read', () => (given as Record<string | number, unknown>)[key]),
        level + 1,
      )
      path.pop()
      return found
    }
    let copied: JsonValue
    if (Array.isArray(given)) {
      if (given.length > valuesMax) refuse(`has ${given.length} entries, more than ${valuesMax}`)
      copied = Array.from({ length: given.length }, (_, index) => inner(index) ?? null)
    } else {
      const keys = Object.keys(given)
      if (isEmptied(given, keys)) refuse(`is ${kindOf(given)}, which has no JSON form`)
      copied = Object.fromEntries(
        keys.flatMap((key) => {
          const found = inner(key)
          return found === undefined ? [] : [[text(key), found]]
        }),
      )
    }
    around.delete(given)
    return copied
  }

  return copy(value, 0)
}

const isBytes = (value: object) => ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)

/** Would JSON leave nothing of what it is for: a Map, a generator, a stream, a Promise, a Response, an Error? */
function isEmptied(value: object, keys: readonly string[]): boolean {
  if (isError(value) || Symbol.iterator in value || Symbol.asyncIterator in value) return true
  if (typeof (value as { then?: unknown }).then === 'function') return true
  if (keys.length > 0) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  // A plain object, also one of another realm, stands right below the root.
  return prototype !== null && Object.getPrototypeOf(prototype) !== null
}
