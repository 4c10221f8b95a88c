// npm start: runs the server from one bundled file and serves the web console from its built files; both are made anew when a source is
// newer. Loading the sources one by one through a TypeScript loader would take several times as long as everything else that a start does.
import { pathToFileURL } from 'node:url'
import { buildStale, serverBundle } from './build.mjs'

await buildStale()
process.setSourceMapsEnabled(true)
await import(pathToFileURL(serverBundle).href)
