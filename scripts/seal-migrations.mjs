// Writes the checksums of new migrations into prisma/migrations/checksums.json: node scripts/seal-migrations.mjs
// With --check it writes nothing and exits 1 when a sealed migration was edited or removed, or a new one is not sealed.
//
// A database that has applied a migration refuses to start with an edited one, so an edit must never leave this
// repository. As long as no database beyond your own has applied it, take its line out of the file and seal again.
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const args = process.argv.slice(2)
const check = args.includes('--check')
const dir =
  args.find((arg) => !arg.startsWith('--')) ??
  join(dirname(dirname(fileURLToPath(import.meta.url))), 'prisma/migrations')
const sealFile = join(dir, 'checksums.json')

const sealed = existsSync(sealFile) ? JSON.parse(readFileSync(sealFile, 'utf8')) : {}
const present = Object.fromEntries(
  readdirSync(dir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort()
    .map((name) => [
      name,
      createHash('sha256')
        .update(readFileSync(join(dir, name, 'migration.sql')))
        .digest('hex'),
    ]),
)

const problems = Object.keys(sealed).flatMap((name) => {
  if (!present[name]) return [`${name} is sealed and missing`]
  return present[name] === sealed[name] ? [] : [`${name} was edited: put the change into a new migration`]
})
const fresh = Object.keys(present).filter((name) => !sealed[name])
if (check) problems.push(...fresh.map((name) => `${name} is not sealed: run node scripts/seal-migrations.mjs`))

if (problems.length > 0) {
  console.error(problems.join('\n'))
  process.exit(1)
}
if (!check) writeFileSync(sealFile, `${JSON.stringify(present, null, 2)}\n`)
console.log(`${Object.keys(present).length} migration(s) sealed${check ? '' : `, ${fresh.length} of them new`}`)
