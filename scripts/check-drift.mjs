// Compares prisma/schema.prisma with what the migrations make, without a network: node scripts/check-drift.mjs
// Exit 0: equal. Exit 1: the difference is printed, as the SQL that a next migration would need.
//
// Prisma's schema engine (as WebAssembly) applies the migrations to an in-memory PGlite and compares. What Prisma cannot
// express (partial indexes, CHECKs, triggers, functions, generated columns) it does not see or is left out below, so it is no drift.
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PGlite } from '@electric-sql/pglite'
import { PrismaPg } from '@prisma/adapter-pg'
import { bindMigrationAwareSqlAdapterFactory, ColumnTypeEnum } from '@prisma/driver-adapter-utils'
import * as engineModule from '@prisma/schema-engine-wasm/schema_engine_bg'
import pg from 'pg'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const schemaFile = process.argv[2] ?? join(root, 'prisma/schema.prisma')
const migrationsDir = process.argv[3] ?? join(root, 'prisma/migrations')

/** The driver's pool as far as Prisma's adapter uses it, over one PGlite, which has one connection. */
function poolOver(database) {
  const query = async (input) => {
    if (typeof input === 'string') return (await database.exec(input)).at(-1)
    const parsers = new Proxy({}, { get: (_, oid) => input.types.getTypeParser(Number(oid), 'text') })
    const result = await database.query(input.text, input.values, { rowMode: 'array', parsers })
    // To Prisma's adapter the catalogs' internal type "char" (18) is unknown: shown as text, and put right below.
    const fields = result.fields.map((field) => (field.dataTypeID === 18 ? { ...field, dataTypeID: 25 } : field))
    database.charColumns = result.fields.map((field) => field.dataTypeID === 18)
    return { fields, rows: result.rows, rowCount: result.affectedRows ?? 0 }
  }
  const client = { query, release() {}, on() {}, removeListener() {} }
  return Object.assign(Object.create(pg.Pool.prototype), client, { options: {}, connect: async () => client, end() {} })
}

async function adapterOver(database) {
  const adapter = await new PrismaPg(poolOver(database)).connect()
  const queryRaw = adapter.queryRaw.bind(adapter)
  adapter.queryRaw = async (query) => {
    const result = await queryRaw(query)
    const columnTypes = result.columnTypes.map((type, at) =>
      database.charColumns[at] ? ColumnTypeEnum.Character : type,
    )
    return { ...result, columnTypes }
  }
  // The stock one splits at every semicolon, function bodies included.
  adapter.executeScript = async (script) => {
    await database.exec(script)
  }
  return adapter
}

globalThis.PRISMA_WASM_PANIC_REGISTRY = { set_message: (text) => console.error(text) }

async function openEngine(factory) {
  const require = createRequire(import.meta.url)
  const wasmFile = join(dirname(require.resolve('@prisma/schema-engine-wasm')), 'schema_engine_bg.wasm')
  const wasm = await WebAssembly.instantiate(readFileSync(wasmFile), { './schema_engine_bg.js': engineModule })
  engineModule.__wbg_set_wasm(wasm.instance.exports)
  wasm.instance.exports.__wbindgen_start()
  return engineModule.SchemaEngine.new(
    { datamodels: undefined },
    () => {},
    bindMigrationAwareSqlAdapterFactory(factory),
  )
}

/**
 * Partial and expression indexes have no counterpart in schema.prisma; to Prisma they look like indexes too many. Neither have generated
 * columns, what refers to them (put back as a plain reference to the id), and the register of executions.
 */
const takeAwayHandWritten = {
  name: '99999999999999_hand_written',
  sql: `DO $$
    DECLARE wanted record;
    BEGIN
      FOR wanted IN
        SELECT i.indexrelid::regclass::text AS name FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'public' AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL)
      LOOP
        EXECUTE 'DROP INDEX ' || wanted.name;
      END LOOP;
      FOR wanted IN
        SELECT quote_ident(c.conname) AS name, c.conrelid::regclass::text AS of, pg_get_constraintdef(c.oid) AS definition
          FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey)
         WHERE c.contype = 'f' AND a.attgenerated = 's'
      LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %s', wanted.of, wanted.name);
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %s %s ON UPDATE RESTRICT %s', wanted.of, wanted.name,
          replace(regexp_replace(wanted.definition, '"[a-z]+Id"\\)( ON|$| DEF)', '"id")\\1'), ' DEFERRABLE', ''),
          CASE WHEN wanted.definition LIKE '%ON DELETE%' THEN '' ELSE 'ON DELETE RESTRICT' END);
      END LOOP;
      FOR wanted IN
        SELECT a.attrelid::regclass::text AS of, quote_ident(a.attname) AS name FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'public' AND c.relkind = 'r' AND a.attgenerated = 's'
      LOOP
        EXECUTE format('ALTER TABLE %s DROP COLUMN %s', wanted.of, wanted.name);
      END LOOP;
      ALTER TABLE "Claim" DROP CONSTRAINT "Claim_sessionId_messageId_fkey";
      DROP TABLE "Execution" CASCADE;
    END $$`,
}

const migrations = readdirSync(migrationsDir, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => ({ name: entry.name, sql: readFileSync(join(migrationsDir, entry.name, 'migration.sql'), 'utf8') }))
  .sort((a, b) => (a.name < b.name ? -1 : 1))

// Starting one takes seconds, and the engine only needs the shadow.
const shadow = new PGlite()
const openShadow = () => adapterOver(shadow)
const engine = await openEngine({
  provider: 'postgres',
  adapterName: '@prisma/adapter-pg',
  connect: openShadow,
  connectToShadowDb: openShadow,
})
const { stdout } = await engine.diff({
  from: {
    tag: 'migrations',
    baseDir: migrationsDir,
    lockfile: { path: 'migration_lock.toml', content: 'provider = "postgresql"\n' },
    shadowDbInitScript: '',
    migrationDirectories: [...migrations, takeAwayHandWritten].map(({ name, sql }) => ({
      path: name,
      migrationFile: { path: 'migration.sql', content: { tag: 'ok', value: sql } },
    })),
  },
  to: { tag: 'schemaDatamodel', files: [{ path: schemaFile, content: readFileSync(schemaFile, 'utf8') }] },
  script: true,
  exitCode: true,
  filters: { externalTables: [], externalEnums: [] },
})
await shadow.close()

const difference = (stdout ?? '').trim()
if (difference === '' || difference === '-- This is an empty migration.') {
  console.log(`schema.prisma and ${migrations.length} migration(s) agree`)
} else {
  console.error(`schema.prisma and the migrations differ. What a next migration would need:\n\n${difference}`)
  process.exitCode = 1
}
