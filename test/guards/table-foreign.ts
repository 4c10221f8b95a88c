// Guards against what foreign code does: tools, models, rules of the config. What they keep out is a session that stands still.

import type { Guard } from './mutant.ts'

export const foreignGuards: readonly Guard[] = [
  {
    id: 'thrown-read-once',
    file: 'src/thrown.ts',
    find: 'if (isError(thrown) && isOrdinary(thrown)) return thrown',
    replace: 'if (HIT(isError(thrown))) return thrown',
    keeps: 'an Error whose message is no text from failing whoever deals with it',
    tests: [['promise-foreign.test.ts', 'PROMISE-010: that throws']],
  },
  {
    id: 'output-has-form',
    file: 'src/runner/plain-json.ts',
    find: 'if (isEmptied(given, keys)) refuse(',
    replace: 'if (HIT(false)) refuse(',
    keeps: 'a Map, a generator or a Promise from being kept as an empty object',
    tests: [['promise-foreign.test.ts', 'PROMISE-011: that gives']],
  },
  {
    id: 'tool-late-told',
    file: 'src/runner/tools/run-tool.ts',
    find: "if (outcome.kind === 'failed' && outcome.error.code === 'TOOL_TIMEOUT') void ran.then(run.late)",
    replace: 'HIT(ran)',
    keeps: 'the end of a tool after its deadline from going unseen',
    tests: [['promise-foreign.test.ts', 'PROMISE-012']],
  },
  {
    id: 'request-limit',
    file: 'src/runner/models/wire.ts',
    find: 'if (clock.now() > until) {',
    replace: 'if (HIT(false)) {',
    keeps: 'a model that sends what says nothing for ever from keeping its step for ever',
    tests: [['promise-models.test.ts', 'PROMISE-017']],
  },
  {
    id: 'part-shape',
    file: 'src/runner/models/wire.ts',
    find: "if (typeof fieldOf(part, 'type') !== 'string') throw",
    replace: 'if (HIT(false)) throw',
    keeps: 'what is no part of a stream from being taken for one that says nothing',
    tests: [['promise-models.test.ts', 'PROMISE-016: that gives']],
  },
  {
    id: 'overdue-wait-fails',
    file: 'src/runner/waits.ts',
    find: 'wait.fail?.(new OverdueWait(wait.what, wait.mayMs))',
    replace: 'HIT(wait)',
    keeps: 'a session from waiting for ever for what never comes',
    tests: [['promise-waits.test.ts', 'PROMISE-018']],
  },
  {
    id: 'stood-still-not-counted',
    file: 'src/runner/waits.ts',
    find: 'wait.since += stood',
    replace: 'HIT(stood)',
    keeps: 'the waits of a process that stood still from all failing at once',
    tests: [['promise-waits.test.ts', 'PROMISE-019']],
  },
  {
    id: 'failed-drain-joined',
    file: 'src/runner/step.ts',
    find: `  hold.end('failed')
  await tools.stop()
  throw thrown`,
    replace: '  throw HIT(thrown)',
    keeps: 'the claim of a failed drain from being settled while its tools still run',
    tests: [['promise-failed-drain.test.ts', 'PROMISE-060']],
  },
  {
    id: 'failed-drain-counted',
    file: 'src/recovery/takeover.ts',
    find: 'const reason = handover ? null : parkReason(evidence, core.config)',
    replace: "const reason = HIT(right.kind !== 'expired') ? null : parkReason(evidence, core.config)",
    keeps: 'a drain that fails again and again from doing so without an end',
    tests: [['promise-failed-drain.test.ts', 'PROMISE-061']],
  },
]
