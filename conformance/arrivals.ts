import { Failed, shown } from './outcome.ts'

/** The longest wait for anything that a server does at once, in ms: generous, as the machine may be busy. */
export const waitMs = 20_000

/** What has come in so far over some connection, and bounded waits for what is still to come. */
export interface Arrivals<T> {
  readonly all: readonly T[]
  /** Why nothing more comes; null while more may come. */
  readonly closed: string | null
  push(item: T): void
  close(why: string): void
  /** Resolves as soon as the test holds; fails after `ms`, or when the connection ends before. */
  until(what: string, test: (all: readonly T[]) => boolean, ms?: number): Promise<void>
  /** Resolves when nothing more comes; fails after `ms`. */
  end(what: string, ms?: number): Promise<void>
}

export function arrivals<T>(): Arrivals<T> {
  const all: T[] = []
  const looks = new Set<() => void>()
  let closed: string | null = null
  const lookAgain = () => {
    for (const look of [...looks]) look()
  }

  function wait(what: string, test: () => boolean, overAtClose: boolean, ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const done = (failure?: Failed) => {
        clearTimeout(timer)
        looks.delete(look)
        if (failure) reject(failure)
        else resolve()
      }
      const last = () => `${all.length} arrivals, the last ones ${shown(all.slice(-3))}`
      const timer = setTimeout(() => done(new Failed(what, `it within ${ms} ms`, last())), ms)
      const look = () => {
        if (test()) done()
        else if (overAtClose && closed !== null)
          done(new Failed(what, 'it before the end', `${closed} after ${last()}`))
      }
      looks.add(look)
      look()
    })
  }

  return {
    all,
    get closed() {
      return closed
    },
    push(item) {
      all.push(item)
      lookAgain()
    },
    close(why) {
      closed ??= why
      lookAgain()
    },
    until: (what, test, ms = waitMs) => wait(what, () => test(all), true, ms),
    end: (what, ms = waitMs) => wait(what, () => closed !== null, false, ms),
  }
}

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

/** Asks again and again until the answer passes the test; fails after `ms` with the last answer. */
export async function poll<T>(
  what: string,
  ask: () => Promise<T>,
  test: (answer: T) => boolean,
  ms = waitMs,
): Promise<T> {
  const until = Date.now() + ms
  for (;;) {
    const answer = await ask()
    if (test(answer)) return answer
    if (Date.now() > until) throw new Failed(what, `it within ${ms} ms`, answer)
    await pause(40)
  }
}

/** A promise that has to settle in time. */
export async function within<T>(what: string, promise: Promise<T>, ms = waitMs): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Failed(what, `it within ${ms} ms`, 'nothing')), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
