// Loaded into a server under test: on SIGUSR2 it collects its garbage and writes what it holds on to, in bytes, to the file of MEASURE_TO.
import { writeFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')
let times = 0
process.on('SIGUSR2', () => {
  collect()
  collect()
  const { heapUsed, external, rss } = process.memoryUsage()
  writeFileSync(process.env.MEASURE_TO, JSON.stringify({ times: ++times, held: heapUsed + external, rss }))
})
