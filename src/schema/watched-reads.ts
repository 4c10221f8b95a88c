/**
 * A client of the database that knows what is under way in it. `quiet` resolves when nothing is, and nothing has begun in the turn after that.
 */
export function watchedReads<T extends object>(client: T): { client: T; quiet(): Promise<void> } {
  const underWay = new Set<Promise<unknown>>()
  let begun = 0

  function watch(result: unknown): unknown {
    if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') return result
    begun += 1
    const reading = Promise.resolve(result)
    underWay.add(reading)
    const done = () => void underWay.delete(reading)
    reading.then(done, done)
    return reading
  }

  /** The client's own methods, and those of its models. */
  const watched = <O extends object>(of: O): O =>
    new Proxy(of, {
      get(target, name) {
        const value = Reflect.get(target, name)
        if (typeof value === 'function') return (...args: unknown[]) => watch(Reflect.apply(value, target, args))
        return typeof value === 'object' && value !== null ? watched(value) : value
      },
    })

  return {
    client: watched(client),
    async quiet() {
      for (let seen = -1; seen !== begun; ) {
        seen = begun
        await Promise.allSettled(underWay)
        await new Promise((resolve) => setImmediate(resolve))
      }
    },
  }
}
