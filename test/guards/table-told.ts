// What keeps the server's own words (paths, addresses, SQL) from those who have nothing to do with its machine.

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: texts of the sources
import type { Guard } from './mutant.ts'

const test = 'promise-told.test.ts'

export const toldGuards: readonly Guard[] = [
  {
    id: 'told-quarantine',
    file: 'src/recovery/resolver.ts',
    find: `const { code, message } = told(thrown, 'session id')`,
    replace: `const { code, message } = HIT({ code: 'ROWS', message: asError(thrown).message })`,
    keeps: 'what the database said out of the reason of a quarantine',
    tests: [[test, 'PROMISE-160']],
  },
  {
    id: 'told-answer',
    file: 'src/schema/masking.ts',
    find: `const { code, message } = told(surprise, 'request id')`,
    replace: `const { code, message } = { ...told(surprise, 'request id'), message: HIT(surprise.message) }`,
    keeps: 'what the server met out of an answer or a stream',
    tests: [
      [test, 'PROMISE-161'],
      [test, 'PROMISE-162'],
    ],
  },
  {
    id: 'told-tool',
    file: 'src/runner/tools/run-tool.ts',
    find: 'const words = toolWords(thrown)',
    replace: 'const words = HIT(asError(thrown).message)',
    keeps: 'a path or an address that the system named out of the error of a tool',
    tests: [[test, 'PROMISE-164']],
  },
  {
    id: 'told-output',
    file: 'src/runner/plain-json.ts',
    find: 'toolWords(thrown)}`)',
    replace: 'HIT((thrown as Error).message)}`)',
    keeps: 'the same out of what is said of an output that cannot be read',
    tests: [[test, 'PROMISE-164']],
  },
  {
    id: 'told-rule',
    file: 'src/config/tool-input.ts',
    find: 'cannot be checked: ${toolWords(thrown)}',
    replace: 'cannot be checked: ${HIT((thrown as Error).message)}',
    keeps: "the same out of what is said of a rule of a tool's input that failed",
    tests: [[test, 'PROMISE-164']],
  },
  {
    id: 'told-provider-label',
    file: 'src/runner/models/failure-evidence.ts',
    find: '/^[a-z_][\\w.-]{0,63}$/i.test(value)',
    replace: 'HIT(true)',
    keeps: 'anything but an identifier of the provider out of the error of a step',
    tests: [[test, 'PROMISE-163']],
  },
  {
    id: 'told-replay-database',
    file: 'src/verify.ts',
    find: 'if (isOfDatabase(thrown) || thrown instanceof OverloadedError) throw thrown',
    replace: 'HIT(thrown)',
    keeps: 'a database that cannot be read from being told as a fault of a log',
    tests: [[test, 'PROMISE-162']],
  },
  {
    id: 'told-replay-words',
    file: 'src/verify.ts',
    find: `: told(thrown, 'session id').message`,
    replace: ': HIT(String(thrown))',
    keeps: 'what code of the server stumbled over out of what is said of a log',
    tests: [[test, 'PROMISE-165']],
  },
]
