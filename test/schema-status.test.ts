import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'
import { admitted, asking, created, promoted } from './support/story.ts'

let served: Served
let count = 0
beforeAll(async () => {
  served = await serveLog()
})
afterAll(() => served.close())

const scanMs = 5000

describe('API-15: the status is the first that applies', () => {
  let id: string
  let owed: () => Promise<unknown>
  let claim: (aliveMs: number) => Promise<unknown>
  beforeEach(async () => {
    await served.database.shiftClock(0)
    const n = String(++count).padStart(4, '0')
    id = `ses_status${n}`
    await served.append(id, created())
    owed = () => served.append(id, admitted(`msg_status${n}`, 'Hello', true))
    claim = async (aliveMs) => {
      const now = Date.now()
      await served.core.db.claim.create({
        data: {
          sessionId: id,
          executionId: `exe_.${n}`,
          owner: 'own_.somebody',
          phase: 'UNKNOWN',
          startedAt: new Date(now),
          expiresAt: new Date(now + aliveMs),
        },
      })
    }
  })

  /** Shown on the session, in the list, and by the filter: all three have to agree. */
  async function status(): Promise<string> {
    const { data, errors } = await served.ask('query ($id: ID!) { session(id: $id) { status } }', { id })
    expect(errors).toBeUndefined()
    const shown = data.session.status as string
    for (const filter of ['IDLE', 'RUNNING', 'WAITING', 'RECOVERING', 'PARKED', 'QUARANTINED']) {
      const list = await served.ask(`{ sessions(first: 200, status: [${filter}]) { edges { node { id status } } } }`)
      const found = list.data.sessions.edges.some((edge: { node: { id: string } }) => edge.node.id === id)
      expect(found, `filter ${filter}`).toBe(filter === shown)
    }
    return shown
  }
  const later = () => served.database.shiftClock(scanMs + 1000)

  it('API-15, ADM-02: a session with nothing armed is IDLE, whatever is pending', async () => {
    expect(await status()).toBe('IDLE')
    await served.append(id, admitted(`msg_idle${id.slice(-4)}`))
    await later()
    expect(await status()).toBe('IDLE')
  })

  it('API-15: owed work is RUNNING for one scan, then RECOVERING', async () => {
    await owed()
    expect(await status()).toBe('RUNNING')
    await later()
    expect(await status()).toBe('RECOVERING')
  })

  it('API-15: a live claim is RUNNING, one that ran out is RECOVERING after a scan', async () => {
    await claim(60_000)
    await later()
    expect(await status()).toBe('RUNNING')
    await served.database.shiftClock(61_000)
    expect(await status()).toBe('RECOVERING')
  })

  it('API-15, PROMO-23: an open interaction is WAITING although a step is owed and prompts are armed; once decided, work is owed', async () => {
    const message = `msg_wait${id.slice(-4)}`
    await served.append(id, admitted(message), promoted(message), ...asking(`msg_.${id}`, `req_.${id}`))
    await owed()
    expect(await status()).toBe('WAITING')
    await later()
    expect(await status()).toBe('WAITING')
    await served.append(
      id,
      event('interaction.settled', {
        interactionId: `req_.${id}`,
        state: 'APPROVED',
        answer: null,
        feedback: null,
        editedInput: null,
        remember: true,
      }),
    )
    await served.database.shiftClock(2 * scanMs + 10_000)
    expect(await status()).toBe('RECOVERING')
    const { data } = await served.ask('query ($id: ID!) { session(id: $id) { approvedTools } }', { id })
    expect(data.session.approvedTools).toEqual(['send'])
    const tool = served.core.tools.get('send') as { definition: string }
    tool.definition = 'another one'
    const changed = await served.ask('query ($id: ID!) { session(id: $id) { approvedTools } }', { id })
    tool.definition = 'as shown'
    expect(changed.data.session.approvedTools).toEqual([])
  })

  it('API-15: PARKED comes before what is owed, QUARANTINED before everything', async () => {
    await claim(60_000)
    await served.append(id, event('session.parked', { reason: 'three crashes' }))
    expect(await status()).toBe('PARKED')
    const quarantine = (kind: 'EXECUTION' | 'RECOVERY') =>
      event('quarantine.opened', {
        quarantineId: `qua_.${kind}${id}`,
        executionId: 'exe_.q',
        quarantineKind: kind,
        reason: 'test',
      })
    await served.append(id, quarantine('RECOVERY'))
    expect(await status()).toBe('PARKED')
    await served.append(id, quarantine('EXECUTION'))
    expect(await status()).toBe('QUARANTINED')
    await served.append(id, event('quarantine.resolved', { quarantineId: `qua_.EXECUTION${id}`, action: 'DISCARD' }))
    expect(await status()).toBe('PARKED')
  })
})

describe('API-19: the list of sessions', () => {
  const ids = async (args: string) => {
    const { data, errors } = await served.ask(`{ sessions(${args}) { edges { node { id } } } }`)
    expect(errors).toBeUndefined()
    return data.sessions.edges.map((edge: { node: { id: string } }) => edge.node.id) as string[]
  }
  const listed = ['ses_list00001', 'ses_list00002', 'ses_list00003']
  beforeAll(async () => {
    await served.database.shiftClock(0)
    for (const id of listed) await served.append(id, created(`Zebra ${id} 100%`))
    await served.append('ses_list00001', admitted('msg_list00001', 'The quick brown Fox'))
    await served.append(
      'ses_list00002',
      event('session.updated', { title: 'Zebra put away', instructions: null, model: 'demo/echo', archived: true }),
    )
  })

  it('API-19: newest activity comes first, archived ones only when asked for', async () => {
    expect(await ids('first: 200, search: "zebra"')).toEqual(['ses_list00001', 'ses_list00003'])
    expect(await ids('first: 200, search: "zebra", archived: true')).toEqual(['ses_list00002'])
    expect(await ids('first: 200, search: "zebra", archived: null')).toEqual([
      'ses_list00002',
      'ses_list00001',
      'ses_list00003',
    ])
    expect(await ids('last: 1, search: "zebra"')).toEqual(['ses_list00003'])
  })

  it('API-19: search finds words of title and prompts, all of them, and takes no wildcards', async () => {
    expect(await ids('search: "fox QUICK zebra"')).toEqual(['ses_list00001'])
    expect(await ids('search: "fox missing"')).toEqual([])
    expect(await ids('search: "qu_ck"')).toEqual([])
    expect(await ids('search: "zebra 100%"')).toEqual(['ses_list00001', 'ses_list00003'])
    expect(await ids('search: "\\\\"')).toEqual([])
    const { errors } = await served.ask('{ sessions(search: "a\\u0000b") { edges { cursor } } }')
    expect(errors?.[0]?.extensions.code).toBe('BAD_USER_INPUT')
  })

  it('API-19: pages join without a gap or a repeat', async () => {
    const all = await ids('first: 200, archived: null')
    const seen: string[] = []
    for (let after: string | null = null, more = true; more; ) {
      const { data } = await served.ask(
        'query ($after: String) { sessions(first: 3, after: $after, archived: null) { edges { node { id } } pageInfo { hasNextPage endCursor } } }',
        { after },
      )
      seen.push(...data.sessions.edges.map((edge: { node: { id: string } }) => edge.node.id))
      more = data.sessions.pageInfo.hasNextPage
      after = data.sessions.pageInfo.endCursor
    }
    expect(seen).toEqual(all)
  })
})
