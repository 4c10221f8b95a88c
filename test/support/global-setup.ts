import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { startEmbedded } from '../../src/embedded/server.ts'
import { migrate } from '../../src/migrate.ts'
import { databaseName, isAlive, sweepDeadRuns } from './database-names.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The server of this run: an address that may create databases, and the migrated database to clone. */
    database: { adminUrl: string; template: string }
  }
}

const dirPrefix = 'holdfast-test-'

/**
 * One database server for the whole run: the one that DATABASE_URL names, else an embedded one in a temporary directory
 * that is gone afterwards. Tests clone the migrated template (test/support/database.ts).
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = process.env.DATABASE_URL ? external(process.env.DATABASE_URL) : await embedded()
  const template = databaseName('template')
  try {
    const admin = new pg.Client({ connectionString: server.adminUrl })
    await admin.connect()
    try {
      await sweepDeadRuns(admin)
      await admin.query(`CREATE DATABASE ${template}`)
    } finally {
      await admin.end()
    }
    await migrate({ url: urlOf(server.adminUrl, template) })
  } catch (error) {
    await server.stop()
    throw error
  }
  project.provide('database', { adminUrl: server.adminUrl, template })
  return async () => {
    await server.dropTemplate(template)
    await server.stop()
  }
}

type Server = { adminUrl: string; dropTemplate(name: string): Promise<void>; stop(): Promise<void> }

function external(url: string): Server {
  return {
    adminUrl: url,
    async dropTemplate(name) {
      const admin = new pg.Client({ connectionString: url })
      await admin.connect()
      await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
      await admin.end()
    },
    stop: async () => {},
  }
}

async function embedded(): Promise<Server> {
  await sweepDeadServers()
  const dir = mkdtempSync(join(tmpdir(), `${dirPrefix}${process.pid}-`))
  // As root the server runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  const server = await startEmbedded({ dataDir: join(dir, 'data') })
  return {
    adminUrl: server.url,
    dropTemplate: async () => {},
    async stop() {
      await server.stop()
      rmSync(dir, { recursive: true, force: true, maxRetries: 3 })
    },
  }
}

/** A run that was killed left its server and its directory; a few of them are taken away here. */
async function sweepDeadServers(): Promise<void> {
  const names = readdirSync(tmpdir()).filter((name) => name.startsWith(dirPrefix))
  const dead = names.filter((name) => !isAlive(Number(name.slice(dirPrefix.length).split('-')[0])))
  for (const name of dead.slice(0, 5)) {
    const dir = join(tmpdir(), name)
    try {
      // Joining and leaving as the last user is what stops a server that nobody uses.
      if (existsSync(join(dir, 'data/postgres/postmaster.pid')))
        await (await startEmbedded({ dataDir: join(dir, 'data') })).stop()
      rmSync(dir, { recursive: true, force: true, maxRetries: 3 })
    } catch {
      // Another user's, or another run sweeps it right now.
    }
  }
}

function urlOf(adminUrl: string, database: string): string {
  const url = new URL(adminUrl)
  url.pathname = `/${database}`
  return url.href
}
