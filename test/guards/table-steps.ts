// What keeps a step's text whole and its end possible, whatever is refused and whoever ends it.

import type { Guard } from './mutant.ts'

const chunkFile = 'prisma/migrations/20261130080000_chunks_share_claims/migration.sql'

export const stepGuards: readonly Guard[] = [
  {
    id: 'chunk-longer-wins',
    file: chunkFile,
    find: 'WHERE length(EXCLUDED.text) > length(c.text)',
    replace: 'WHERE HIT(true)',
    keeps: 'a flush that arrives late from cutting off what a later one has written',
    tests: [['promise-chunks.test.ts', 'PROMISE-091']],
  },
  {
    id: 'chunk-sent-again',
    file: chunkFile,
    find: 'DO UPDATE SET text = EXCLUDED.text\n     WHERE length(EXCLUDED.text) > length(c.text)',
    replace: 'DO UPDATE SET text = c.text\n     WHERE HIT(true)',
    keeps: 'a flush whose answer was lost from leaving a hole when it is sent again',
    tests: [['promise-chunks.test.ts', 'PROMISE-090']],
  },
  {
    id: 'chunk-after-its-predecessor',
    file: chunkFile,
    find: 'AND (r.p IS NULL OR EXISTS (',
    replace: 'AND (HIT(true) OR EXISTS (',
    keeps: 'a chunk from being kept behind a hole',
    tests: [['promise-chunks.test.ts', 'PROMISE-092']],
  },
  {
    id: 'chunk-hole-ends-text',
    file: 'src/chunk-text.ts',
    find: 'if (chunk.offset > end) break',
    replace: 'if (HIT(false)) break',
    keeps: 'text behind a hole out of an answer that recovery makes durable',
    tests: [['promise-chunks.test.ts', 'PROMISE-092']],
  },
  {
    id: 'part-end-own',
    file: 'src/live-text.ts',
    find: 'if (ofSession.size === 0) parts.delete(sessionId)',
    replace: 'if (HIT(ofSession).size !== 0) parts.delete(sessionId)',
    keeps: 'the end of a part from taking the text of another that still grows',
    tests: [['promise-chunks.test.ts', 'PROMISE-290']],
  },
  {
    id: 'step-end-refused',
    file: 'src/runner/step.ts',
    find: 'if (thrown instanceof AppendRefusedError) return thrown\n  throw thrown',
    replace: 'throw HIT(thrown)',
    keeps: 'a step from having no end because its end was refused',
    tests: [['promise-step-end.test.ts', 'PROMISE-053']],
  },
  {
    id: 'step-end-with-less',
    file: 'src/runner/end-open.ts',
    find: 'by === tries.length - 1) throw thrown',
    replace: 'HIT(true)) throw thrown',
    keeps: 'an end that is refused for its content from being the last try',
    tests: [['promise-step-end.test.ts', 'PROMISE-054']],
  },
  {
    id: 'decision-refused',
    file: 'src/runner/step-tools.ts',
    find: 'if (!(thrown instanceof AppendRefusedError)) throw thrown\n          infraFailure ??= thrown',
    replace: 'throw HIT(thrown)',
    keeps: 'a decision that cannot be carried out from costing its step the end',
    tests: [['promise-step-end.test.ts', 'PROMISE-055']],
  },
  {
    id: 'call-id-length',
    file: 'src/runner/models/call-text.ts',
    find: 'if (safe === id && id.length <= idMax) return id',
    replace: 'if (HIT(safe === id)) return id',
    keeps: "a provider's call id out of keys that cannot hold it",
    tests: [['promise-step-end.test.ts', 'PROMISE-057']],
  },
  {
    id: 'token-count-end',
    file: 'src/tokens.ts',
    find: 'return Math.min(Math.round(sent), tokensMax)',
    replace: 'return HIT(Math.round(sent))',
    keeps: 'a token count that no column holds out of the end of a step',
    tests: [['promise-step-end.test.ts', 'PROMISE-056']],
  },
  {
    id: 'received-usage',
    file: 'src/runner/settle-open.ts',
    find: 'const told = received?.messageId === messageId ? received.usage : noUsage',
    replace: 'const told = HIT(noUsage)',
    keeps: 'the usage of a stream that has ended, while its commit was under way',
    tests: [['promise-interrupt-text.test.ts', 'PROMISE-101']],
  },
  {
    id: 'received-text',
    file: 'src/runner/settle-open.ts',
    find: 'mine.text.length >= text.length ? mine',
    replace: 'HIT(false) ? mine',
    keeps: 'text that came since the last flush, when the claim was lost under the end of its part',
    tests: [['promise-interrupt-text.test.ts', 'PROMISE-100']],
  },
]
