// Ids and names of calls as every provider takes them. A model may have made up a name that no tool has, and servers use ids that others
// refuse or use one twice; sent as they are, one such call would fail every later request of the session.

import { createHash } from 'node:crypto'

/** The name with what providers refuse replaced; the call has its result either way. */
export function wireName(name: string): string {
  return name.replace(/[^a-zA-Z0-9_-]/g, '_').slice(0, 64) || 'unnamed'
}

/**
 * Gives each call of one prompt the id under which it is sent: its own where that will do, else one derived from message and call, the
 * same in every request, so that a provider's prompt cache still holds. Ask once per call, in order.
 */
export function wireIds(): (messageId: string, callId: string) => string {
  const used = new Set<string>()
  return (messageId, callId) => {
    const fits = /^[a-zA-Z0-9_-]{1,64}$/.test(callId) && !used.has(callId)
    const digest = () =>
      createHash('sha256')
        .update(JSON.stringify([messageId, callId]))
        .digest('hex')
    const id = fits ? callId : `call_${digest().slice(0, 32)}`
    used.add(id)
    return id
  }
}
