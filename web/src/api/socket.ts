import { createClient } from 'graphql-ws'
import { webSocketOptions } from '../../../src/client/web-socket.ts'
import { connected, disconnected, signedOut } from './connection.ts'
import { tryNow } from './retry.ts'
import { token } from './token.ts'

const url = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/graphql`

/** The one WebSocket of this page. Whoever has a subscription asks again when it breaks; the page itself always has one (activity.ts). */
export const socket = createClient(webSocketOptions({ url, token: () => token.get() }))

socket.on('connected', () => {
  connected()
  // The others need not wait for the end of their back-off.
  tryNow()
})
socket.on('closed', (event) => {
  const code = event instanceof CloseEvent ? event.code : 0
  // 4401: the server knows nobody by this token. 4403: it refused the connection's first message.
  if (code === 4401 || code === 4403) signedOut(token.get() !== null)
  else disconnected()
})
