import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

/** What one server counts. Nothing is shared between two of them in one process. */
export type Metrics = ReturnType<typeof createMetrics>

const PREFIX = 'holdfast_'
// From a commit on a fast disk to a queue that has stood still for a minute.
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** The instruments of one server, all at zero, in a registry of their own (scenario OPS-07). Times are in seconds. */
export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry, prefix: PREFIX })
  const counter = (name: string, help: string) => new Counter({ name: `${PREFIX}${name}_total`, help, registers })
  const gauge = (name: string, help: string) => new Gauge({ name: PREFIX + name, help, registers })
  const histogram = (name: string, help: string, buckets = SECONDS) =>
    new Histogram({ name: PREFIX + name, help, buckets, registers })

  let connectionsWaiting = () => 0
  new Gauge({
    name: `${PREFIX}connections_waiting`,
    help: 'Reads and writes that wait for the turn of their tenant at the connections of HOLDFAST_DB_POOL',
    registers,
    collect() {
      this.set(connectionsWaiting())
    },
  })

  return {
    drainsInProgress: gauge('drains_in_progress', 'Sessions that this process is running now'),
    drainQueueSeconds: histogram(
      'drain_queue_seconds',
      'Wait of a session for one of the places of HOLDFAST_MAX_DRAINS',
    ),
    providerAttempts: counter('provider_attempts', 'Requests to model providers'),
    retries: counter('retries', 'Provider requests that were made again after a failure'),
    recoveries: counter('recoveries', 'Executions that recovery or a hand-over took to their end'),
    parked: gauge('parked', 'Sessions that are parked until a person acts, as of the last scan'),
    quarantined: gauge('quarantined', 'Rows in quarantine, as of the last scan'),
    /** `what`: the kind of write, as append, chunk or renewal. Few fixed words, never an id. */
    refusedStaleWrites: new Counter({
      name: `${PREFIX}refused_stale_writes_total`,
      help: 'Writes of an owner that was not the owner any more',
      labelNames: ['what'] as const,
      registers,
    }),
    /** `what`: the name of the wait, few fixed words (runner/waits.ts). */
    overdueWaits: new Counter({
      name: `${PREFIX}overdue_waits_total`,
      help: 'Waits of sessions that took longer than they may',
      labelNames: ['what'] as const,
      registers,
    }),
    slowConsumers: counter('slow_consumers', 'Streams that were ended because their reader took nothing'),
    busySessions: counter('busy_sessions', 'Calls refused because too many waited to change the same session'),
    overloaded: counter('overloaded', 'Reads and prompts refused because the process had too many bytes in memory'),
    bytesHeld: gauge(
      'bytes_held',
      'Bytes of answers, stream pages, replays and prompts in memory, of HOLDFAST_BYTES_MAX',
    ),
    operations: gauge('operations', 'GraphQL operations that are being carried out'),
    operationsWaiting: gauge(
      'operations_waiting',
      'GraphQL operations that wait for one of the places of HOLDFAST_MAX_OPERATIONS',
    ),
    /** From now on what this says at the time is shown as `connections_waiting`. */
    showConnectionsWaiting(waiting: () => number) {
      connectionsWaiting = waiting
    },
    /** `why`: rate, admissions, waiting, socket or streams. */
    rateLimited: new Counter({
      name: `${PREFIX}rate_limited_total`,
      help: 'Operations refused because their tenant or socket had too many',
      labelNames: ['why'] as const,
      registers,
    }),
    unauthenticated: counter('unauthenticated', 'Requests and connections without a token that counts'),
    connections: gauge('connections', 'Open connections, WebSockets among them'),
    /** `why`: address or tenant. */
    refusedConnections: new Counter({
      name: `${PREFIX}refused_connections_total`,
      help: 'Connections and requests refused because their address or tenant had too many connections',
      labelNames: ['why'] as const,
      registers,
    }),
    /** `why`: `first bytes`, `crowd` or `unread`. */
    endedConnections: new Counter({
      name: `${PREFIX}ended_connections_total`,
      help: 'Connections that were ended for what they took of the process',
      labelNames: ['why'] as const,
      registers,
    }),
    appendSeconds: histogram('append_seconds', 'From the call of an append to its outcome'),
    appendGroupSize: histogram(
      'append_group_size',
      'Appends that shared one transaction',
      [1, 2, 4, 8, 16, 32, 64, 128],
    ),
    streams: gauge('streams', 'Open event streams'),
    streamsOpened: counter('streams_opened', 'Event streams that were opened'),
    streamsEnded: counter('streams_ended', 'Event streams that have come to their end, however that came'),
    scanSeconds: histogram('scan_seconds', 'Duration of a recovery scan'),
    /** What `text` is in, for the Content-Type header. */
    contentType: registry.contentType,
    /** All of it in the text format of Prometheus. */
    text: (): Promise<string> => registry.metrics(),
  }
}
