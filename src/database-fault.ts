// What an SQLSTATE says: whether the database cannot do it now, or the rows make it impossible for ever. Full disks, too little memory, a
// standby after a failover, a cancelled statement and a damaged page are the database's own trouble: they say nothing about a session.

/**
 * Classes of what the database cannot do at the moment.
 * 08 connection, 28 not let in, 3D no such database, 40001 and 40P01 serialization and deadlock, 53 no room, memory or connections,
 * 57 ended, cancelled, starting or stopping, 58 the system under it, XX its own damage
 */
const forNowClasses = new Set(['08', '28', '3D', '53', '57', '58', 'XX'])
const forNowStates = new Set([
  '40001',
  '40003',
  '40P01',
  // A standby, or a server that was made read-only.
  '25006',
  // Another statement of the same transaction has failed: what that one met is told.
  '25P02',
  // A transaction that idled or ran for too long was ended.
  '25P03',
  '25P04',
  // A right was taken away: whoever runs the database gives it back.
  '42501',
  '55006',
  '55P03',
])

/** Is this SQLSTATE one after which the same statement can succeed, once the database is well again? */
export const isTransientState = (state: string) => forNowStates.has(state) || forNowClasses.has(state.slice(0, 2))

/**
 * Did the statement fail for what stands in the rows, or was to be written to them? Values (22), constraints (23), more or larger than
 * PostgreSQL takes (21, 54), a raised exception (P0) and the rules of the door into history (HF). Nothing else is a reason to set a
 * session aside.
 */
export const isOfTheRows = (state: string) => /^(21|22|23|54|P0|HF)/.test(state)

/** Why the database cannot write, in words without names, paths or SQL: they are shown to whoever asks whether the server is ready. */
export function whyNotWritten(state: string | null): string {
  if (state === '53100') return 'the database has no room left on its disk'
  if (state === '53200') return 'the database has too little memory'
  if (state === '53300') return 'the database has no connection left'
  if (state === '25006') return 'the database takes no writes: it is a standby or read-only'
  if (state === '42501') return 'the database does not let this server write'
  if (state?.startsWith('58') || state?.startsWith('XX')) return 'the database cannot read or write its files'
  return 'the database cannot write at the moment'
}
