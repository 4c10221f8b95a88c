// Parses large JSON in a thread of its own (json.ts). Plain JavaScript, so that it loads the same beside the bundle and from the sources.
import { parentPort } from 'node:worker_threads'

const decoder = new TextDecoder()

parentPort.on('message', (bytes) => {
  let parsed
  try {
    parsed = { value: JSON.parse(decoder.decode(bytes)) }
  } catch {
    // What the parser says quotes the text.
    parsed = { invalid: true }
  }
  parentPort.postMessage(parsed)
})
