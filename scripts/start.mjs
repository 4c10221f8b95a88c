// npm start: runs the server from one bundled file, made anew when a source is newer. Loading the sources one by one through a
// TypeScript loader would take several times as long as everything else that a start does.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const bundle = join(root, 'dist/server.js')

/** When the newest of the files that the bundle is made of was written, in ms. */
function newestSource() {
  const sources = readdirSync(join(root, 'src'), { recursive: true }).map((name) => join(root, 'src', name))
  return Math.max(...[...sources, join(root, 'package-lock.json')].map((file) => statSync(file).mtimeMs))
}

if (!existsSync(bundle) || statSync(bundle).mtimeMs < newestSource()) {
  const { build } = await import('esbuild')
  await build({
    entryPoints: [join(root, 'src/server.ts')],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    target: 'node20.19',
    format: 'esm',
    packages: 'external',
    sourcemap: true,
    logLevel: 'error',
  })
}
process.setSourceMapsEnabled(true)
await import(pathToFileURL(bundle).href)
