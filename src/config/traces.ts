/** What stands here names traces and where they go. What it says beyond that is for OpenTelemetry's SDK, which reads OTEL_* itself. */
const destinations = ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT']

/** Are traces asked for? The SDK is not even loaded otherwise. An empty variable counts as not set. */
export function wantsTraces(env: NodeJS.ProcessEnv): boolean {
  if (env.OTEL_SDK_DISABLED?.trim().toLowerCase() === 'true') return false
  const exporter = env.OTEL_TRACES_EXPORTER?.trim()
  if (exporter) return exporter !== 'none'
  return destinations.some((name) => Boolean(env[name]?.trim()))
}

/** Notes on what is asked for and not given: metrics are scraped from /metrics and logs are read from standard error, neither is sent. */
export function unsentSignals(env: NodeJS.ProcessEnv): string[] {
  const isAsked = (name: string) => env[name]?.trim() && env[name]?.trim() !== 'none'
  return [
    ...(isAsked('OTEL_METRICS_EXPORTER') ? ['OTEL_METRICS_EXPORTER is not used: the metrics are at /metrics'] : []),
    ...(isAsked('OTEL_LOGS_EXPORTER') ? ['OTEL_LOGS_EXPORTER is not used: the log is on standard error'] : []),
  ]
}
