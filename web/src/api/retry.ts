/** Back-off of docs/clients.md: 0.5 s, then twice as long each time, up to `mostMs`; a little earlier or later, so that tabs do not knock together. */
export const backOffMs = (attempt: number, mostMs = 30_000): number =>
  Math.round(Math.min(500 * 2 ** Math.min(attempt, 10), mostMs) * (0.8 + Math.random() * 0.4))

const wakers = new Set<() => void>()

/** Ends all waits now: the user asked, or the network says that it is back. */
export function tryNow(): void {
  for (const wake of [...wakers]) wake()
}

window.addEventListener('online', tryNow)
document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && tryNow())

/** Resolves after `ms`, or as soon as a new try makes sense. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      wakers.delete(end)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    wakers.add(end)
    signal?.addEventListener('abort', end)
    if (signal?.aborted) end()
  })
}
