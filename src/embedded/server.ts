import { hasCluster } from './cluster.ts'
import { EmbeddedDatabaseError } from './error.ts'
import { keepRunning } from './keep-running.ts'
import { launch } from './launch.ts'
import { withLaunchLock } from './lock.ts'
import { locate, openDataDir } from './place.ts'
import { stopServer } from './stop.ts'
import { joinUsers } from './users.ts'

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
}): Promise<EmbeddedDatabase> {
  const log = options.log ?? (() => {})
  const dataDir = openDataDir(options.dataDir)
  const { place, url, joined, membership } = await withLaunchLock(dataDir, log, async () => {
    const place = locate(dataDir, log)
    const found = await launch(place, log)
    // Under the same lock: between finding the server and being counted nobody may stop it as the last one.
    return { place, ...found, membership: joinUsers(place.usersDir) }
  })
  const keeper = keepRunning(dataDir, place, log)
  let stopping: Promise<void> | undefined
  return {
    url,
    joined,
    stop() {
      stopping ??= (async () => {
        await keeper.end()
        // Deleted under us: nothing is left to leave or to stop.
        if (!hasCluster(place)) return
        await withLaunchLock(dataDir, log, async () => {
          if (membership.leave().last) await stopServer(place, log)
        })
      })()
      return stopping
    },
  }
}
