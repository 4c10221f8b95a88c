// Everything that a tenant can read of its sessions, over HTTP, server-sent events and WebSocket, as one text.
import { createClient } from 'graphql-ws'
import WebSocket from 'ws'
import {
  fetchTransport,
  InboxDocument,
  ModelsDocument,
  QuarantineDocument,
  SessionEventsDocument,
  SessionLogDocument,
  SessionMessagesDocument,
  SessionSnapshotDocument,
  SessionsDocument,
  ToolsDocument,
  type Transport,
  VerifySessionDocument,
  webSocketTransport,
} from '../../src/client/index.ts'

/** Each item of the session's stream until it has caught up, or the errors that ended it. */
function streamed(transport: Transport, sessionId: string): Promise<unknown[]> {
  const items: unknown[] = []
  return new Promise((resolve) => {
    const stop = transport.subscribe(
      SessionEventsDocument,
      { sessionId, after: 0 },
      {
        next(answer) {
          items.push(answer)
          const item = Object.values((answer.data ?? {}) as Record<string, { __typename?: string }>)[0]
          if (answer.errors === undefined && item?.__typename !== 'LogSynced') return
          stop()
          resolve(items)
        },
        error(thrown) {
          items.push(thrown)
          resolve(items)
        },
        complete: () => resolve(items),
      },
    )
  })
}

/** Asks for all of it, errors included, and gives what came back. */
export async function everythingReadable(url: string, sessionIds: readonly string[]): Promise<string> {
  const http = fetchTransport({ url: `${url}graphql` })
  const client = createClient({ url: `${url.replace('http', 'ws')}graphql`, webSocketImpl: WebSocket })
  const socket = webSocketTransport(client)
  const found: unknown[] = []
  const keep = async (asking: Promise<unknown>) =>
    found.push(await asking.catch((thrown: unknown) => ({ thrown: JSON.stringify(thrown), text: String(thrown) })))
  for (const transport of [http, socket]) {
    for (const id of sessionIds) {
      await keep(transport.execute(SessionSnapshotDocument, { id, inputs: null }))
      await keep(transport.execute(SessionLogDocument, { id, first: 200 }))
      await keep(transport.execute(SessionMessagesDocument, { id, first: 100 }))
      await keep(transport.execute(VerifySessionDocument, { id }))
      await keep(streamed(transport, id))
    }
    for (const document of [InboxDocument, QuarantineDocument, ModelsDocument, ToolsDocument, SessionsDocument])
      await keep(transport.execute(document as typeof ToolsDocument, {}))
  }
  await client.dispose()
  for (const path of ['readyz', 'healthz', 'nowhere', 'graphql?query={'])
    found.push(await fetch(`${url}${path}`).then((response) => response.text()))
  return JSON.stringify(found)
}
