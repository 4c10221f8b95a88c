// Exits 0 if the database that is named answers within three seconds and lets us make databases: node scripts/database-answers.mjs URL
import pg from 'pg'

const client = new pg.Client({ connectionString: process.argv[2], connectionTimeoutMillis: 3000 })
client.on('error', () => {})
try {
  await client.connect()
  const { rows } = await client.query(
    "SELECT rolcreatedb OR rolsuper AS may, current_setting('server_version') AS version FROM pg_roles WHERE rolname = current_user",
  )
  await client.end()
  if (!rows[0]?.may) throw new Error('this user may not make databases')
  console.log(`PostgreSQL ${rows[0].version} answers`)
} catch (error) {
  console.log(error.message)
  process.exitCode = 1
}
