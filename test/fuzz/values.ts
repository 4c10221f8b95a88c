// Values for the arguments of operations: half of them such as a client would send, half of them such as nobody should.
import {
  type GraphQLInputType,
  type GraphQLNamedType,
  isEnumType,
  isInputObjectType,
  isListType,
  isNonNullType,
} from 'graphql'
import type { Random } from '../support/random.ts'

/** Ids that answers have shown, so that what is asked touches what is there. */
export interface World {
  ids: string[]
  cursors: string[]
  /** Ids that are made up change with it, so that a long run meets more than its first sessions, which are archived by then. */
  season: number
}

const idsKept = 2_000
const shownId = /\b(?:ses|msg|exe|req|qua|int|rec)_[A-Za-z0-9_.-]{4,80}/g

/** Keeps the ids and cursors of an answer, at most so many of each. */
export function remember(world: World, random: Random, answer: string): void {
  const keep = (list: string[], value: string) => {
    if (list.length < idsKept) list.push(value)
    else list[random.below(idsKept)] = value
  }
  for (const [id] of answer.slice(0, 20_000).matchAll(shownId)) keep(world.ids, id)
  for (const [, cursor] of answer.slice(0, 20_000).matchAll(/"(?:cursor|endCursor)":"([^"]+)"/g))
    keep(world.cursors, cursor!)
}

const hostileTexts = [
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  'x\udfff',
  '\ud83d',
  '\u202e\u0000',
  'ﬃ ß ς İ ı',
  '日本語のテキスト',
  '👩‍👩‍👧‍👦'.repeat(20),
  "'; DROP TABLE x; --",
  '%_\\%',
  '%',
  '\\',
  '__proto__',
  'constructor',
  'toString',
  '{{7*7}}',
  '{"a":1}',
  '[]',
  'null',
  'NaN',
  '-0',
  '1e309',
  '9007199254740993',
  '../../x',
  'a'.repeat(300),
  'word '.repeat(400),
  'é'.repeat(2_000),
  '\u0301'.repeat(500),
  '\r\n\t\v\f',
  'data:,',
] as const

const hostileNumbers = [
  0,
  -0,
  -1,
  1,
  200,
  201,
  1000,
  2 ** 31 - 1,
  2 ** 31,
  -(2 ** 31) - 1,
  2 ** 53,
  2 ** 53 + 2,
  -(2 ** 63),
  1.5,
  1e308,
  5e-324,
] as const

const prompts = [
  'hello',
  '/length 3',
  '/reason because\nhello',
  '/tool approve_me {"a":1}',
  '/tool echo_json {"a":[1,2,{"b":null}]}',
  '/tool boom {}',
  '/tool nobody {}',
  '/malformed echo_json',
  '/fail auth',
  '/fail quota',
  '/fail invalid',
  '/fail content',
  '/overflow 1',
  '/tool ask_user {"question":"which?"}',
  '/tool approve_me {"a":1}\n/tool approve_me {"a":2}',
] as const

/** Any JSON value, of a bounded size; sometimes deep, sometimes with the keys that objects have by themselves. */
export function anyJson(random: Random, depth = 3): unknown {
  switch (random.below(depth > 0 ? 9 : 5)) {
    case 0:
      return null
    case 1:
      return random.chance(0.5)
    case 2:
      return random.of(hostileNumbers)
    case 3:
    case 4:
      return random.of(hostileTexts)
    case 5:
      return Array.from({ length: random.below(4) }, () => anyJson(random, depth - 1))
    case 6: {
      let deep: unknown = 1
      for (let i = random.below(300); i > 0; i--) deep = random.chance(0.5) ? [deep] : { a: deep }
      return deep
    }
    default:
      return Object.fromEntries(
        Array.from({ length: random.below(4) }, (_, i) => [
          random.of(['a', 'b', '', '__proto__', 'constructor', '\ud800', `k${i}`] as const),
          anyJson(random, depth - 1),
        ]),
      )
  }
}

const shortId = (random: Random) => random.from(0, 40).toString(36)

function anyId(random: Random, world: World, argument: string): unknown {
  if (world.ids.length > 0 && random.chance(0.6)) return random.of(world.ids as [string, ...string[]])
  if (random.chance(0.5)) {
    const prefix = /message/i.test(argument)
      ? 'msg'
      : /session/i.test(argument)
        ? 'ses'
        : random.of(['ses', 'msg', 'req'] as const)
    return `${prefix}_fuzzfuzz_${world.season}_${shortId(random)}`
  }
  return random.chance(0.2) ? random.of(hostileNumbers) : random.of(hostileTexts)
}

const attachmentUrls = [
  'data:text/plain;base64,aGVsbG8=',
  'data:text/plain,hello',
  'data:image/png;base64,iVBORw0KGgo=',
  'data:image/png;base64,####',
  'data:;base64,',
  'data:',
  'https://127.0.0.1:1/x.png',
  'http://[::1/',
  'file:///x',
  'javascript:1',
] as const

function scalar(type: GraphQLNamedType, random: Random, world: World, name: string): unknown {
  const odd = random.chance(0.1)
  switch (type.name) {
    case 'ID':
      return anyId(random, world, name)
    case 'Boolean':
      return odd ? random.of<unknown>(['true', 1, null, {}]) : random.chance(0.5)
    case 'Int':
    case 'SafeInt':
      return odd ? random.of([...hostileNumbers, '1', null, []] as const) : random.from(0, 40)
    case 'DateTime':
      return random.of([
        '2026-01-31T09:30:00.000Z',
        '2026-02-31T25:00:00Z',
        '+275760-09-13T00:00:00Z',
        '0000-00-00',
        ...hostileTexts,
      ] as const)
    case 'JSON':
      return anyJson(random)
    default:
      if (odd) return random.of([...hostileTexts, ...hostileNumbers] as const)
      if (/^(after|before)$/.test(name) && world.cursors.length > 0)
        return random.of(world.cursors as [string, ...string[]])
      if (name === 'text') return random.of(prompts)
      if (name === 'url') return random.of(attachmentUrls)
      if (name === 'mediaType') return random.of(['text/plain', 'image/png', 'IMAGE/PNG', 'x', 'a/b/c'] as const)
      if (name === 'model') return random.of(['demo/echo', 'demo/none', 'x', 'openai/gpt'] as const)
      return random.of(['hello', 'title', 'a b', ...hostileTexts] as const)
  }
}

/** A value for an argument of this type and name; now and then of another type. */
export function valueFor(type: GraphQLInputType, random: Random, world: World, name: string, depth = 0): unknown {
  if (isNonNullType(type)) return random.chance(0.005) ? null : valueFor(type.ofType, random, world, name, depth)
  if (random.chance(0.01)) return anyJson(random, 2)
  if (random.chance(0.03)) return null
  if (isListType(type)) {
    const length = random.chance(0.05) ? random.below(300) : random.below(4)
    return Array.from({ length }, () => valueFor(type.ofType, random, world, name, depth + 1))
  }
  if (isEnumType(type)) {
    const names = type.getValues().map((one) => one.name)
    return random.chance(0.1) ? random.of(hostileTexts) : random.of(names as [string, ...string[]])
  }
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields()).filter((field) => isNonNullType(field.type) || random.chance(0.4))
    const entries = fields.map((field) => [field.name, valueFor(field.type, random, world, field.name, depth + 1)])
    if (random.chance(0.03)) entries.push([random.of(['unknown', '__proto__', ''] as const), anyJson(random, 1)])
    return Object.fromEntries(entries)
  }
  return scalar(type, random, world, name)
}

/** The value as it stands in a document. Enum values that look like names stand bare. */
export function literal(value: unknown, type?: GraphQLInputType): string {
  const bare = type && isNonNullType(type) ? type.ofType : type
  if (value === null || value === undefined) return 'null'
  if (Array.isArray(value))
    return `[${value.map((one) => literal(one, bare && isListType(bare) ? bare.ofType : undefined)).join(',')}]`
  if (typeof value === 'object') {
    const fields = bare && isInputObjectType(bare) ? bare.getFields() : {}
    const named = Object.entries(value).filter(([key]) => /^[A-Za-z_]\w*$/.test(key))
    return `{${named.map(([key, one]) => `${key}:${literal(one, fields[key]?.type)}`).join(',')}}`
  }
  if (typeof value === 'string' && bare && isEnumType(bare) && /^[A-Za-z_]\w*$/.test(value)) return value
  return JSON.stringify(value)
}
