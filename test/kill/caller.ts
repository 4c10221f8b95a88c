// An honest client: what got no answer is sent again byte for byte, to whichever server is there, until it is answered.
import { setTimeout as sleep } from 'node:timers/promises'

export interface Caller {
  /** The data of the answer. Throws on an error that a repeat cannot mend, and when nobody answers for too long. */
  // biome-ignore lint/suspicious/noExplicitAny: callers read what they asked for
  call(query: string, variables: Record<string, unknown>): Promise<any>
  /** Requests that got no answer and were sent again. */
  retries(): number
  answers(): number
}

const answerMsMax = 120_000
// An interrupt answers after at most 30 s.
const attemptMsMax = 35_000

export function createCaller(urls: () => string[]): Caller {
  let retries = 0
  let answers = 0
  let turn = 0
  return {
    retries: () => retries,
    answers: () => answers,
    async call(query, variables) {
      const body = JSON.stringify({ query, variables })
      const deadline = Date.now() + answerMsMax
      for (let last: unknown; ; ) {
        if (Date.now() > deadline) throw new Error(`nobody answered for ${answerMsMax} ms: ${body}`, { cause: last })
        const all = urls()
        const url = all[turn++ % all.length]
        if (url === undefined) {
          await sleep(50)
          continue
        }
        try {
          const response = await fetch(new URL('graphql', url), {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body,
            signal: AbortSignal.timeout(attemptMsMax),
          })
          const { data, errors } = (await response.json()) as {
            data: unknown
            errors?: { message: string; extensions?: { code?: string } }[]
          }
          if (errors === undefined) {
            answers++
            return data
          }
          last = errors
          // The one code that a repeat mends: the database is away.
          if (!errors.every(({ extensions }) => extensions?.code === 'UNAVAILABLE'))
            throw new Refused(`${JSON.stringify(errors)} to ${body}`)
        } catch (thrown) {
          if (thrown instanceof Refused) throw thrown
          last = thrown
        }
        retries++
        await sleep(20 + Math.random() * 80)
      }
    },
  }
}

class Refused extends Error {}
