import { renderGraphiQL } from '@graphql-yoga/render-graphiql'
import { codings, type File, fileOf } from './console.ts'
import { exampleTabs } from './example-tabs.ts'
import { graphqlPath } from './graphql.ts'

const explorers = new Map<boolean, File>()

/** Where a token goes, in each tab. */
const headers = '{ "Authorization": "Bearer TOKEN" }'

/**
 * GraphiQL moves a tab aside in the moment in which it is focused, when it has started with several: the click then falls on nothing.
 * Its own style forbids that move for all tabs but the focused one.
 */
const tabsStayWhereTheyAre = '<style>.graphiql-tab{transform:none!important}</style>'

/**
 * GraphiQL with everything inside, made once: it loads nothing from elsewhere, so it works without a network. `guarded`: the token stands in the
 * headers editor, and subscriptions are server-sent events, as this GraphiQL gives no header to a WebSocket.
 */
export function explorerFile(guarded: boolean): File {
  let made = explorers.get(guarded)
  if (made === undefined) {
    made = fileOf(Buffer.from(explorerPage(guarded)), {
      type: 'text/html; charset=utf-8',
      immutable: false,
      policy: null,
    })
    explorers.set(guarded, made)
    // Whoever asks meanwhile gets it as it is: compressing 9 MB takes a slow machine longer than anybody waits.
    void codings(made.body).then(
      (coded) => {
        explorers.get(guarded)!.coded = coded
      },
      () => {},
    )
  }
  return made
}

/** Its text. */
export function explorerPage(guarded: boolean): string {
  return renderGraphiQL({
    title: 'Holdfast GraphiQL',
    endpoint: graphqlPath,
    subscriptionsProtocol: guarded ? 'GRAPHQL_SSE' : 'WS',
    defaultTabs: exampleTabs.map((tab) => ({ ...tab, ...(guarded && { headers }) })),
    // What a browser keeps, anybody at that browser can read.
    ...(guarded && { headers, shouldPersistHeaders: false }),
  }).replace('</head>', () => `${tabsStayWhereTheyAre}</head>`)
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
<li><a href="/graphiql">/graphiql</a>: explore the API, with examples to start from</li>
<li><code>/graphql</code>: the API over HTTP, server-sent events and WebSocket</li>
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>: does it live, can it serve</li>
<li><a href="/metrics">/metrics</a>: Prometheus metrics</li>
</ul>
</html>
`
