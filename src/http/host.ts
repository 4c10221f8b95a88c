import { isLoopback } from '../config/auth.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'

/** For whoever is refused: the rule, and the setting that widens it. */
export const strangeHostText =
  'without authentication only requests to a loopback name or address are served (localhost, 127.0.0.1, [::1]), or to a name listed in HOLDFAST_ALLOWED_HOSTS'

const warnEveryMs = 60_000
/** Of a name in the log: it is the caller's text. */
const shownMax = 255

/** Is a request with this Host header meant for another server, so that it has to be refused? */
export type HostCheck = (host: string | undefined) => boolean

/**
 * Answers for a Host header whether the request was meant for another server. Anybody may point a name at 127.0.0.1: then a page at that name reaches a
 * server on this machine, and to the browser it is the page's own server, so the origin tells nothing (DNS rebinding, SEC-06). The name itself does. With
 * authentication every name will do: such a page has no token.
 */
export function createHostCheck(options: {
  guarded: boolean
  allowed?: readonly string[] | undefined
  log: Log
  clock: Pick<Timers, 'now'>
}): HostCheck {
  const { guarded, allowed = [], log, clock } = options
  let refused = 0
  let warnedAt = Number.NEGATIVE_INFINITY
  return (host) => {
    if (guarded) return false
    const name = nameOf(host)
    if (name !== undefined && (isThisMachine(name) || allowed.includes(name))) return false
    refused += 1
    // Once a minute: whoever is refused could fill the disk otherwise.
    if (clock.now() - warnedAt >= warnEveryMs) {
      warnedAt = clock.now()
      log.warn(
        { host: host?.slice(0, shownMax) ?? null, refused },
        'refused: the host is not one of ours; see HOLDFAST_ALLOWED_HOSTS',
      )
      refused = 0
    }
    return true
  }
}

/** The name or address of a Host header, in lower case, without port and without the dot that may end it. */
function nameOf(host = ''): string | undefined {
  const name = /^(\[[\da-f:.]+\]|[^:[\]]+)(?::\d*)?$/i.exec(host)?.[1]
  return name?.toLowerCase().replace(/\.$/, '')
}

/** No name below localhost ever leaves the machine, whoever is asked for it (RFC 6761). */
const isThisMachine = (name: string) => isLoopback(name) || name.endsWith('.localhost')
