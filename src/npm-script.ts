// Whether this process is all that an npm script runs, in the foreground of it.

import { basename } from 'node:path'

const runners = new Set(['node', 'tsx', 'holdfast'])

/**
 * Does a script of package.json run this program and nothing else, so that npm and its shell wait for it? `program`: the file that runs. A script that puts it
 * into the background, or has something beside it, ends by itself sooner or later: that tells this process nothing.
 */
export function isWholeScript(script: string | undefined, program: string | undefined): boolean {
  if (script === undefined || program === undefined || /[&|;<>()`'"\n$]/.test(script)) return false
  const words = script.trim().split(/\s+/)
  const first = words.findIndex((word) => !/^\w+=/.test(word) && word !== 'exec')
  const command = basename(words[first] ?? '')
  if (command === 'holdfast') return true
  return runners.has(command) && words.slice(first + 1).some((word) => basename(word) === basename(program))
}
