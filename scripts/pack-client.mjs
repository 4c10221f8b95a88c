// Packs the client alone: node scripts/pack-client.mjs [DIRECTORY]. The tarball is a package `holdfast` with `holdfast/client` and the
// schema, for applications that want no server: see docs/decisions/2026-11-29-one-package-two-tarballs.md.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const into = resolve(process.argv[2] ?? '.')
const { version, license, engines, devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const typed = '@graphql-typed-document-node/core'

execFileSync(process.execPath, [join(root, 'scripts/build-client.mjs')], { stdio: 'inherit' })
const staging = join(root, 'dist/client-package')
rmSync(staging, { recursive: true, force: true })
mkdirSync(staging)
cpSync(join(root, 'dist/client'), join(staging, 'client'), { recursive: true })
for (const file of ['schema.graphql', 'LICENSE']) cpSync(join(root, file), join(staging, file))
cpSync(join(root, 'examples'), join(staging, 'examples'), { recursive: true })
// Links to what is not in the tarball become plain text.
const guide = readFileSync(join(root, 'docs/clients.md'), 'utf8').replaceAll('](../', '](')
writeFileSync(join(staging, 'README.md'), guide.replace(/\[([^\]]+)\]\((?!#|https?:|schema|examples)[^)]*\)/g, '$1'))
const manifest = {
  name: 'holdfast',
  version,
  description: 'The client of Holdfast: typed documents, followSession, transports.',
  license,
  type: 'module',
  sideEffects: false,
  engines,
  exports: {
    './client': { types: './client/index.d.ts', default: './client/index.js' },
    './schema.graphql': './schema.graphql',
    './package.json': './package.json',
  },
  // For its types; the code imports nothing.
  dependencies: { [typed]: `^${devDependencies[typed]}` },
  peerDependencies: { graphql: '^16.0.0' },
}
writeFileSync(join(staging, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', into], { cwd: staging, encoding: 'utf8' })
const tarball = join(into, `holdfast-client-${version}.tgz`)
renameSync(join(into, packed.trim().split('\n').at(-1)), tarball)
rmSync(staging, { recursive: true })
console.log(tarball)
