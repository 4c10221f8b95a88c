// What keeps slow peers alive and dead ones from staying, and what bounds bytes and searches.

import type { Guard } from './mutant.ts'

export const bytesGuards: Guard[] = [
  {
    id: 'stall-counts-taken',
    file: 'src/session-stream.ts',
    find: 'if (taken() !== had) return endUnlessTaken(config.stallMs)',
    replace: 'HIT(had)',
    keeps: 'a stream from ending while its reader takes a long item slowly',
    tests: [['promise-slow-readers.test.ts', 'PROMISE-140']],
  },
  {
    id: 'socket-signs-of-life',
    file: 'src/http/paced-socket.ts',
    find: 'quietMs = taking.taken === seen.taken && read === seen.read ? quietMs + ms : 0',
    replace: 'quietMs = HIT(quietMs + ms)',
    keeps: 'a WebSocket whose pong is late from being ended while its bytes go or come',
    tests: [['promise-slow-readers.test.ts', 'PROMISE-141']],
  },
  {
    id: 'socket-takes-nothing',
    file: 'src/http/paced-socket.ts',
    find: 'if (untakenMs >= stallMs + 3 * pingMs)',
    replace: 'if (HIT(false))',
    keeps: 'a peer that sends and takes nothing from staying for ever',
    tests: [['promise-slow-readers.test.ts', 'PROMISE-143']],
  },
]
