// The config of the servers that are killed: two tools whose effect is a line in a file, written when it happens, so that it can be counted
// whatever becomes of the process.
import { appendFileSync } from 'node:fs'

const inputSchema = {
  type: 'object',
  properties: { beforeMs: { type: 'integer' }, afterMs: { type: 'integer' } },
  required: ['beforeMs', 'afterMs'],
}

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(signal.reason)
    })
  })

async function execute({ beforeMs, afterMs }, { callId, signal }) {
  await pause(beforeMs, signal)
  appendFileSync(process.env.EFFECTS_FILE, `${callId}\n`)
  await pause(afterMs, signal)
  return 'it is done'
}

export default {
  tools: [
    { name: 'effect', description: 'Has an effect.', inputSchema, execute },
    { name: 'guarded', description: 'Has an effect, if a person agrees.', inputSchema, execute, needsApproval: true },
  ],
}
