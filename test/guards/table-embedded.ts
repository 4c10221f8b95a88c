// What keeps the database that comes along whole, and its server the only one of its data.

import type { Guard } from './mutant.ts'

const moved = 'promise-moved.test.ts'

const disk = 'promise-full-disk.test.ts'

export const embeddedGuards: readonly Guard[] = [
  {
    id: 'moved-noticed',
    file: 'src/embedded/keep-running.ts',
    find: 'if (!followed.isHere() || !hasCluster(place)) {',
    replace: 'if (HIT(false)) {',
    keeps: 'a server from going on without its directory',
    tests: [[moved, 'PROMISE-151']],
  },
  {
    id: 'moved-found',
    file: 'src/embedded/connect.ts',
    find: 'isSame(directory, place.cluster) || isMoved()',
    replace: 'isSame(directory, place.cluster) || HIT(false)',
    keeps:
      'a database server whose directory was moved from being taken for a stranger, beside which none can be started',
    tests: [[moved, 'PROMISE-152']],
  },
  {
    id: 'removed-server-ended',
    file: 'src/embedded/server.ts',
    find: 'if (server !== undefined) await stopProcess(server)',
    replace: 'HIT(server)',
    keeps: 'a database server whose directory is gone from being left behind',
    tests: [[moved, 'PROMISE-153']],
  },
  {
    id: 'client-whole-at-start',
    file: 'src/start.ts',
    find: 'await core.db.$queryRaw`SELECT 1`',
    replace: 'HIT(core)',
    keeps: 'files that are moved before the first query from being told as a database that is away for ever',
    tests: [[moved, 'PROMISE-154']],
  },
  {
    id: 'no-half-file',
    file: 'src/embedded/place.ts',
    find: 'rmSync(temporary, { force: true })\n    throw unwritable(path, error)',
    replace: 'throw HIT(error)',
    keeps: 'half of a small file from staying on a full disk, and its reason from being told without the disk',
    tests: [[disk, 'PROMISE-086']],
  },
  {
    id: 'script-in-background',
    file: 'src/server.ts',
    find: 'if (isWholeScript(process.env.npm_lifecycle_script, process.argv[1])) {',
    replace: 'if (HIT(process.env.npm_lifecycle_event !== undefined)) {',
    keeps: 'a server in the background of a script from ending with it',
    tests: [['promise-parent.test.ts', 'it goes on']],
  },
  {
    id: 'database-fits',
    file: 'src/migrate.ts',
    find: 'if (broken.length === 0) return',
    replace: 'if (HIT(true)) return',
    keeps: 'sessions out of a database that cannot keep every text, or in which a transaction sees what it should not',
    tests: [
      ['promise-fit.test.ts', 'PROMISE-155'],
      ['promise-fit.test.ts', 'PROMISE-156'],
    ],
  },
  {
    id: 'database-fits-schema',
    file: 'src/database-fit.ts',
    find: 'if (elsewhere !== null)',
    replace: 'if (HIT(false))',
    keeps: 'tables from being begun anew in a schema beside those that are there',
    tests: [['promise-fit.test.ts', 'PROMISE-157']],
  },
]
