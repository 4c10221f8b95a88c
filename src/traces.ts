// OpenTelemetry's SDK, behind the spans of tracing.ts. It is loaded here and nowhere else, and only when the settings ask for traces; it reads
// OTEL_* itself. Whatever is wrong with it or with the collector is a line in the log and changes nothing else.

import { context, DiagLogLevel, diag, propagation, trace } from '@opentelemetry/api'
import { asError } from './errors.ts'
import type { Log } from './log.ts'
import { endOpenSpans } from './tracing.ts'

export interface Traces {
  /** Ends what is open and sends what is left, within this time. Never rejects. */
  stop(withinMs: number): Promise<void>
}

/** While it runs, one line of it in this time; a collector that is down would fill the log. */
const quietMs = 60_000

/** Starts sending spans. Never rejects: a server that cannot tell of itself still serves. `instance`: this process. */
export async function startTraces(log: Log, instance: string): Promise<Traces> {
  const say = sayer(log)
  try {
    const { NodeSDK, resources, core } = await import('@opentelemetry/sdk-node')
    const named = resources.resourceFromAttributes({ 'service.name': 'holdfast', 'service.instance.id': instance })
    const sdk = new NodeSDK({
      resource: resources.defaultResource().merge(named),
      // By default it would also tell of the host, and of the process with its arguments (SEC-10).
      resourceDetectors: [resources.envDetector],
      // Left out, they would be sent too.
      metricReaders: [],
      logRecordProcessors: [],
    })
    // After the SDK was made, which may have set a logger of its own, and before it starts, which is when it looks at the settings.
    const level = log.isLevelEnabled('debug') ? DiagLogLevel.DEBUG : DiagLogLevel.INFO
    diag.setLogger(say.diag, { logLevel: level, suppressOverrideMessage: true })
    core.setGlobalErrorHandler((error) =>
      say.line('warn', 'spans could not be sent', asError(typeof error === 'string' ? new Error(error) : error)),
    )
    sdk.start()
    say.begin()
    return {
      async stop(withinMs) {
        endOpenSpans()
        let timer: NodeJS.Timeout | undefined
        const late = new Promise<'late'>((resolve) => {
          timer = setTimeout(() => resolve('late'), withinMs)
        })
        const sent = sdk
          .shutdown()
          .catch((thrown: unknown) => say.line('warn', 'spans could not be sent', asError(thrown)))
        if ((await Promise.race([sent, late])) === 'late')
          log.warn({ withinMs }, 'the last spans were not taken in time')
        clearTimeout(timer)
        for (const part of [trace, context, propagation, diag]) part.disable()
      },
    }
  } catch (thrown) {
    log.error({ err: asError(thrown) }, `traces are not sent: ${asError(thrown).message}`)
    return { stop: async () => {} }
  }
}

type Level = 'error' | 'warn' | 'info' | 'debug'

/** Passes on what the SDK says: all of it while it looks at its settings, then so much that it cannot flood. */
function sayer(log: Log) {
  let isRunning = false
  let quietUntil = 0
  let more = 0
  const line = (said: Level, text: string, err?: Error) => {
    const now = performance.now()
    // Of each batch that is tried again it tells by the way.
    const level = isRunning && said === 'info' ? 'debug' : said
    if (isRunning && level !== 'debug') {
      if (now < quietUntil) {
        more++
        return
      }
      quietUntil = now + quietMs
    }
    log[level]({ part: 'traces', ...(err && { err }), ...(more > 0 && { more }) }, text)
    more = 0
  }
  const told =
    (level: Level) =>
    (text: string, ...rest: unknown[]) =>
      line(level, [text, ...rest.filter((each) => typeof each === 'string')].join(' '))
  return {
    line,
    begin() {
      isRunning = true
    },
    diag: {
      error: told('error'),
      warn: told('warn'),
      info: told('info'),
      debug: told('debug'),
      verbose: told('debug'),
    },
  }
}
