// A database for a bench: one that is made on the server of DATABASE_URL, else the embedded one in a temporary directory.
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { startEmbedded } from '../src/embedded/server.ts'
import { migrate } from '../src/migrate.ts'

export interface BenchDatabase {
  url: string
  /** `PostgreSQL 15.19, external` */
  name: string
  /** Takes it away with all that is in it. */
  drop(): Promise<void>
}

export async function openBenchDatabase(): Promise<BenchDatabase> {
  const given = process.env.DATABASE_URL
  const opened = given ? await madeOn(given) : await embedded()
  await migrate({ url: opened.url })
  const client = new pg.Client({ connectionString: opened.url })
  await client.connect()
  const { rows } = await client.query('SHOW server_version')
  await client.end()
  const version = String(rows[0].server_version).split(' ')[0]
  return { ...opened, name: `PostgreSQL ${version}, ${given ? 'external' : 'embedded'}` }
}

async function madeOn(server: string): Promise<Omit<BenchDatabase, 'name'>> {
  const name = `holdfast_bench_${process.pid}`
  const asked = async (sql: string) => {
    const admin = new pg.Client({ connectionString: server })
    await admin.connect()
    try {
      await admin.query(sql)
    } finally {
      await admin.end()
    }
  }
  await asked(`CREATE DATABASE ${name}`)
  const url = new URL(server)
  url.pathname = `/${name}`
  return { url: url.href, drop: () => asked(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`) }
}

async function embedded(): Promise<Omit<BenchDatabase, 'name'>> {
  const dir = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
  // As root the server runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  const server = await startEmbedded({ dataDir: join(dir, 'data') })
  return {
    url: server.url,
    async drop() {
      await server.stop()
      rmSync(dir, { recursive: true, force: true, maxRetries: 3 })
    },
  }
}
