import { defineConfig } from 'prisma/config'

/** For Prisma's own commands only; the server reads none of this. They need a DATABASE_URL just to look at a database. */
export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
  ...(process.env.DATABASE_URL ? { datasource: { url: process.env.DATABASE_URL } } : {}),
})
