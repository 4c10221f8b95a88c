// What foreign code may throw or give, and hardly anybody expects.
import { Readable } from 'node:stream'

const failing = () => {
  throw new TypeError('not to be read')
}
const traps = ['get', 'has', 'ownKeys', 'getPrototypeOf', 'getOwnPropertyDescriptor'] as const
const hostileProxy = () => new Proxy({}, Object.fromEntries(traps.map((trap) => [trap, failing])))
function revoked() {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}
const withGetter = (target: object, name: string, get: () => unknown) => Object.defineProperty(target, name, { get })

/** Each made anew, with what has to be said of it. */
export const oddThrows: Record<string, [make: () => unknown, said: RegExp]> = {
  'an Error whose message is no text': [
    () => Object.assign(new Error('x'), { message: 42 }),
    /class Error was thrown, and it has no message/,
  ],
  'an Error whose message throws': [
    () => withGetter(new Error('x'), 'message', failing),
    /no message that can be read/,
  ],
  'an Error whose message is another each time': [
    () => {
      let looks = 0
      return withGetter(new Error('x'), 'message', () => (looks++ < 1 ? 'the first look' : { looks }))
    },
    /the first look/,
  ],
  'an Error whose stack, code and cause throw': [
    () =>
      withGetter(
        withGetter(withGetter(new Error('the rest fails'), 'stack', failing), 'code', failing),
        'cause',
        failing,
      ),
    /^the rest fails$/,
  ],
  'an object without prototype': [() => Object.create(null), /object without a prototype was thrown/],
  'an object whose toString throws': [
    () => ({ toString: failing, [Symbol.toPrimitive]: failing }),
    /an object was thrown/,
  ],
  'an object with a message': [() => ({ message: 'as some libraries do' }), /^as some libraries do$/],
  nothing: [() => undefined, /^undefined was thrown$/],
  'a symbol': [() => Symbol('s'), /^a symbol was thrown$/],
  'a function': [() => () => {}, /a function was thrown/],
  'a proxy that throws': [hostileProxy, /a proxy was thrown/],
  'a revoked proxy': [revoked, /a proxy was thrown/],
}

/** Two children each, and so on: 2 to the power of 100 of them within the levels that are kept. */
function madeUp(): object {
  return new Proxy(
    {},
    {
      get: (_target, name) => (name === 'a' || name === 'b' ? madeUp() : undefined),
      ownKeys: () => ['a', 'b'],
      getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
    },
  )
}

class Sealed {
  readonly #inside = 1
  get inside() {
    return this.#inside
  }
}

/** Results without a JSON form, with what has to be said of each. */
export const oddResults: Record<string, [make: () => unknown, said: RegExp]> = {
  'a Map': [() => new Map([[1, 2]]), /the value is an object of the class Map, which has no JSON form/],
  'a Set deep inside': [() => ({ rows: [{ ids: new Set([1]) }] }), /"rows\[0\]\.ids" is an object of the class Set/],
  'a generator': [() => (function* () {})(), /kind Generator/],
  'an async generator': [() => (async function* () {})(), /kind AsyncGenerator/],
  'a Response': [() => new Response('body'), /class Response/],
  'a list of promises': [() => [Promise.resolve(1)], /"\[0\]" is an object of the class Promise/],
  'a Buffer': [() => Buffer.from('bytes'), /binary data/],
  'an ArrayBuffer inside': [() => ({ file: new ArrayBuffer(8) }), /"file" is binary data/],
  'a stream': [() => Readable.from(['x']), /class Readable/],
  'an instance that shows nothing': [() => new Sealed(), /class Sealed/],
  'an Error': [() => ({ problem: new Error('x') }), /"problem" is an object of the class Error/],
  'a getter that throws': [
    () => Object.defineProperty({}, 'a', { get: failing, enumerable: true }),
    /"a" cannot be read: not to be read/,
  ],
  'a proxy that throws': [() => ({ deep: hostileProxy() }), /"deep" cannot be read: not to be read/],
  'a revoked proxy': [() => [revoked()], /"\[0\]" cannot be read/],
  'a then that throws': [() => withGetter({}, 'then', failing), /not to be read/],
  'a toJSON that throws': [() => ({ toJSON: failing }), /toJSON that throws: not to be read/],
  'a toJSON that gives a Map': [() => ({ toJSON: () => new Map() }), /class Map/],
  'a cycle': [
    () => {
      const ring: Record<string, unknown> = {}
      ring.next = { ring }
      return ring
    },
    /"next\.ring" contains itself/,
  ],
  'a BigInt': [() => ({ n: 1n }), /"n" is a BigInt/],
  'a function': [() => () => {}, /is a function/],
  'a symbol': [() => [Symbol('s')], /"\[0\]" is a symbol/],
  'a proxy that makes up more and more': [madeUp, /more than 1000000 values/],
  'a list with four thousand million holes': [() => new Array(2 ** 32 - 1), /4294967295 entries/],
}
