import { migrate } from '../../src/migrate.ts'

/** A process that migrates, for tests to kill: node --import tsx migrate-child.ts <url> <dir> */
const [url = '', dir] = process.argv.slice(2)
migrate({ url, ...(dir ? { dir } : {}) }).then(
  ({ applied }) => console.log(`applied ${applied.join(' ')}`),
  (error) => {
    console.error(error.message)
    process.exitCode = 1
  },
)
