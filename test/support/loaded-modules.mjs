// Preloaded by a test: says at the end which packages the process had loaded.
import Module from 'node:module'

process.on('exit', () => {
  const packages = Object.keys(Module._cache).flatMap((path) => {
    const inside = path.replaceAll('\\', '/').split('/node_modules/').at(-1)
    return /^(@[^/]+\/[^/]+|[^/@][^/]*)/.exec(inside)?.[1] ?? []
  })
  process.stderr.write(`${JSON.stringify({ msg: 'loaded', packages: [...new Set(packages)] })}\n`)
})
