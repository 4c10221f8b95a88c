import type { AddressInfo } from 'node:net'
import { createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { boundedSockets } from '../src/bounded-socket.ts'

// Wires that do not wait for ever, also after this process stood still.

const silentMs = 150
let far: Socket
const server = createServer((socket) => {
  far = socket
  socket.on('error', () => {})
})
beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)))
afterAll(() => new Promise((resolve) => server.close(resolve)))

it('PROMISE-120: a wire on which something came while the process stood still is forgiven, each time; the silence after it is not', async () => {
  const socket = boundedSockets(silentMs)()
  const broken = new Promise<Error & { code?: string }>((resolve) => socket.once('error', resolve))
  const accepted = new Promise((resolve) => server.once('connection', resolve))
  socket.connect((server.address() as AddressInfo).port, '127.0.0.1')
  await accepted
  let stalls = 0
  socket.on('timeout', () => stalls++)
  for (let n = 1; n <= 3; n++) {
    const answered = new Promise((resolve) => socket.once('data', resolve))
    // After a turn of the loop has looked at its sockets: the bound passes before the next one does.
    setImmediate(() => {
      far.write('x')
      const until = performance.now() + 2 * silentMs
      while (performance.now() < until);
    })
    await answered
    await new Promise((resolve) => setImmediate(resolve))
    expect(stalls).toBe(n)
    expect(socket.destroyed).toBe(false)
  }
  expect(await broken).toMatchObject({ code: 'ETIMEDOUT' })
})
