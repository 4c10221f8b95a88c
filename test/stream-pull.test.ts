import { describe, expect, it } from 'vitest'
import { createPull, type PullSource } from '../src/pull.ts'

/** A source of what the test puts into it, whose `take` lets other things happen while it looks. */
function source(options: { looking?: () => Promise<void> | void; rested?: PullSource<number>['rested'] } = {}) {
  const ready: number[] = []
  const given: number[] = []
  let released = 0
  let taking = 0
  let takingMost = 0
  const pull = createPull<number>({
    async take() {
      takingMost = Math.max(takingMost, ++taking)
      const found = ready[0] ?? null
      await options.looking?.()
      taking--
      return found
    },
    given(item) {
      ready.shift()
      given.push(item)
    },
    rested: options.rested,
    release: () => void released++,
  })
  return { pull, ready, given, counts: () => ({ released, takingMost }) }
}

describe('the pull iterator under every stream', () => {
  it('a wake while it looks makes it look again: what came behind its back is not left lying', async () => {
    let interfere = true
    const { pull, ready } = source({
      looking() {
        if (!interfere) return
        interfere = false
        ready.push(7)
        pull.wake()
      },
    })
    expect(await pull.iterator.next()).toEqual({ done: false, value: 7 })
  })

  it('calls of next() queue, and never look twice at once', async () => {
    const { pull, ready, counts } = source({ looking: () => new Promise((resolve) => setImmediate(resolve)) })
    const all = Promise.all([pull.iterator.next(), pull.iterator.next(), pull.iterator.next()])
    ready.push(1, 2, 3)
    pull.wake()
    pull.wake()
    expect((await all).map((result) => result.value)).toEqual([1, 2, 3])
    expect(counts().takingMost).toBe(1)
  })

  it('STREAM-15: return() answers every waiting call at once and releases once, also while it looks', async () => {
    let look = () => {}
    const { pull, ready, given, counts } = source({ looking: () => new Promise<void>((resolve) => (look = resolve)) })
    ready.push(1)
    const waiting = [pull.iterator.next(), pull.iterator.next()]
    await pull.iterator.return!()
    expect(await Promise.all(waiting)).toEqual([
      { done: true, value: undefined },
      { done: true, value: undefined },
    ])
    look()
    await new Promise((resolve) => setImmediate(resolve))
    // What was found after the end was not given: whoever comes back gets it.
    expect(given).toEqual([])
    await pull.iterator.return!()
    expect(counts().released).toBe(1)
  })

  it('an item that was found when the stream was ended is not given, and the last item is said once', async () => {
    let look = () => {}
    const { pull, ready, given } = source({ looking: () => new Promise<void>((resolve) => (look = resolve)) })
    ready.push(1)
    const waiting = pull.iterator.next()
    pull.endWith(99)
    expect(await waiting).toEqual({ done: false, value: 99 })
    look()
    expect(await pull.iterator.next()).toEqual({ done: true, value: undefined })
    pull.endWith(100)
    expect(await pull.iterator.next()).toEqual({ done: true, value: undefined })
    expect(given).toEqual([])
  })

  it('a last item waits for a reader that is away, unless it closes first', async () => {
    const kept = source().pull
    kept.endWith(1)
    expect(await kept.iterator.next()).toEqual({ done: false, value: 1 })
    const closed = source().pull
    closed.endWith(1)
    await closed.iterator.return!()
    expect(await closed.iterator.next()).toEqual({ done: true, value: undefined })
  })

  it('what take throws reaches one reader, then it is done', async () => {
    const { pull, counts } = source({ looking: () => Promise.reject(new Error('broken')) })
    const waiting = [pull.iterator.next(), pull.iterator.next()]
    await expect(waiting[0]).rejects.toThrow('broken')
    expect(await waiting[1]).toEqual({ done: true, value: undefined })
    expect(counts().released).toBe(1)
  })

  it('exclusive work and take never overlap; a reader that came meanwhile is served afterwards', async () => {
    const { pull, ready, given } = source()
    let finish = () => {}
    const working = pull.exclusively(() => new Promise<void>((resolve) => (finish = resolve)))
    ready.push(1)
    const waiting = pull.iterator.next()
    await new Promise((resolve) => setImmediate(resolve))
    expect(given).toEqual([])
    finish()
    await working
    expect(await waiting).toEqual({ done: false, value: 1 })
  })
})
