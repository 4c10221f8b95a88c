// A server with one promise broken on purpose, and the checks that have to notice. Each text stands exactly once in its file: when the
// source has moved on, a test says so, and the row is brought up to date or goes.

export interface Mutant {
  name: string
  /** What clients would suffer. */
  breaks: string
  edits: readonly { file: string; text: string; by: string }[]
  /** Each of these has to fail. */
  caughtBy: readonly string[]
}

const stream = 'src/session-stream.ts'
const text = 'src/stream-text.ts'
const sse = 'src/http/sse.ts'
const subscription = 'src/schema/subscription.ts'

export const mutants: readonly Mutant[] = [
  {
    name: 'replay-skips',
    breaks: 'a replay leaves out the event at the border of two pages',
    edits: [
      {
        file: stream,
        text: 'eventLog.read(sessionId, cursor, limit, from, bounds)',
        by: "eventLog.read(sessionId, phase === 'REPLAY' && cursor === after + limit ? cursor + 1 : cursor, limit, from, bounds)",
      },
    ],
    caughtBy: ['C-STREAM-03'],
  },
  {
    name: 'replay-repeats',
    breaks: 'a replay gives the event at the border of two pages twice',
    edits: [
      {
        file: stream,
        text: 'eventLog.read(sessionId, cursor, limit, from, bounds)',
        by: "eventLog.read(sessionId, phase === 'REPLAY' ? Math.max(after, cursor - 1) : cursor, limit, from)",
      },
    ],
    caughtBy: ['C-STREAM-03'],
  },
  {
    name: 'cursor-inclusive',
    breaks: 'a client that comes back gets the last event that it has once more',
    edits: [{ file: stream, text: 'let cursor = after\n', by: 'let cursor = Math.max(0, after - 1)\n' }],
    caughtBy: ['C-STREAM-02', 'C-STREAM-12', 'C-SSE-03'],
  },
  {
    name: 'live-skips',
    breaks: 'of events that commit together a live stream gives the last one only',
    edits: [
      {
        file: stream,
        text: 'else page = read\n',
        by: "else page = phase === 'LIVE' ? read.slice(-1) : read\n",
      },
    ],
    caughtBy: ['C-STREAM-06'],
  },
  {
    name: 'slow-reader-loses',
    breaks: 'a reader that pauses loses what waits for it',
    edits: [{ file: stream, text: 'page.length = 1\n', by: 'page.splice(0, page.length - 1)\n' }],
    caughtBy: ['C-STREAM-14'],
  },
  {
    name: 'synced-missing',
    breaks: 'no LogSynced: a client never knows that it has caught up',
    edits: [
      {
        file: stream,
        text: "return liveItem({ typename: 'LogSynced', through: watermark!.seq })\n",
        by: '\n',
      },
    ],
    caughtBy: ['C-STREAM-01', 'C-STREAM-04'],
  },
  {
    name: 'synced-twice',
    breaks: 'LogSynced comes twice',
    edits: [
      {
        file: stream,
        text: 'let watermark: Watermark | null = null\n',
        by: 'let watermark: Watermark | null = null\n  let syncs = 0\n',
      },
      { file: stream, text: "      phase = 'LIVE'\n", by: "      if (++syncs === 2) phase = 'LIVE'\n" },
    ],
    caughtBy: ['C-STREAM-01', 'C-STREAM-03'],
  },
  {
    name: 'synced-early',
    breaks: 'LogSynced comes before the replay has ended',
    edits: [
      {
        file: stream,
        text: 'let watermark: Watermark | null = null\n',
        by: 'let watermark: Watermark | null = null\n  let said = false\n',
      },
      {
        file: stream,
        text: 'async function take(): Promise<StreamItem | null> {\n',
        by: `async function take(): Promise<StreamItem | null> {
    if (!said && (watermark ??= (await readWatermark(db, sessionId))) !== null) {
      said = true
      return liveItem({ typename: 'LogSynced', through: watermark.seq })
    }
`,
      },
      { file: stream, text: "return liveItem({ typename: 'LogSynced', through: watermark!.seq })\n", by: '\n' },
    ],
    caughtBy: ['C-STREAM-01', 'C-STREAM-02'],
  },
  {
    name: 'uncommitted',
    breaks: 'an event is shown before its commit',
    edits: [
      {
        file: 'src/event-log.ts',
        text: 'return { append: (request) => queue.append(request), read',
        by: `async function append(request: AppendRequest) {
    if (request.events[0]?.type !== 'session.updated') return queue.append(request)
    const early = ((globalThis as any).early ??= new Map())
    early.set(request.sessionId, request.events)
    doorbell.ring([request.sessionId])
    await new Promise((resolve) => setTimeout(resolve, 150))
    early.delete(request.sessionId)
    return queue.append(request)
  }
  return { append, read`,
      },
      {
        file: stream,
        text: 'else page = read\n',
        by: `else page = read.length > 0 || phase !== 'LIVE' ? read : ((globalThis as any).early?.get(sessionId) ?? [])
      .map((event: object, n: number) => ({ ...event, sessionId, seq: cursor + 1 + n, at: new Date() }))
`,
      },
    ],
    caughtBy: ['C-STREAM-05'],
  },
  {
    name: 'offset-by-one',
    breaks: 'offsets of deltas are one too large',
    edits: [{ file: text, text: 'offset: sent,\n', by: 'offset: sent + 1,\n' }],
    caughtBy: ['C-STREAM-06'],
  },
  {
    name: 'delta-after-end',
    breaks: 'a delta of a part follows behind its TextEnded',
    edits: [
      {
        file: stream,
        text: 'let watermark: Watermark | null = null\n',
        by: 'let watermark: Watermark | null = null\n  let late: StreamItem | null = null\n',
      },
      {
        file: stream,
        text: 'if (event !== undefined) return text.rest(event) ?? itemOf(event)\n',
        by: `if (late !== null) {
      const item = late
      late = null
      return item
    }
    if (event !== undefined) {
      const rest = text.rest(event)
      if (rest !== null) return rest
      if (event.type === 'text.ended') late = liveItem({ typename: 'TextDelta', ...event.payload, offset: 0 }) as never
      return itemOf(event)
    }
`,
      },
    ],
    caughtBy: ['C-STREAM-08'],
  },
  {
    name: 'rest-missing',
    breaks: 'the last text of a part is left out of its deltas',
    edits: [{ file: stream, text: 'return text.rest(event) ?? itemOf(event)', by: 'return itemOf(event)' }],
    caughtBy: ['C-STREAM-06'],
  },
  {
    name: 'live-item-with-seq',
    breaks: 'live-only items carry a seq',
    edits: [{ file: stream, text: '({ sessionId, seq: null, at: ', by: '({ sessionId, seq: cursor, at: ' }],
    caughtBy: ['C-STREAM-09'],
  },
  {
    name: 'text-so-far-missing',
    breaks: 'a stream that starts in the middle of an answer lacks the text so far',
    edits: [
      {
        file: text,
        text: 'for (const part of parts) begin(part)\n',
        by: `for (const part of parts) begin(part)
      for (const part of open.values()) part.sent = localOf().get(keyOf(part))?.text.length ?? 0
`,
      },
    ],
    caughtBy: ['C-STREAM-07'],
  },
  {
    name: 'text-so-far-late',
    breaks: 'the text so far comes behind LogSynced: "caught up" is said too early',
    edits: [{ file: stream, text: 'catchUp = new Set(text.keys())\n', by: 'catchUp = new Set()\n' }],
    caughtBy: ['C-STREAM-07'],
  },
  {
    name: 'silent-stream',
    breaks: 'an unknown session is a stream that never says anything',
    edits: [
      {
        file: subscription,
        text: 'await checkCursor(args.sessionId, after, context)\n',
        by: `try { await checkCursor(args.sessionId, after, context) } catch {
        return { next: () => new Promise(() => {}), return: async () => ({ done: true, value: undefined }), [Symbol.asyncIterator]() { return this } } as never
      }
`,
      },
    ],
    caughtBy: ['C-STREAM-10', 'C-STREAM-11'],
  },
  {
    name: 'no-completion',
    breaks: 'the error for an unknown session is not followed by the end of the operation',
    edits: [
      {
        file: subscription,
        text: 'await checkCursor(args.sessionId, after, context)\n',
        by: `try { await checkCursor(args.sessionId, after, context) } catch (error) {
        return (async function* () { throw error })() as never
      }
`,
      },
      {
        file: 'src/schema/masking.ts',
        text: 'if (broken) return { done: true, value: undefined }\n',
        by: 'if (broken) return new Promise(() => {})\n',
      },
    ],
    caughtBy: ['C-STREAM-10'],
  },
  {
    name: 'cursor-unchecked',
    breaks: 'a cursor of another database is taken',
    edits: [{ file: subscription, text: 'if (after > session.seq)\n', by: 'if (after > 2 ** 31)\n' }],
    caughtBy: ['C-STREAM-11'],
  },
  {
    name: 'no-id-lines',
    breaks: 'SSE without id lines: a browser cannot come back by itself',
    edits: [{ file: sse, text: "position.seq === null ? '' : ", by: "true ? '' : " }],
    caughtBy: ['C-SSE-02'],
  },
  {
    name: 'last-event-id-ignored',
    breaks: 'Last-Event-ID does not count',
    edits: [{ file: subscription, text: 'if (lastEventId === null) return', by: 'if (true) return' }],
    caughtBy: ['C-SSE-03'],
  },
  {
    name: 'buffered',
    breaks: 'proxies may hold the stream back',
    edits: [{ file: sse, text: "'x-accel-buffering': 'no',\n", by: '\n' }],
    caughtBy: ['C-SSE-01'],
  },
  {
    name: 'no-heartbeat',
    breaks: 'an idle event stream is silent',
    edits: [{ file: sse, text: 'if (rest.length === 0 && (controller.desiredSize ?? 0) > 0)', by: 'if (false)' }],
    caughtBy: ['C-SSE-04'],
  },
  {
    name: 'no-ping',
    breaks: 'an idle socket is not pinged',
    edits: [{ file: 'src/http/paced-socket.ts', text: '    client.ping()\n', by: '' }],
    caughtBy: ['C-WS-09'],
  },
  {
    name: 'activity-loses-last',
    breaks: 'sessionActivity leaves out the last change of a burst',
    edits: [
      {
        file: 'src/activity-hub.ts',
        text: 'if (tenant === undefined || (known.get(id)?.told ?? 0) >= seq) return\n',
        by: `if (tenant === undefined || (known.get(id)?.told ?? 0) >= seq) return
    const shownAt = ((globalThis as any).shownAt ??= new Map())
    const recently = Date.now() - (shownAt.get(id) ?? 0) < 400
    if (!recently) shownAt.set(id, Date.now())
    else return void remember(known, id, { tenant: name, told: seq }, knownMax)
`,
      },
    ],
    caughtBy: ['C-ACT-02'],
  },
  {
    name: 'conflict-arms',
    breaks: 'a prompt that is refused as a conflict starts the stored one all the same',
    edits: [
      {
        file: 'src/runner/admit.ts',
        text: 'if (differing.length > 0) return promptConflict(sessionId, messageId, differing)\n',
        by: `if (differing.length > 0) {
        if (resume && !stored.executionRequested && stored.state === 'PENDING')
          await core.eventLog.append({ sessionId, events: [event('prompt.execution_requested', { messageId })] })
        return promptConflict(sessionId, messageId, differing)
      }
`,
      },
    ],
    caughtBy: ['C-ADM-05'],
  },
]
