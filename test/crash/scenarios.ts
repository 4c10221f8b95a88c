// The scenarios whose every point is a place to die. Each is short, and the same in every run: a tool that runs beside the stream ends when
// the stream's end is durable, a client acts when the provider waits for it.
import type { Scenario } from './world.ts'

const streamed = 'done append step.streamed'

const text: Scenario = {
  name: 'text',
  proves: 'REC-01, REC-02, REC-03, REC-07, REC-36',
  answer: () => [{ text: 'good|day' }, { now: 'renew' }],
  async script(client) {
    await client.create()
    await client.prompt('hello')
  },
}

const textByLock: Scenario = {
  ...text,
  name: 'text, the dead seen by their locks',
  proves: 'REC-32, REC-36',
  byLock: true,
}

const parallelTools: Scenario = {
  name: 'parallel tools',
  proves: 'REC-04, REC-05, REC-36',
  tools: { quick: {}, slow: { lasts: streamed } },
  answer: ({ hasResults }) => (hasResults ? [{ text: 'both' }] : [{ call: 'quick' }, { call: 'slow' }]),
  async script(client) {
    await client.create()
    await client.prompt('work')
  },
}

const approval: Scenario = {
  name: 'approval',
  proves: 'REC-35, REC-36',
  tools: { deploy: { asks: true } },
  answer: ({ hasResults }) => (hasResults ? [{ text: 'out' }] : [{ call: 'deploy' }]),
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.attend('APPROVE')
  },
}

const question: Scenario = {
  name: 'question',
  proves: 'REC-35, REC-36',
  answer: ({ hasResults }) => (hasResults ? [{ text: 'so' }] : [{ call: 'ask_user', input: { question: 'Go on?' } }]),
  async script(client) {
    await client.create()
    await client.prompt('please')
    await client.attend('ANSWER')
  },
}

const declineAndGoOn: Scenario = {
  name: 'decline and go on',
  proves: 'REC-35, REC-36',
  tools: { deploy: { asks: true } },
  answer: approval.answer,
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.attend('DECLINE_AND_CONTINUE')
  },
  holds: ({ effects }) => (effects.size > 0 ? 'a declined tool ran' : null),
}

const declineAndStop: Scenario = {
  name: 'decline and stop',
  proves: 'REC-35, REC-36',
  tools: { deploy: { asks: true } },
  answer: approval.answer,
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.attend('DECLINE_AND_STOP')
  },
  holds: ({ effects }) => (effects.size > 0 ? 'a declined tool ran' : null),
}

const declineBesideATool: Scenario = {
  name: 'decline and stop beside a tool that runs',
  proves: 'REC-09, REC-36',
  tools: { deploy: { asks: true }, slow: { lasts: 'never' } },
  answer: ({ hasResults }) => (hasResults ? [{ text: 'out' }] : [{ call: 'slow' }, { call: 'deploy' }]),
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.reached(streamed)
    await client.decide('DECLINE_AND_STOP')
    await client.rest()
    await client.resolve('DISCARD')
  },
  holds: ({ effects }) => ([...effects.keys()].some((id) => id.startsWith('deploy')) ? 'a declined tool ran' : null),
}

const steerAndQueue: Scenario = {
  name: 'steer and queue',
  proves: 'REC-23, REC-36',
  answer: ({ nth, words }) => [
    { text: `re ${words}` },
    ...(nth === 1 ? [{ hold: 'told' } as const] : []),
    { text: 'that is all' },
  ],
  async script(client) {
    await client.create()
    await client.prompt('first')
    await client.reached('holding told')
    await client.prompt('steered')
    await client.prompt('queued', { delivery: 'QUEUE' })
    client.raise('told')
  },
}

const edits: Scenario = {
  name: 'what waits is changed, withdrawn, resumed',
  proves: 'REC-36, REC-37',
  answer: ({ words }) => [{ text: `re ${words}` }],
  async script(client) {
    await client.create()
    await client.rename('a title')
    await client.prompt('kept', { resume: false })
    await client.prompt('gone', { resume: false })
    await client.moves('kept', 'QUEUE')
    await client.withdraw('gone')
    await client.resume()
  },
}

const interrupt: Scenario = {
  name: 'interrupt',
  proves: 'REC-09, REC-36',
  tools: { slow: { lasts: 'never' } },
  answer: () => [{ text: 'half' }, { call: 'slow' }, { hold: 'never' }],
  async script(client) {
    await client.create()
    await client.prompt('work')
    await client.reached('holding never')
    await client.interrupt()
  },
}

const interruptWaiting: Scenario = {
  name: 'interrupt while a person is asked',
  proves: 'REC-35, REC-36',
  tools: { deploy: { asks: true } },
  answer: approval.answer,
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.rest()
    await client.prompt('later', { delivery: 'QUEUE' })
    // It only runs where a death has ended what was asked; then its own question is what is stopped.
    await client.rest()
    await client.interrupt()
  },
  holds: ({ effects }) => (effects.size > 0 ? 'a tool ran that nobody approved' : null),
}

const retryBefore: Scenario = {
  name: 'retry before output',
  proves: 'REC-36, RETRY-12',
  answer: ({ nth }) => [...(nth === 1 ? [{ fail: 'overload' } as const] : []), { text: 'at last' }],
  async script(client) {
    await client.create()
    await client.prompt('hello')
  },
}

const retryAfter: Scenario = {
  name: 'retry after output',
  proves: 'REC-36, RETRY-12',
  tools: { quick: {} },
  answer: ({ nth }) =>
    nth === 1
      ? [{ text: 'half' }, { call: 'quick' }, { hold: 'done append tool.succeeded(quick)' }, { fail: 'mid' }]
      : [{ text: 'whole' }],
  async script(client) {
    await client.create()
    await client.prompt('hello')
  },
}

const automaticCompaction: Scenario = {
  name: 'automatic compaction',
  proves: 'REC-06, REC-36, COMP-16, COMP-17, COMP-20',
  answer: ({ kind, words }) =>
    kind === 'compaction'
      ? [{ text: 'a summary' }]
      : [{ text: `re ${words}` }, { tokens: words === 'first' ? 3500 : 9 }],
  async script(client) {
    await client.create('world/small')
    await client.prompt('first')
    await client.rest()
    await client.prompt('second')
  },
}

const manualCompaction: Scenario = {
  name: 'manual compaction',
  proves: 'REC-36, COMP-16, COMP-17',
  answer: ({ kind, words }) => (kind === 'compaction' ? [{ text: 'a summary' }] : [{ text: `re ${words}` }]),
  async script(client) {
    await client.create()
    await client.prompt('first')
    await client.rest()
    await client.compact()
  },
}

const overflow: Scenario = {
  name: 'overflow',
  proves: 'REC-36, COMP-21',
  answer: ({ kind, words, nth }) => {
    if (kind === 'compaction') return [{ text: 'a summary' }]
    return [...(words === 'second' && nth === 2 ? [{ fail: 'overflow' } as const] : []), { text: `re ${words}` }]
  },
  async script(client) {
    await client.create()
    await client.prompt('first')
    await client.rest()
    await client.prompt('second')
  },
}

const parking: Scenario = {
  name: 'parking',
  proves: 'REC-26, REC-28, REC-36',
  config: { recoveryAttempts: 1 },
  prelude: [
    { label: 'request for a step', nth: 1, mode: 'after' },
    { label: 'append text.started', nth: 1, mode: 'after' },
  ],
  answer: () => [{ text: 'good day' }],
  async script(client) {
    await client.create()
    await client.prompt('hello')
    await client.rest()
    await client.resume()
  },
}

const recoveryItself: Scenario = {
  name: 'recovery itself',
  proves: 'REC-13, REC-14, REC-15, REC-36',
  tools: { quick: {}, slow: { lasts: 'never' } },
  prelude: [{ label: 'append step.streamed', nth: 1, mode: 'after' }],
  answer: () => [{ text: 'half' }, { call: 'quick' }, { call: 'slow' }],
  async script(client) {
    await client.create()
    await client.prompt('work')
  },
}

const stopCutOff: Scenario = {
  name: 'a stop that is cut off',
  proves: 'REC-09, REC-29, REC-30, REC-36',
  tools: interrupt.tools!,
  prelude: [{ label: 'append interrupt.requested + to CANCELLING', nth: 1, mode: 'after' }],
  answer: interrupt.answer,
  async script(client) {
    await client.create()
    await client.prompt('work')
    await client.reached('holding never')
    await client.interrupt(true)
    await client.rest()
    await client.resolve('RETRY')
  },
}

const expiry: Scenario = {
  name: 'an approval that expires',
  proves: 'REC-35, REC-36',
  tools: { deploy: { asks: true, expiresMs: 3_600_000 } },
  answer: approval.answer,
  async script(client) {
    await client.create()
    await client.prompt('deploy')
    await client.rest()
    await client.passTime(3_700_000)
    await client.scan()
  },
  holds: ({ effects }) => (effects.size > 0 ? 'a tool ran that nobody approved' : null),
}

const handOver: Scenario = {
  name: 'hand-over',
  proves: 'REC-41, REC-36',
  tools: { slow: { lasts: 'never' } },
  answer: () => [{ text: 'half' }, { call: 'slow' }, { hold: 'never' }],
  async script(client) {
    await client.create()
    await client.prompt('work')
    await client.reached('holding never')
    await client.stopServer()
  },
}

export const scenarios: readonly Scenario[] = [
  text,
  textByLock,
  parallelTools,
  approval,
  question,
  declineAndGoOn,
  declineAndStop,
  declineBesideATool,
  steerAndQueue,
  edits,
  interrupt,
  interruptWaiting,
  retryBefore,
  retryAfter,
  automaticCompaction,
  manualCompaction,
  overflow,
  parking,
  recoveryItself,
  stopCutOff,
  expiry,
  handOver,
]
