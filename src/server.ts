// The roof: settings in, a running server out, and the signals that end it.
import { isatty } from 'node:tty'
import { type Config, loadConfig } from './config.ts'
import { asError } from './errors.ts'
import { createLog } from './log.ts'
import { isWholeScript } from './npm-script.ts'
import { start } from './start.ts'
import { startupProblem } from './startup-problem.ts'

/** npm passes Ctrl-C on to a process that the terminal has told already: what comes again within this time is the same wish. */
const sameWishMs = 1000
/** Beyond the grace of running steps; whatever still holds the process then is not worth waiting for. */
const lateMs = 20_000

let config: Config | null = null
try {
  config = await loadConfig()
  // Whoever reads the log may go away, a terminal or a pipe: work goes on, without one. An error here that nobody hears would be uncaught,
  // be logged, fail again, and so on for ever.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => {})
  // Standard output is for the one line that people and scripts read.
  const log = createLog(config.logLevel, process.stderr)
  process.on('uncaughtException', (error) => log.error({ err: asError(error) }, 'uncaught error'))
  process.on('unhandledRejection', (reason) => log.error({ err: asError(reason) }, 'unhandled rejection'))

  let stopAsked = false
  let askedAt = 0
  let running: Awaited<ReturnType<typeof start>> | undefined
  /** Something is gone that this process cannot do without. */
  let why: string | undefined
  const close = async () => {
    try {
      await running?.close(why && 'its data directory was moved or removed: the server is stopping')
      process.exit(why === undefined ? 0 : 1)
    } catch (error) {
      log.error({ err: asError(error) }, 'stopping failed')
      process.exit(1)
    }
  }
  const stop = (signal: NodeJS.Signals) => {
    if (stopAsked) {
      if (performance.now() - askedAt > sameWishMs) process.exit(1)
      log.info({ signal }, 'stopping already; a signal a second after the first ends the process at once')
      return
    }
    stopAsked = true
    askedAt = performance.now()
    log.info({ signal }, 'stopping')
    end()
  }
  const end = () => {
    setTimeout(() => process.exit(1), config!.shutdownGraceMs + lateMs).unref()
    // A start that is under way is let through first: what it has begun can only then be ended in order.
    if (running) void close()
  }
  const gone = (what: string) => {
    log.error(what)
    why = what
    if (stopAsked) return
    stopAsked = true
    askedAt = performance.now()
    end()
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  // The terminal has gone. Where none was (nohup, whose wish Node forgets; a service) nobody has told this process anything.
  process.on('SIGHUP', (signal) => {
    if ([0, 1, 2].some((descriptor) => isatty(descriptor))) stop(signal)
    else log.info({ signal }, 'this process has no terminal: it goes on; SIGTERM ends it')
  })
  // `npm start`: npm and its shell die of a SIGTERM without passing it on; what is left of it is another parent process. In the background of a
  // script the parent changes because the script is over.
  if (isWholeScript(process.env.npm_lifecycle_script, process.argv[1])) {
    const parent = process.ppid
    setInterval(() => {
      if (process.ppid !== parent && !stopAsked) stop('SIGTERM')
    }, 500).unref()
  }

  // With it OpenTelemetry's SDK would write to the console; ours decides what of it is logged.
  delete process.env.OTEL_LOG_LEVEL
  running = await start({ config, log, gone })
  if (stopAsked) await close()
  process.stdout.write(`Holdfast is ready at ${running.url} (GraphiQL at ${running.url}graphiql)\n`)
} catch (error) {
  process.stderr.write(`holdfast: ${startupProblem(error, config)}\n`)
  process.exit(1)
}
