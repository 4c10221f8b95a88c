import { hasCluster } from './cluster.ts'
import { EmbeddedDatabaseError } from './error.ts'
import { follow } from './followed.ts'
import { keepRunning } from './keep-running.ts'
import { launch } from './launch.ts'
import { withLaunchLock } from './lock.ts'
import { layout, locate, openDataDir } from './place.ts'
import { stopProcess, stopServer } from './stop.ts'
import { hasUsers, joinUsers } from './users.ts'

export { EmbeddedDatabaseError }

/**
 * A PostgreSQL of one's own in a directory. `url` names its database `holdfast` and holds the password: never log it.
 * `joined` tells that the server was running already. `stop` leaves it, and stops the server when nobody else uses it;
 * calling it again waits for the same end.
 */
export type EmbeddedDatabase = { url: string; joined: boolean; stop(): Promise<void> }

/**
 * Starts the embedded PostgreSQL of a data directory, or joins the one that runs there (design section 3). The server is
 * a process of its own: it outlives a kill -9 of this one and is found again, and it does not keep this process alive.
 * While this process uses it, a server that died is started again on the same port.
 *
 * @throws EmbeddedDatabaseError, in words that name HOLDFAST_DATA_DIR or DATABASE_URL, when that cannot be done.
 */
export async function startEmbedded(options: {
  dataDir: string
  log?: (line: string) => void
  /** Told once, within some seconds, when the directory was moved or removed: this process cannot go on, and `stop` is to be called. */
  gone?: (why: string) => void
}): Promise<EmbeddedDatabase> {
  const log = options.log ?? (() => {})
  const dataDir = openDataDir(options.dataDir)
  const { place, url, joined, membership } = await withLaunchLock(dataDir, log, async () => {
    const place = locate(dataDir, log)
    let found: { url: string; joined: boolean }
    try {
      found = await launch(place, log)
    } catch (error) {
      // What it began before it failed: nobody would ever stop it.
      if (!hasUsers(place.usersDir)) await stopServer(place, log)
      throw error
    }
    // Under the same lock: between finding the server and being counted nobody may stop it as the last one.
    try {
      return { place, ...found, membership: joinUsers(place.usersDir) }
    } catch (error) {
      if (!hasUsers(place.usersDir)) await stopServer(place, log)
      throw error
    }
  })
  const followed = follow(dataDir)
  const keeper = keepRunning(dataDir, place, followed, log, options.gone ?? log)
  let stopping: Promise<void> | undefined
  return {
    url,
    joined,
    stop() {
      stopping ??= (async () => {
        await keeper.end()
        const now = followed.where()
        const at = now === undefined || now === dataDir || place.home !== dataDir ? place : layout(now)
        // Gone under us: nobody can be asked who else uses it. A server that is left has nothing to serve.
        if (now === undefined || !hasCluster(at)) {
          const server = keeper.server()
          if (server !== undefined) await stopProcess(server)
        } else
          await withLaunchLock(now, log, async () => {
            if (membership.leave(at.usersDir).last) await stopServer(at, log)
          })
        followed.close()
      })()
      return stopping
    },
  }
}
