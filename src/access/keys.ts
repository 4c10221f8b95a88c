// API keys, and the file that takes them away: it is read twice a second, which a change on any kind of disk cannot escape.

import { readFile, stat } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { digestOf, findKey, keysFileBytesMax, parseKeys } from '../config/api-keys.ts'
import type { ApiKey, Auth } from '../config.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'
import type { Caller } from './caller.ts'

const readAgainMs = 500

export interface Keys {
  callerOf(token: string): Caller | undefined
  close(): void
}

/** The keys of a configuration. One that is taken out of the file, or given to another tenant, ends its callers. */
export function createKeys(auth: Auth, clock: Timers, log: Log): Keys {
  let keys: readonly ApiKey[] = [...auth.keys, ...(auth.file?.keys ?? [])]
  const waiting = new Set<() => void>()
  let cancel = () => {}
  let closed = false

  function callerOf(token: string): Caller | undefined {
    const digest = digestOf(token)
    const found = findKey(keys, digest)
    if (found === undefined) return undefined
    const { tenant } = found
    const hasEnded = () => findKey(keys, digest)?.tenant !== tenant
    return {
      tenant,
      hasEnded,
      whenEnded(then) {
        const look = () => {
          if (!hasEnded()) return
          waiting.delete(look)
          then()
        }
        waiting.add(look)
        // Taken away between the request and this moment: nobody would look again.
        const stop = clock.setTimeout(look, 0)
        return () => {
          stop()
          waiting.delete(look)
        }
      },
    }
  }

  function readAgain({ path }: NonNullable<Auth['file']>, known: { digest?: string; fault?: string }): void {
    if (closed) return
    cancel = clock.setTimeout(async () => {
      try {
        if ((await stat(path)).size > keysFileBytesMax) throw new Error(`it has more than ${keysFileBytesMax} bytes`)
        const text = await readFile(path, 'utf8')
        if (known.fault !== undefined) log.info('the file of API keys can be read again')
        const digest = digestOf(text).toString('hex')
        if (digest !== known.digest && !closed) take(text)
        known = { digest }
      } catch (thrown) {
        const { code, message } = thrown as NodeJS.ErrnoException
        const fault = code ?? message
        if (fault !== known.fault)
          log.error({ reason: fault }, 'the file of API keys cannot be read: the keys read last count')
        known = { ...known, fault }
      }
      readAgain({ path, keys: [] }, known)
    }, readAgainMs)
  }

  function take(text: string): void {
    const { keys: ofFile, problems } = parseKeys(text, 'lines')
    const before = keys
    keys = [...auth.keys, ...ofFile]
    for (const problem of problems) log.error({ problem }, 'a line of the file of API keys counts for nothing')
    if (!isDeepStrictEqual(keys, before)) log.info({ keys: ofFile.length }, 'the file of API keys was read again')
    for (const look of [...waiting]) look()
  }

  if (auth.file) readAgain(auth.file, {})
  return {
    callerOf,
    close() {
      closed = true
      cancel()
    },
  }
}
