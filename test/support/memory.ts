import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
/** At once, and all of it. */
export const collectGarbage = runInNewContext('gc') as () => void

/**
 * What this process holds on to, in MB: objects, and buffers outside the heap such as those of writes that wait for a socket. Not the
 * resident size: how much of what was freed an allocator keeps differs by 100 MB between versions of Node and from run to run.
 */
export function heldMegabytes(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return (heapUsed + external) / 1024 / 1024
}
