// Makes dist/: the server as one file, and the web console in dist/web. `node scripts/build.mjs` makes both; a start makes what is stale.
import { copyFileSync, existsSync, readdirSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import process, { argv } from 'node:process'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
export const serverBundle = join(root, 'dist/server.js')
/** Threads that the server starts, as files beside it. */
const threads = ['src/http/json-worker.mjs']
const consolePage = join(root, 'dist/web/index.html')

/** When the newest of these files, or of the files in these directories, was written, in ms. */
function newest(...places) {
  const files = places.flatMap((place) => {
    const path = join(root, place)
    if (!statSync(path).isDirectory()) return [path]
    return readdirSync(path, { recursive: true }).map((name) => join(path, name))
  })
  return Math.max(...files.map((file) => statSync(file).mtimeMs))
}

/** A release has no sources of the console, and nothing to make then. */
const isStale = (made, ...sources) =>
  sources.every((source) => existsSync(join(root, source))) &&
  (!existsSync(made) || statSync(made).mtimeMs < newest(...sources))

export async function buildServer() {
  const { build } = await import('esbuild')
  await whole(serverBundle, async () => {
    await build({
      entryPoints: [join(root, 'src/server.ts')],
      outfile: serverBundle,
      bundle: true,
      platform: 'node',
      target: 'node20.19',
      format: 'esm',
      packages: 'external',
      sourcemap: true,
      logLevel: 'error',
    })
    for (const thread of threads) copyFileSync(join(root, thread), join(root, 'dist', basename(thread)))
  })
}

/** Makes a file; what was made by half, as on a full disk, is taken away, or it would pass for the newest. */
async function whole(made, make) {
  try {
    await make()
  } catch (error) {
    rmSync(made, { force: true })
    throw error
  }
}

async function buildConsole() {
  // Whoever starts this as a test or in development gets the same console: React has a slow build of itself for those.
  const before = process.env.NODE_ENV
  process.env.NODE_ENV = 'production'
  try {
    const { build } = await import('vite')
    await whole(consolePage, () =>
      build({ configFile: join(root, 'web/vite.config.ts'), mode: 'production', logLevel: 'error' }),
    )
  } finally {
    if (before === undefined) delete process.env.NODE_ENV
    else process.env.NODE_ENV = before
  }
}

/** Makes what is missing or older than its sources; the two beside each other. */
export async function buildStale() {
  await Promise.all([
    isStale(serverBundle, 'src', 'package-lock.json') && buildServer(),
    isStale(consolePage, 'web', 'src/client', 'package-lock.json') && buildConsole(),
  ])
}

if (argv[1] === fileURLToPath(import.meta.url)) await Promise.all([buildServer(), buildConsole()])
