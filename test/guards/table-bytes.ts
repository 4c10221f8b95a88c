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
  {
    id: 'answer-bytes',
    file: 'src/schema/account.ts',
    find: `  const account = accountOf(context)
  if (bytes > bytesLeft(context)) refuseLarge(context)
  account.bytes += bytes
  const release`,
    replace: `  const account = accountOf(context)
  account.bytes += HIT(bytes)
  const release`,
    keeps: 'an answer of more bytes than one may have from being read',
    tests: [['promise-bytes.test.ts', 'PROMISE-181']],
  },
  {
    id: 'answer-bytes-repeated',
    file: 'src/schema/large.ts',
    find: 'if (found.used) repeat(context, found.bytes)',
    replace: 'HIT(found.used)',
    keeps: 'the same large value from standing in an answer any number of times',
    tests: [['promise-bytes.test.ts', 'PROMISE-181']],
  },
  {
    id: 'budget-share',
    file: 'src/byte-budget.ts',
    find: 'const mayHave = ({ holder, bytes }: Waiter) => ownOf(holder) + bytes <= most',
    replace: 'const mayHave = ({ holder, bytes }: Waiter) => HIT(ownOf(holder) + bytes >= 0)',
    keeps: 'one tenant from having all bytes of the process',
    tests: [['promise-bytes.test.ts', 'PROMISE-184: a holder']],
  },
  {
    id: 'query-asks-for-room',
    file: 'src/schema/read-snapshot.ts',
    find: 'release = await takeRoom(context, smallBytes)',
    replace: 'HIT(release)',
    keeps: 'queries from taking connections while the process has no room for their answers',
    tests: [['promise-bytes.test.ts', 'PROMISE-182']],
  },
  {
    id: 'stream-page-bytes',
    file: 'src/event-pages.ts',
    find: 'if (Number(total) > bytesMax) return { events, bytes, nextBytes: size }',
    replace: 'if (HIT(false)) return { events, bytes, nextBytes: size }',
    keeps: 'a large event from being read before there is room for it',
    tests: [['promise-bytes.test.ts', 'PROMISE-185']],
  },
  {
    id: 'append-queue-bytes',
    file: 'src/append-queue.ts',
    find: 'waits > 0 && waits + bytes > queueBytesMax',
    replace: 'HIT(false)',
    keeps: 'appends that wait from filling the memory',
    tests: [['promise-bytes.test.ts', 'PROMISE-188']],
  },
  {
    id: 'search-word-length',
    file: 'src/schema/sessions.ts',
    find: 'if (characters > wordCharactersMax)',
    replace: 'if (HIT(false))',
    keeps: 'a search for a word of any length',
    tests: [['promise-search.test.ts', 'PROMISE-190']],
  },
  {
    id: 'query-time-limit',
    file: 'src/schema/read-snapshot.ts',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: as it stands in the source
    find: "set_config('statement_timeout', ${String(core.config.queryMs)}, true)",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the same
    replace: "set_config('statement_timeout', ${HIT('0')}, true)",
    keeps: 'a search from going on in the database for as long as it likes',
    tests: [['promise-search.test.ts', 'PROMISE-193']],
  },
]
