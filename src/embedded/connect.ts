import { realpathSync } from 'node:fs'
import pg from 'pg'
import { roleName } from './cluster.ts'
import { codeOf } from './error.ts'
import type { Place } from './place.ts'

const databaseName = 'holdfast'

/** The address of a place's server. It holds the password: never log it. */
export function urlOf(port: number, password: string): string {
  // sslmode: an inherited PGSSLMODE must not make drivers ask a loopback server for TLS.
  return `postgresql://${roleName}:${password}@127.0.0.1:${port}/${databaseName}?sslmode=disable`
}

/**
 * Asks whether the place's own server answers on the port. `serving` also means that the database is there. `busy` is a
 * server that starts, stops or has no connection left; `other` is somebody else's, or a copy of this directory. `isMoved`: does its
 * process work in this very directory? Asked when it knows the directory by another name, under which it was started before that was moved: it is
 * the one server of this data, and a second one would refuse to begin beside it.
 */
export async function probe(
  place: Place,
  port: number,
  password: string,
  isMoved: () => boolean = () => false,
): Promise<'serving' | 'busy' | 'silent' | 'other'> {
  const isThis = (directory: string) => isSame(directory, place.cluster) || isMoved()
  try {
    const seen = await withClient(port, password, databaseName, readDirectory).catch(async (error) => {
      if (codeOf(error) !== '3D000') throw error
      return withClient(port, password, 'postgres', async (client) => {
        const directory = await readDirectory(client)
        if (isThis(directory)) await client.query(`CREATE DATABASE ${databaseName}`)
        return directory
      })
    })
    return isThis(seen) ? 'serving' : 'other'
  } catch (error) {
    const code = codeOf(error) ?? ''
    // 57P03 starting or stopping, 57P01 stopped under us, 53300 full, 42P04 and 23505: made by someone else just now.
    if (['57P03', '57P01', '53300', '42P04', '23505', '55006'].includes(code)) return 'busy'
    if (code === '28P01' || code === '28000') return 'other'
    return 'silent'
  }
}

async function readDirectory(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ directory: string }>(`SELECT current_setting('data_directory') AS directory`)
  return rows[0]!.directory
}

async function withClient<T>(
  port: number,
  password: string,
  database: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user: roleName,
    password,
    database,
    ssl: false,
    connectionTimeoutMillis: 5_000,
    query_timeout: 30_000,
  })
  // A server that dies under an idle client emits here; without a listener that would end the process.
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end().catch(() => {})
  }
}

function isSame(a: string, b: string): boolean {
  try {
    return realpathSync(a) === realpathSync(b)
  } catch {
    return false
  }
}
