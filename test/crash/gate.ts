// The edge between one incarnation of a core and everything outside of it. Whatever leaves the incarnation goes through here and is
// numbered; at the planned place the incarnation dies: from then on nothing that it asked for is answered, so no code of it runs on.

/** One place where an incarnation can die: the nth time that this happens in it. */
export interface Point {
  label: string
  nth: number
}

export type Mode = 'before' | 'after'

export interface Death extends Point {
  /** Commit: before it reaches the database, or durable and never answered. Effect outside: not happened, or happened and never answered. */
  mode: Mode
}

export interface Gate {
  /** In order. Nothing is added once `counts` is false. */
  readonly points: readonly Point[]
  readonly isDead: boolean
  /** Resolves at the death. */
  readonly died: Promise<void>
  /** The planned death has happened where it was planned. */
  readonly wasHit: boolean
  /** Points are counted, and die, while this is so. */
  counts: boolean
  /** Something that leaves no trace: not a point, but unanswered after the death. */
  passing<T>(work: () => Promise<T>): Promise<T>
  /** A commit or an effect outside, as one point; none if its answer says that nothing was written. */
  through<T>(label: string, work: () => Promise<T>, hasWritten?: (answer: T) => boolean): Promise<T>
  /** The two halves of `through` for a commit at the end of something longer. `enter` throws `Died` at a planned "before". */
  enter(label: string): Point
  leave(point: Point, hasWritten?: boolean): void
  die(): void
  /** Resolves when nothing that was sent before the death is under way any more. */
  quiet(): Promise<void>
}

/** Ends work of the harness itself (an open transaction) at the death; code of the core never sees it. */
export class Died extends Error {
  override name = 'Died'
}

export const unanswered = <T>() => new Promise<T>(() => {})

/** `done` hears of each point that was passed, and of the death. */
export function createGate(planned: Death | null, done: (label: string) => void = () => {}): Gate {
  const points: Point[] = []
  const counts = new Map<string, number>()
  const under = new Set<Promise<unknown>>()
  let isDead = false
  let wasHit = false
  let resolveDied = () => {}
  const died = new Promise<void>((resolve) => {
    resolveDied = resolve
  })

  function die() {
    if (isDead) return
    isDead = true
    resolveDied()
  }
  const isPlanned = (point: Point, mode: Mode) =>
    planned !== null && planned.mode === mode && planned.label === point.label && planned.nth === point.nth

  function hit() {
    wasHit = true
    die()
  }

  async function passing<T>(work: () => Promise<T>): Promise<T> {
    if (isDead) return unanswered()
    const sent = work()
    const settled = sent.then(
      () => {},
      () => {},
    )
    under.add(settled)
    void settled.then(() => under.delete(settled))
    try {
      const answer = await sent
      return isDead ? unanswered() : answer
    } catch (thrown) {
      if (isDead) return unanswered()
      throw thrown
    }
  }

  const gate: Gate = {
    points,
    counts: true,
    get isDead() {
      return isDead
    },
    get wasHit() {
      return wasHit
    },
    died,
    passing,
    async through(label, work, hasWritten = () => true) {
      if (isDead) return unanswered()
      let point: Point
      try {
        point = gate.enter(label)
      } catch {
        return unanswered()
      }
      try {
        const answer = await passing(work)
        gate.leave(point, hasWritten(answer))
        return isDead ? unanswered() : answer
      } catch (thrown) {
        // What was refused outside has been asked for all the same.
        gate.leave(point)
        if (isDead) return unanswered()
        throw thrown
      }
    },
    enter(label) {
      const nth = (counts.get(label) ?? 0) + 1
      const point = { label, nth }
      counts.set(label, nth)
      if (!gate.counts) return point
      points.push(point)
      if (isPlanned(point, 'before')) {
        hit()
        throw new Died(`at ${label}`)
      }
      return point
    },
    leave(point, hasWritten = true) {
      if (isDead) return
      if (!hasWritten) {
        // Refused: whether it was tried at all is a race of its own, and a death there leaves what a death around it leaves.
        counts.set(point.label, point.nth - 1)
        if (points.includes(point)) points.splice(points.indexOf(point), 1)
        return
      }
      done(point.label)
      if (gate.counts && isPlanned(point, 'after')) hit()
    },
    die,
    async quiet() {
      while (under.size > 0) await Promise.all(under)
    },
  }
  return gate
}
