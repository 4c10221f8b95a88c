// Builds dist/client, which is what `holdfast/client` is: one file that imports nothing, and its types. node scripts/build-client.mjs
import { execFileSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const out = join(root, 'dist/client')
rmSync(out, { recursive: true, force: true })
await build({
  entryPoints: [join(root, 'src/client/index.ts')],
  outfile: join(out, 'index.js'),
  bundle: true,
  // Its ids, its parser of events and the printer of documents come along, in their builds for browsers, which Node runs as well.
  platform: 'browser',
  mainFields: ['module', 'main'],
  format: 'esm',
  target: ['es2022'],
  logLevel: 'error',
})
const typescript = createRequire(import.meta.url).resolve('typescript/package.json')
const tsc = join(dirname(typescript), 'bin/tsc')
execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.client.json')], { stdio: 'inherit' })
