// Whether this machine stood still. The monotonic clock does so too while a machine is suspended, so what was proven before looks fresh
// afterwards, and others may have taken it since. The wall clock has gone on: where it runs ahead of the monotonic one the machine may have
// slept, or somebody has set the clock. Nobody can tell which, so what was proven before is proven again; nothing is given up for it.

export interface Standstill {
  /** Monotonic ms at which a standstill was noticed last, if there was one. What was proven before is in doubt. */
  noticedAt(): number
}

/** Smaller ones are within the margin that every lease has. They add up until they are not. */
const noticeableMs = 500

/** `now`: monotonic ms. `wall`: ms of the wall clock. */
export function createStandstill(
  now: () => number = () => performance.now(),
  wall: () => number = () => Date.now(),
): Standstill {
  let noticed = Number.NEGATIVE_INFINITY
  let lead = wall() - now()
  return {
    noticedAt() {
      const at = now()
      const leads = wall() - at
      if (leads - lead > noticeableMs) noticed = at
      // A wall clock that was set back is no standstill.
      if (noticed === at || leads < lead) lead = leads
      return noticed
    },
  }
}
