// What a connection may take of the process, and what an operation leaves behind.
import type { Guard } from './mutant.ts'

export const edge: readonly Guard[] = [
  {
    id: 'first-bytes',
    file: 'src/http/newcomers.ts',
    find: 'if (bytes <= most) return',
    replace: 'if (HIT(true)) return',
    keeps: 'a peer that nobody knows from making the process read megabytes',
    tests: [['promise-edge.test.ts', 'PROMISE-170']],
  },
  {
    id: 'goodbye-unanswered',
    file: 'src/http/connection.ts',
    find: 'if (caller === undefined) setTimeout(() => client.terminate(), lingerMs).unref()',
    replace: 'HIT(caller)',
    keeps: 'a peer that does not answer the goodbye from holding its place',
    tests: [['promise-edge.test.ts', 'PROMISE-171']],
  },
  {
    id: 'crowd',
    file: 'src/http/newcomers.ts',
    find: 'if (unknown.size > most) makeRoom()',
    replace: 'HIT(most)',
    keeps: 'connections without a caller from becoming any number',
    tests: [['promise-edge.test.ts', 'PROMISE-172']],
  },
  {
    id: 'unread-answer',
    file: 'src/http/unread.ts',
    find: 'if (socket.writableLength === 0) {',
    replace: 'if (HIT(true)) {',
    keeps: 'answers that nobody reads from being held for ever',
    tests: [['promise-edge.test.ts', 'PROMISE-174']],
  },
  {
    id: 'unread-hold',
    file: 'src/http/outgoing.ts',
    find: 'const isFull = unsent.bytes > bounds.unsentBytes || unsent.messages > bounds.unsentMessages',
    replace: 'const isFull = HIT(false)',
    keeps: 'answers from piling up for a peer that asks on and does not read',
    tests: [['promise-edge.test.ts', 'PROMISE-230']],
  },
]
