// Where mutants are made, area by area, and the tests that are the closest to each source.

export interface Area {
  name: string
  /** Sources as they stand from the root of the repository, and the names of tests without `.test.ts`. The first that fits counts. */
  sources: readonly (readonly [source: RegExp, tests: readonly string[]])[]
}

const stops = [
  'interrupt',
  'promise-predicates',
  'decided-again',
  'interrupt-dead',
  'interrupt-races',
  'interrupt-nodes',
]
const logs = ['stream-log', 'stream-text', 'stream-outage', 'auth-streams']
const reads = ['schema-read', 'schema-status', 'auth-tenants', 'sessions']

/** The functions of the migrations, by the name they have now; of each the newest definition counts. */
export const functionTests: Readonly<Record<string, readonly string[]>> = {
  holdfast_append_rows: [
    'door-rules',
    'log',
    'claim',
    'promise-predicates',
    'recovery-guards',
    'log-groups',
    'stream-view',
    'ask',
  ],
  holdfast_write_chunks: ['door-rules', 'claim', 'stream-text', 'stale-owner'],
  holdfast_renew: ['claim', 'promise-leases', 'leases', 'database-silent'],
  holdfast_write_fault: ['promise-database-now'],
  holdfast_execution_started: ['promise-references', 'claim'],
}

/** What the tables accept. */
export const rowTests: readonly string[] = ['database-rules', 'promise-references', 'door-rules', 'log', 'claim']

export const areas: readonly Area[] = [
  {
    name: 'recovery',
    sources: [
      [/^src\/recovery\/liveness\.ts$/, ['recovery-guards', 'promise-leases', 'recovery-liveness']],
      [
        /^src\/recovery\/quarantine\.ts$/,
        ['recovery-quarantine', 'promise-discard', 'recovery-guards', 'interrupt-dead'],
      ],
      [
        /^src\/recovery\/(resolution|evidence)\.ts$/,
        ['recovery', 'recovery-guards', 'recovery-quarantine', 'recovery-together'],
      ],
      [/^src\/recovery\/takeover-together\.ts$/, ['recovery-together', 'recovery-scan']],
      [
        /^src\/recovery\/passes\.ts$/,
        ['promise-passes', 'promise-predicates', 'recovery-scan', 'recovery-guards', 'ask-crash'],
      ],
      [
        /^src\/recovery\/(resolver|settle-rows)\.ts$/,
        ['recovery-scan', 'claim-race', 'recovery-guards', 'recovery-liveness'],
      ],
      [/^src\/recovery\/.*\.ts$/, ['recovery-guards', 'recovery', 'recovery-scan', 'recovery-liveness']],
    ],
  },
  {
    name: 'runner',
    sources: [
      [/^src\/runner\/leases\.ts$/, ['leases', 'promise-leases', 'stale-owner', 'claim-owner', 'interrupt-nodes']],
      [/^src\/runner\/interrupt\.ts$/, stops],
      [/^src\/runner\/decide\.ts$/, ['ask', 'decided-again', 'promise-predicates', 'ask-stop', 'auth-tenants']],
      [/^src\/project\.ts$/, ['stream-view', 'promise-predicates', 'log', 'ask', 'recovery-scan', 'interrupt']],
    ],
  },
  {
    name: 'streams',
    sources: [
      [
        /^src\/activity-(stream|hub|poll)\.ts$/,
        ['stream-activity', 'promise-predicates', 'promise-listeners', 'auth-tenants'],
      ],
      [/^src\/session-stream\.ts$/, logs],
      [
        /^src\/(live-text|stream-[a-z]+)\.ts$/,
        ['stream-text', 'stream-log', 'promise-listeners', 'stream-outage', 'stale-owner'],
      ],
    ],
  },
  {
    name: 'schema',
    sources: [
      [/^src\/schema\/limits\.ts$/, ['answer-size', 'http', 'conformance']],
      [/^src\/schema\/status\.ts$/, ['schema-status', 'schema-read']],
      [/^src\/schema\/subscription\.ts$/, ['auth-tenants', 'auth-streams', 'http']],
      [/^src\/schema\/recovery\.ts$/, ['recovery-quarantine-read', ...reads]],
      [/^src\/schema\/.*\.ts$/, [...reads, 'http', 'recovery-quarantine-read', 'answer-size', 'auth-streams']],
    ],
  },
]
