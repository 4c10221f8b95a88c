// Whether a test run left a process behind: node scripts/left-running.mjs MARK
// The mark is a word that only the run's own processes have in their command line or their environment, the path of its temporary
// directory say. Prints those that are still there after a few seconds, and fails. Linux only, as it reads /proc.
import { readdirSync, readFileSync } from 'node:fs'
import { argv, exit, pid } from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'

const [mark] = argv.slice(2)
if (!mark) {
  console.error('left-running.mjs: MARK is missing, a word that only the processes of the run have')
  exit(2)
}

/** Of a process that has gone, or is another user's, there is nothing to read. */
function read(process, name) {
  try {
    return readFileSync(`/proc/${process}/${name}`, 'latin1').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}

/** This process and those above it: whoever runs this has the mark in its command line, too. */
const own = new Set()
for (let process = String(pid); process > '0' && !own.has(process); ) {
  own.add(process)
  process = /^PPid:\t(\d+)$/m.exec(read(process, 'status'))?.[1] ?? '0'
}

const running = () =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && !own.has(name))
    .map((process) => ({ process, command: read(process, 'cmdline') }))
    .filter(({ process, command }) => command.includes(mark) || read(process, 'environ').includes(mark))

// A server that was told to stop may take a moment for it.
for (let tries = 0; tries < 50 && running().length > 0; tries++) await sleep(100)
const left = running()
for (const { process, command } of left) console.error(`still running: ${process} ${command}`)
if (left.length > 0) exit(1)
console.log('no process is left')
