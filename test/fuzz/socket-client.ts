// Operations over WebSocket, by the protocol and against it.
import WebSocket from 'ws'
import type { Random } from '../support/random.ts'
import type { Sent } from './http-client.ts'
import type { FuzzOperation } from './operation.ts'
import { whyWrong } from './verdict.ts'

const answerMsMax = 120_000

// https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md: what the server may end a connection with, and what RFC 6455 has for
// framing. 1011 and 4500 would be the server's own fault.
const closedRightly = (code: number) =>
  [1000, 1001, 1003, 1005, 1006, 1007, 1009, 1013].includes(code) || (code >= 4400 && code < 4500)

function nonsense(random: Random): string | Buffer {
  return random.of([
    '',
    '{}',
    'null',
    '[]',
    '{"type":1}',
    '{"type":"subscribe"}',
    '{"type":"subscribe","id":""}',
    '{"type":"subscribe","id":"x","payload":null}',
    '{"type":"subscribe","id":"x","payload":{"query":1}}',
    '{"type":"complete","id":"nobody"}',
    '{"type":"complete"}',
    '{"type":"next","id":"x","payload":{}}',
    '{"type":"connection_init"}',
    '{"type":"ping","payload":{"a":1}}',
    '{"type":"pong"}',
    '{"type":"__proto__","id":"__proto__"}',
    'x'.repeat(1000),
    Buffer.from([0xff, 0xfe, 0]),
  ] as const)
}

/** One connection on which these operations are asked, some under an id that is or was in use. Never rejects. */
export function sendOverSocket(url: string, random: Random, operations: readonly FuzzOperation[]): Promise<Sent> {
  return new Promise((resolve) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}graphql`, 'graphql-transport-ws')
    const open = new Set<string>()
    let told = ''
    let wrong: string | null = null
    let left = false
    const timer = setTimeout(() => {
      wrong ??= `no answer within ${answerMsMax} ms to ${[...open]}`
      leave()
    }, answerMsMax)
    const leave = () => {
      left = true
      if (random.chance(0.5)) socket.close()
      else socket.terminate()
    }
    const endIfDone = () => {
      if (open.size === 0) leave()
    }
    socket.on('error', () => {})
    socket.on('close', (code) => {
      clearTimeout(timer)
      if (!left && !closedRightly(code)) wrong ??= `closed with ${code}`
      resolve({ told, wrong })
    })
    socket.on('open', () => {
      if (random.chance(0.05)) return socket.send(nonsense(random))
      socket.send(JSON.stringify({ type: 'connection_init', ...(random.chance(0.1) && { payload: { token: 'x' } }) }))
    })
    socket.on('message', (data) => {
      let message: { type: string; id?: string; payload?: unknown }
      try {
        message = JSON.parse(String(data))
      } catch {
        wrong ??= `no JSON: ${String(data).slice(0, 200)}`
        return leave()
      }
      told += String(data).slice(0, 5_000)
      if (message.type === 'connection_ack') {
        for (const [n, operation] of operations.entries()) {
          const id = random.chance(0.1) ? 'same' : `op${n}`
          open.add(id)
          socket.send(JSON.stringify({ type: 'subscribe', id, payload: { ...operation, kind: undefined } }))
          if (random.chance(0.1)) {
            socket.send(JSON.stringify({ type: 'complete', id }))
            // Whoever ends an operation need not be answered.
            open.delete(id)
          }
          if (operation.kind === 'subscription' || random.chance(0.1))
            setTimeout(
              () => {
                if (socket.readyState !== WebSocket.OPEN) return
                socket.send(JSON.stringify({ type: 'complete', id }))
                open.delete(id)
                endIfDone()
              },
              random.from(1, 50),
            )
          if (random.chance(0.03)) socket.send(nonsense(random))
        }
        if (random.chance(0.05)) leave()
        else endIfDone()
      }
      if (message.type === 'next') wrong ??= whyWrong(message.payload)
      if (message.type === 'error') wrong ??= whyWrong({ errors: message.payload })
      if (message.type === 'error' || message.type === 'complete') {
        open.delete(message.id!)
        endIfDone()
      }
    })
  })
}
