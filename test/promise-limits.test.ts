// What may be stored is bounded also for many calls at once, in one process and over several.
import { describe, expect, it } from 'vitest'
import { admitPrompt } from '../src/runner/admit.ts'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { createSession } from '../src/runner/sessions.ts'
import { atAppend } from './support/at-append.ts'
import { quiet } from './support/cut-off.ts'
import { hasEvent, newId, useStage } from './support/stage.ts'

const stage = useStage()
const limits = { pendingInputs: 5, sessionsPerDay: 5, textBytes: 1000, attachmentBytes: 1000 }

async function two() {
  const cores = [(await stage.start({ config: { limits } })).core, (await stage.start({ config: { limits } })).core]
  for (const core of cores) quiet(core)
  return cores
}
const forty = <T>(one: (n: number) => Promise<T>) => Promise.all(Array.from({ length: 40 }, (_, n) => one(n)))
const counted = (answers: { type: string }[]) => {
  const counts: Record<string, number> = {}
  for (const { type } of answers) counts[type] = (counts[type] ?? 0) + 1
  return counts
}

describe('PROMISE-21: limits', () => {
  it('PROMISE-210: forty calls at once over two processes make no more sessions than a tenant may have a day', async () => {
    const cores = await two()
    const tenant = `t-${newId('ses_')}`
    const answers = await forty((n) => createSession(cores[n % 2]!, tenant, { sessionId: newId('ses_') }))
    expect(counted(answers)).toEqual({ CreateSessionPayload: 5, LimitExceededError: 35 })
    expect(answers.every((answer) => answer.type !== 'CreateSessionPayload' || answer.created)).toBe(true)
    expect(await stage.db.session.count({ where: { tenant } })).toBe(5)
    // Another tenant has a day of its own; an honest repeat is no new session.
    expect(await createSession(cores[0]!, `${tenant}-2`, { sessionId: newId('ses_') })).toMatchObject({ created: true })
    const [made] = answers.filter((answer) => answer.type === 'CreateSessionPayload')
    expect(await createSession(cores[0]!, tenant, { sessionId: made!.sessionId })).toMatchObject({ created: false })
  })

  it('PROMISE-211: forty calls at once over two processes leave no more inputs waiting than a session may have', async () => {
    const cores = await two()
    const s = await stage.session()
    const answers = await forty<{ type: string }>((n) => {
      const messageId = newId('msg_')
      const core = cores[n % 2]!
      return n % 5 === 0
        ? compactSession(core, 'default', { sessionId: s, messageId })
        : admitPrompt(core, 'default', { sessionId: s, messageId, text: 'x', resume: false })
    })
    const { LimitExceededError, ...stored } = counted(answers)
    expect(LimitExceededError).toBe(35)
    expect(Object.values(stored).reduce((sum, n) => sum + n)).toBe(5)
    expect(await stage.db.input.count({ where: { sessionId: s, state: 'PENDING' } })).toBe(5)
  })

  it.each(['prompt', 'compaction'])(
    'PROMISE-281: the last place goes to one of two processes that saw it free: a %s that comes second is refused',
    async (kind) => {
      const [a, b] = (await two()) as [Core, Core]
      const s = await stage.session()
      const admit = (core: Core) =>
        admitPrompt(core, 'default', { sessionId: s, messageId: newId('msg_'), text: 'x', resume: false })
      for (let n = 0; n < 4; n++) await admit(b)
      const met = atAppend(a, hasEvent('prompt.admitted'), async (go) => {
        await admit(b)
        return go()
      })
      const second =
        kind === 'prompt' ? admit(a) : compactSession(a, 'default', { sessionId: s, messageId: newId('msg_') })
      expect(await second).toMatchObject({ type: 'LimitExceededError', limit: 'pendingInputs' })
      expect(met.count).toBe(1)
      expect(await stage.db.input.count({ where: { sessionId: s, state: 'PENDING' } })).toBe(5)
    },
  )
})
