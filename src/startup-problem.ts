import type { Config } from './config.ts'
import { ConfigError } from './config.ts'
import { sqlStateOf } from './db.ts'
import { EmbeddedDatabaseError } from './embedded/server.ts'
import { asError } from './errors.ts'
import { MigrationError } from './migrate.ts'

type Settings = Pick<Config, 'host' | 'port' | 'databaseUrl'>

const unreachable = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
])

/** Why the server does not start, in one text that names the setting to change and no password. `config` is null if that is the reason. */
export function startupProblem(thrown: unknown, config: Settings | null): string {
  const error = asError(thrown) as Error & { code?: unknown; syscall?: unknown }
  if (error instanceof ConfigError || error instanceof EmbeddedDatabaseError) return error.message
  if (error instanceof MigrationError) return error.message
  const code = typeof error.code === 'string' ? error.code : ''
  if (config && error.syscall === 'listen') return listenProblem(code, config)
  if (config?.databaseUrl !== undefined) {
    const where = databaseAt(config.databaseUrl)
    if (unreachable.has(code)) return `DATABASE_URL: no database answers at ${where} (${code})`
    const state = sqlStateOf(error)
    // 28: refused by name, password or pg_hba; 3D000: the database is not there; 57P: starting or stopping; 53: full.
    if (state && /^(28|3D|57P|53|42501)/.test(state))
      return `DATABASE_URL: the database at ${where} refuses: ${error.message} (${state})`
  }
  return error.message || error.name
}

function listenProblem(code: string, { host, port }: Settings): string {
  if (code === 'EADDRINUSE')
    return `PORT is ${port}: that port is taken on ${host}; stop what listens there or set another PORT`
  if (code === 'EACCES') return `PORT is ${port}: this user may not listen there; set a PORT above 1023`
  return `HOST is ${host}, PORT is ${port}: cannot listen there (${code})`
}

function databaseAt(databaseUrl: string): string {
  const { hostname, port } = new URL(databaseUrl)
  return `${hostname}:${port || 5432}`
}
