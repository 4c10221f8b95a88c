import { useEffect, useState } from 'react'

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' })
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' })
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

/** Today's times as a clock shows them, others as a date; the whole of it on hover. */
export function Time({ at }: { at: string }) {
  const date = new Date(at)
  const today = date.toDateString() === new Date().toDateString()
  return (
    <time dateTime={at} title={whole.format(date)}>
      {today ? clock.format(date) : day.format(date)}
    </time>
  )
}

/** The whole seconds until `at` (ms since 1970), counted down while shown. */
export function useSecondsUntil(at: number | null): number {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    if (at === null) return
    setNow(Date.now())
    const timer = setInterval(() => setNow(Date.now()), 500)
    return () => clearInterval(timer)
  }, [at])
  return at === null ? 0 : Math.max(0, Math.ceil((at - now) / 1000))
}
