// Runs `prisma generate` or `prisma validate` without a network: node scripts/prisma.mjs generate
//
// Both commands insist on a schema engine that they then do not use, and download it when it is missing. Naming any file
// that exists satisfies them. Never do this for `prisma migrate`: it would call that file, exit 0 and do nothing. The
// server applies the migrations itself (src/migrate.ts).
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const allowed = ['generate', 'validate']
const [command, ...rest] = process.argv.slice(2)
if (!allowed.includes(command)) {
  console.error(`scripts/prisma.mjs runs only ${allowed.join(' and ')}; got ${command ?? 'nothing'}`)
  process.exit(2)
}

const require = createRequire(import.meta.url)
const packageFile = require.resolve('prisma/package.json')
const cli = join(dirname(packageFile), require(packageFile).bin.prisma)
const result = spawnSync(process.execPath, [cli, command, ...rest], {
  cwd: dirname(dirname(fileURLToPath(import.meta.url))),
  stdio: 'inherit',
  env: {
    ...process.env,
    PRISMA_SCHEMA_ENGINE_BINARY: packageFile,
    CHECKPOINT_DISABLE: '1',
    PRISMA_HIDE_UPDATE_MESSAGE: '1',
  },
})
process.exit(result.status ?? 1)
