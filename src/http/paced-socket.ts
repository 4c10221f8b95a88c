// A WebSocket that tells a slow peer from a dead one. A long message goes out in fragments, each behind the one before it, so that what the
// peer takes can be seen while it takes it, and a ping stands behind one fragment instead of behind the whole message. Whatever comes or is
// taken is a sign of life: the pong of a peer that reads slowly is late, and one that sends a long message of its own cannot answer at all.

import type { Duplex } from 'node:stream'
import type { WebSocket } from 'ws'
import type { Timers } from '../pull.ts'
import type { Taking } from './operation.ts'

export const fragmentBytes = 256 * 1024
/** What the system's buffers on the way hold at most, and how slowly a peer may take it: nobody tells how far it has come with that. */
const heldBytesMax = 4 * 1024 * 1024
const slowestBytesPerSecond = 16 * 1024

export interface PaceOptions {
  /** How often the peer is asked, and how long it may take to answer when nothing stands before the question. */
  pingMs: number
  /** How long it may give no sign when there is something to take. */
  stallMs: number
  /** Called when it counts as dead, before the socket is ended. */
  dead: (why: string) => void
  clock: Timers
}

interface Waiting {
  bytes: Buffer
  done?: (error?: Error) => void
}

/** Makes `send` of this socket go out at the peer's pace, and ends the socket of a peer that gives no sign. Gives what it has taken. */
export function pace(client: WebSocket, raw: Duplex & { bytesRead?: number }, options: PaceOptions): Taking {
  const { pingMs, stallMs, dead, clock } = options
  const taking: Taking = { taken: 0 }
  const write = client.send.bind(client) as (data: string | Buffer, options: object, done: (e?: Error) => void) => void
  let fragmenting = false
  const queue: Waiting[] = []
  /** Bytes of messages that went out, those whose arrival the last pong has shown, and those that stood before the ping under way. */
  let sent = 0
  let confirmed = 0
  let asked: number | null = null

  function put(bytes: string | Buffer, fin: boolean, done?: (error?: Error) => void) {
    sent += bytes.length
    write(bytes, { fin, binary: false }, (error) => {
      if (!error) taking.taken += 1
      done?.(error)
    })
  }

  /** No other message may stand between the fragments of one: those that come meanwhile wait. */
  function putLong({ bytes, done }: Waiting) {
    fragmenting = true
    const next = (at: number, error?: Error) => {
      const end = Math.min(at + fragmentBytes, bytes.length)
      if (error === undefined && at < bytes.length)
        return put(bytes.subarray(at, end), end === bytes.length, (failed) => next(end, failed ?? undefined))
      fragmenting = false
      done?.(error)
      while (!fragmenting && queue.length > 0) putOne(queue.shift()!)
    }
    next(0)
  }

  function putOne(waiting: Waiting) {
    if (waiting.bytes.length > fragmentBytes) putLong(waiting)
    else put(waiting.bytes, true, waiting.done)
  }

  client.send = ((data: string, done?: (error?: Error) => void) => {
    if (!fragmenting && data.length <= fragmentBytes) return put(data, true, done)
    const waiting = { bytes: Buffer.from(data), done }
    if (fragmenting) queue.push(waiting)
    else putOne(waiting)
  }) as typeof client.send

  const seen = { read: raw.bytesRead ?? 0, taken: 0 }
  // Counted in looks: a clock may jump, and a process that stood still has asked nobody meanwhile.
  let quietMs = 0
  let untakenMs = 0

  /** Why the peer counts as dead, `ms` after the last look; null while it does not. */
  function whyDead(ms: number): string | null {
    const read = raw.bytesRead ?? 0
    const waits = fragmenting || client.bufferedAmount > 0
    untakenMs = waits && taking.taken === seen.taken ? untakenMs + ms : 0
    quietMs = taking.taken === seen.taken && read === seen.read ? quietMs + ms : 0
    Object.assign(seen, { read, taken: taking.taken })
    // Also of one that goes on sending.
    if (untakenMs >= stallMs + 3 * pingMs) return 'it takes nothing of what was sent'
    const held = Math.min(sent - confirmed, heldBytesMax)
    const most = held === 0 ? pingMs : Math.max(pingMs, stallMs) + (held / slowestBytesPerSecond) * 1000
    return asked !== null && quietMs >= most ? 'it does not answer' : null
  }

  let cancel = clock.setTimeout(look, pingMs)
  function look() {
    cancel = clock.setTimeout(look, pingMs)
    if (client.readyState !== client.OPEN) return
    if (whyDead(pingMs) !== null) {
      // It may be this process that stood still: what has come meanwhile is read before this.
      setImmediate(() => {
        const why = whyDead(0)
        if (why === null || client.readyState !== client.OPEN) return
        dead(why)
        client.terminate()
      })
      return
    }
    if (asked !== null) return
    asked = sent
    quietMs = 0
    client.ping()
  }

  client.on('pong', () => {
    confirmed = asked ?? confirmed
    asked = null
  })
  client.once('close', () => cancel())
  return taking
}
