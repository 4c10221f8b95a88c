/** What went wrong with the embedded database, in words that name the setting to change. The text never holds the password. */
export class EmbeddedDatabaseError extends Error {
  override readonly name = 'EmbeddedDatabaseError'
}

/** The system's error code (`EACCES`, `ENOENT`, ...) or the SQLSTATE of a driver error; undefined for anything else. */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : undefined
}

/** The message of anything thrown. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
