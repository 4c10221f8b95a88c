import { AsyncLocalStorage } from 'node:async_hooks'
import { type DestinationStream, type LevelWithSilent, type Logger, pino, stdTimeFunctions } from 'pino'
import { asError, fieldOf, isError } from './thrown.ts'

export type Log = Logger

// Compared in lower case without - and _, as apiKey, api_key and api-key are all about.
const SECRET_FIELDS = new Set(
  'authorization proxyauthorization cookie setcookie password passwd secret clientsecret token accesstoken authtoken refreshtoken apikey apikeys xapikey databaseurl privatekey'.split(
    ' ',
  ),
)
const CENSORED = '[redacted]'
const DEPTH = 6

const surroundings = new AsyncLocalStorage<Record<string, string>>()

/**
 * Every line that is logged while `work` runs carries these fields, also one about an error that nobody catches in a timer or a callback
 * that it leaves behind: a tool's stray error can be told to its session (OPS-08).
 */
export const withLogFields = <T>(fields: Record<string, string>, work: () => T): T => surroundings.run(fields, work)
const VALUES = 1000

/**
 * JSON lines to standard output, or to `destination`. Fields with the names of secrets are redacted at any depth up to
 * six; deeper values, and what is beyond 1000 values a line, are left out. An error (as first argument, or in the field `err`) is cut down to what
 * `describeError` keeps.
 */
export function createLog(level: LevelWithSilent, destination?: DestinationStream): Log {
  const options = {
    level,
    timestamp: stdTimeFunctions.isoTime,
    // A copy: pino adds the line's own fields to it.
    mixin: () => ({ ...surroundings.getStore() }),
    formatters: {
      level: (label: string) => ({ level: label }),
      log: (fields: Record<string, unknown>) => redact(fields) as Record<string, unknown>,
    },
    serializers: { err: (error: unknown) => error },
    hooks: {
      // Without a message of its own a line takes over the error's, past the serializer.
      logMethod(this: Logger, args: Parameters<Logger['info']>, method: (...args: Parameters<Logger['info']>) => void) {
        const [first, message] = args as unknown[]
        const error = isError(first) ? first : fieldOf(first, 'err')
        if (isError(error) && message === undefined) {
          const fields = isError(first) ? { err: first } : first
          return method.apply(this, [fields, safeMessage(asError(error))] as unknown as Parameters<Logger['info']>)
        }
        return method.apply(this, args)
      },
      // The last gate: credentials inside texts, whoever put them there.
      streamWrite: scrub,
    },
  }
  const log: Log = destination ? pino(options, destination) : pino(options)
  // What a child is bound to passes no formatter. Children inherit this property, so theirs are covered too.
  const { child } = log
  log.child = function (this: Log, bindings: Record<string, unknown>, ...more: unknown[]) {
    return Reflect.apply(child, this, [redact(bindings), ...more])
  } as typeof child
  return log
}

/** What a log may tell of an error: kind, code, status, message, frames and causes; no request, response or query. */
export function describeError(error: Error, depth = 0): Record<string, unknown> {
  const readable = asError(error)
  // Each is read once: what foreign code throws may answer otherwise the second time.
  const code = fieldOf(error, 'code')
  const status = fieldOf(error, 'statusCode') ?? fieldOf(error, 'status')
  const cause = fieldOf(error, 'cause')
  const errors = fieldOf(error, 'errors')
  const inner = (thrown: unknown) => (isError(thrown) ? describeError(thrown, depth + 1) : typeof thrown)
  return {
    type: readable.name,
    message: safeMessage(readable),
    ...(isPlain(code) && { code }),
    ...(isPlain(status) && { status }),
    stack: frames(readable),
    ...(cause !== undefined && depth < 3 && { cause: inner(cause) }),
    ...(Array.isArray(errors) &&
      error instanceof AggregateError &&
      depth < 3 && { errors: errors.slice(0, 5).map(inner) }),
  }
}

/** These put what they were given into their message: rows of a query, output of a model, answers of a provider. */
const QUOTING =
  /^(PrismaClient\w+|ZodError|AI_(TypeValidation|JSONParse|InvalidPrompt|InvalidToolInput|NoObjectGenerated)\w*)$/

function safeMessage({ name, message }: Error): string {
  if (!QUOTING.test(name)) return scrub(message.slice(0, 1000))
  // Prisma's reason is its last line, the query stands above it.
  const reason = name.startsWith('PrismaClient') ? message.trim().split('\n').at(-1)! : ''
  return `${reason.slice(0, 300)} (the rest of the message is left out: it may quote data)`.trim()
}

/** The stack without its head, which repeats the message. */
function frames(error: Error): string | undefined {
  const stack = fieldOf(error, 'stack')
  if (typeof stack !== 'string') return undefined
  return stack
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 30)
    .join('\n')
}

/** A copy without secrets. Bounded in depth and in size, as somebody may log a socket with all that hangs on it. Never throws. */
function redact(value: unknown, depth = 0, left = { values: VALUES }): unknown {
  try {
    return redacted(value, depth, left)
  } catch {
    // A getter or a proxy of foreign code: a line less is better than a failure of whoever wanted to tell of one.
    return '[unreadable]'
  }
}

function redacted(value: unknown, depth: number, left: { values: number }): unknown {
  if (isError(value)) return describeError(value)
  if (typeof value !== 'object' || value === null || value instanceof Date) return value
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`
  if (depth === DEPTH) return '[deeper]'
  const copy: [string, unknown][] = []
  for (const [key, inner] of Object.entries(value)) {
    if (left.values-- <= 0) break
    const isSecret = SECRET_FIELDS.has(key.toLowerCase().replaceAll(/[-_]/g, ''))
    copy.push([key, isSecret && inner != null ? CENSORED : redact(inner, depth + 1, left)])
  }
  return Array.isArray(value) ? copy.map(([, inner]) => inner) : Object.fromEntries(copy)
}

/** Takes out user:password@ in URLs, Bearer and Basic credentials, and keys in the form that providers give them. */
function scrub(text: string): string {
  return text
    .replaceAll(/(:\/\/)[^\s/"'@\\]+@/g, `$1${CENSORED}@`)
    .replaceAll(/\b(Bearer|Basic) +[\w.~+/=-]{8,}/gi, `$1 ${CENSORED}`)
    .replaceAll(/\bsk-[\w-]{8,}/g, CENSORED)
}

const isPlain = (value: unknown) => typeof value === 'string' || typeof value === 'number'
