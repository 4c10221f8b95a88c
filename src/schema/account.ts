// What an operation has read of large values, and holds until its answer is with the client. The bytes are of one budget of the process.

import type { Release } from '../byte-budget.ts'
import type { Context } from './context.ts'
import { refusal } from './refusal.ts'

interface Account {
  bytes: number
  releases: Release[]
}

/** Bytes that a query may read before it asks: what most answers have. Taken before it gets a connection. */
export const smallBytes = 256 * 1024
/** Whoever asks for more holds a connection meanwhile. */
const waitMs = 2000

const accounts = new WeakMap<Context, Account>()

function accountOf(context: Context): Account {
  let account = accounts.get(context)
  if (account === undefined) {
    account = { bytes: 0, releases: [] }
    accounts.set(context, account)
    context.gone.addEventListener('abort', () => settleAccount(context), { once: true })
  }
  return account
}

/** Gives back what the operation holds: its answer is out, or nobody wants it any more. */
export function settleAccount(context: Context): void {
  const account = accounts.get(context)
  accounts.delete(context)
  for (const release of account?.releases ?? []) release()
}

/** An answer may hold what one tenant may. */
const answerBytesMax = (context: Context) => context.core.bytes.bytesMax / 2

/** What may still be read for this answer. */
export const bytesLeft = (context: Context) => answerBytesMax(context) - accountOf(context).bytes

export function refuseLarge(context: Context): never {
  throw refusal(
    'DOCUMENT_TOO_LARGE',
    `the answer is too large: its texts and attachments have more than ${Math.floor(answerBytesMax(context) / 1024 / 1024)} MB; ask for smaller pages or for fewer fields`,
  )
}

/** Nothing more is read for a client that has gone. */
export function mustStay({ gone }: Context): void {
  if (gone.aborted) throw goneError()
}

export const goneError = () => refusal('CLIENT_GONE', 'the client has gone')

/** Waits until the process has room for these bytes; who has gone meanwhile is told from who waited for too long. */
export async function takeRoom(context: Context, bytes: number, waitMs?: number): Promise<Release> {
  const { core, tenant, gone } = context
  try {
    return await core.bytes.take(bytes, { holder: tenant, waitMs, signal: gone })
  } catch (thrown) {
    mustStay(context)
    throw thrown
  }
}

/** Before these bytes are read: waits until the process has room for them. */
export async function spend(context: Context, bytes: number): Promise<void> {
  mustStay(context)
  const account = accountOf(context)
  if (bytes > bytesLeft(context)) refuseLarge(context)
  account.bytes += bytes
  const release = await takeRoom(context, bytes, waitMs)
  // It may have been settled meanwhile.
  if (accounts.get(context) === account) account.releases.push(release)
  else release()
}

/** The same bytes once more in the answer. */
export function repeat(context: Context, bytes: number): void {
  mustStay(context)
  const account = accountOf(context)
  if (bytes > bytesLeft(context)) refuseLarge(context)
  account.bytes += bytes
  account.releases.push(context.core.bytes.add(bytes, context.tenant))
}
