// How many bytes of text a stored value will be, before it is read. Text tells its length without being read, and so does JSON that the table
// did not compress; compressed JSON has to be unpacked for it, so whoever adds up many stops at what they may have.

import { Prisma } from './generated/prisma/client.ts'

/** The bytes of a text column, as SQL. */
export const textBytes = (column: Prisma.Sql) => Prisma.sql`COALESCE(octet_length(${column}), 0)`

/** The bytes of a JSON column, as SQL: near enough. */
export const jsonBytes = (column: Prisma.Sql) =>
  Prisma.sql`COALESCE(CASE WHEN pg_column_compression(${column}) IS NULL THEN pg_column_size(${column}) ELSE octet_length(${column}::text) END, 0)`
