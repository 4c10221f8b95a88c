import { closeSync, fstatSync, openSync, readlinkSync, statSync } from 'node:fs'
import { codeOf } from './error.ts'

/** A directory that is known by what it is and not by its name: it may be moved or removed under us. */
export interface Followed {
  /** Is it where it was? True also where the system does not say at the moment. */
  isHere(): boolean
  /** Its path as it is now; undefined when it is nowhere any more, and when it has gone and the system does not tell where to. */
  where(): string | undefined
  close(): void
}

/** Follows a directory that is there now. */
export function follow(dir: string): Followed {
  const { dev, ino } = statSync(dir, { bigint: true })
  const isIt = (path: string) => {
    const now = statSync(path, { bigint: true })
    return now.dev === dev && now.ino === ino
  }
  // An open directory is followed by the kernel.
  const handle = process.platform === 'linux' ? openSync(dir, 'r') : undefined
  let isOpen = handle !== undefined

  function isHere(): boolean {
    try {
      return isIt(dir)
    } catch (error) {
      // Anything else is trouble of the file system: it says nothing about where the directory is.
      return codeOf(error) !== 'ENOENT' && codeOf(error) !== 'ENOTDIR'
    }
  }

  return {
    isHere,
    where() {
      if (isHere()) return dir
      if (!isOpen || fstatSync(handle!).nlink === 0) return undefined
      try {
        const now = readlinkSync(`/proc/self/fd/${handle}`)
        return isIt(now) ? now : undefined
      } catch {
        return undefined
      }
    },
    close() {
      if (isOpen) closeSync(handle!)
      isOpen = false
    },
  }
}
