import { renderGraphiQL } from '@graphql-yoga/render-graphiql'
import { graphqlPath } from './graphql.ts'

const example = `# Holdfast: durable AI agent sessions. Run Create, Prompt and Watch one after the other.
# Change the ids to start anew: a mutation that is repeated with the same ids changes nothing.

mutation Create {
  createSession(input: { sessionId: "ses_example01", title: "First steps" }) {
    ... on CreateSessionPayload { created session { id status model } }
    ... on Error { message }
  }
}

mutation Prompt {
  admitPrompt(input: { sessionId: "ses_example01", messageId: "msg_example01", text: "/slow 400 Hello! Slowly, please." }) {
    ... on PromptAdmission { outcome input { id state } }
    ... on Error { message }
  }
}

subscription Watch {
  sessionEvents(sessionId: "ses_example01") {
    __typename
    seq
    ... on TextDelta { text }
    ... on TextEnded { text }
    ... on ExecutionSettled { outcome }
  }
}

query Read {
  session(id: "ses_example01") {
    status
    seq
    messages(first: 50) {
      edges {
        node {
          __typename
          ... on UserMessage { text }
          ... on AssistantMessage { status parts { ... on TextPart { text } } }
        }
      }
    }
  }
}
`

const explorers = new Map<boolean, string>()

/**
 * GraphiQL with everything inside: it loads nothing from elsewhere, so it works without a network. `guarded`: the token stands in the
 * headers editor, and subscriptions are server-sent events, as this GraphiQL gives no header to a WebSocket.
 */
export function explorerPage(guarded: boolean): string {
  const page =
    explorers.get(guarded) ??
    renderGraphiQL({
      title: 'Holdfast GraphiQL',
      endpoint: graphqlPath,
      subscriptionsProtocol: guarded ? 'GRAPHQL_SSE' : 'WS',
      defaultQuery: example,
      // What a browser keeps, anybody at that browser can read.
      ...(guarded && { headers: '{ "Authorization": "Bearer TOKEN" }', shouldPersistHeaders: false }),
    })
  explorers.set(guarded, page)
  return page
}

/** What `/` shows where no console has been built: a server that runs from its sources in a test, say. */
export const startPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Holdfast</title>
<style>body{font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}</style>
<h1>Holdfast</h1>
<p>Durable AI agent sessions over GraphQL. The server is running. The web console has not been built: <code>npm start</code> does that.</p>
<ul>
<li><a href="/graphiql">/graphiql</a>: explore the API, with an example to start from</li>
<li><code>/graphql</code>: the API over HTTP, server-sent events and WebSocket</li>
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>: does it live, can it serve</li>
<li><a href="/metrics">/metrics</a>: Prometheus metrics</li>
</ul>
</html>
`
