// An issuer that takes a key back, or publishes one that is none.
import { generateKeyPairSync } from 'node:crypto'
import { exportJWK, generateKeyPair, importJWK } from 'jose'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { openSocket } from '../conformance/websocket.ts'
import { createPublishedKeys } from '../src/access/published-keys.ts'
import { event } from '../src/events.ts'
import { createLog } from '../src/log.ts'
import { testClock } from './support/clock.ts'
import { type Served, serveLog } from './support/served.ts'
import { closeSockets, issuer, jwtAuth, post, socketOf, token } from './support/tokens.ts'

const alg = 'RS256'
let keys: Awaited<ReturnType<typeof issuer>>
let served: Served | undefined
beforeEach(async () => {
  keys = await issuer(alg)
})
afterEach(async () => {
  closeSockets()
  await served?.close()
  served = undefined
  await keys.close()
})
const stream = 'subscription { sessionEvents(sessionId: "ses_takenkey01") { __typename ... on StreamEnded { cause } } }'
const status = async (bearer: string) => (await post(served!.endpoint, '{ models { id } }', { token: bearer })).status

describe('a key that its issuer takes out', () => {
  it('PROMISE-250: ends the sockets and streams of its tokens as soon as it is known, and no token of another key', async () => {
    served = await serveLog({ auth: jwtAuth({ jwksUrl: keys.url }) })
    await served.append(
      'ses_takenkey01',
      event('session.created', { tenant: 'a', title: null, instructions: null, model: 'demo/echo' }),
    )
    const one = await keys.rotate('one')
    const two = await keys.add('two')
    const bearer = (key: typeof one.privateKey, kid: string) => token({ tenant: 'a' }, { key, alg, kid })
    const ofOne = await bearer(one.privateKey, 'one')
    const ofTwo = await bearer(two.privateKey, 'two')
    const streams = [ofOne, ofTwo].map((authToken) => socketOf(served!, { authToken }).iterate({ query: stream }))
    for (const each of streams) {
      expect(await each.next()).toMatchObject({ value: { data: { sessionEvents: { __typename: 'SessionCreated' } } } })
      expect(await each.next()).toMatchObject({ value: { data: { sessionEvents: { __typename: 'LogSynced' } } } })
    }
    const idle = await Promise.all(
      [ofOne, ofTwo].map((authToken) => openSocket({ endpoint: served!.endpoint } as never, { params: { authToken } })),
    )
    keys.remove('one')
    // A key id that nobody knows has the set fetched again, at most every two seconds.
    await vi.waitFor(
      async () => {
        expect(await status(await bearer(one.privateKey, 'zzz'))).toBe(401)
        expect(await status(ofOne)).toBe(401)
      },
      { timeout: 30_000, interval: 300 },
    )
    expect(await streams[0]!.next()).toMatchObject({
      value: { data: { sessionEvents: { __typename: 'StreamEnded', cause: 'UNAUTHENTICATED' } } },
    })
    // Also one on which nothing runs.
    expect(await idle[0]!.closed).toMatchObject({ code: 4403, reason: expect.stringMatching(/^UNAUTHENTICATED/) })
    expect(idle[1]!.isOpen()).toBe(true)
    idle[1]!.close()
    expect(await status(ofTwo)).toBe(200)
    await served.append(
      'ses_takenkey01',
      event('session.updated', { title: 'still here', instructions: null, model: 'demo/echo', archived: false }),
    )
    expect(await streams[1]!.next()).toMatchObject({
      value: { data: { sessionEvents: { __typename: 'SessionUpdated' } } },
    })
  })

  it('PROMISE-251: is missed within the ten minutes also when nobody asks, and an issuer that is away takes nothing back', async () => {
    const clock = testClock()
    const lines: string[] = []
    const published = createPublishedKeys(
      new URL(keys.url),
      clock,
      createLog('info', { write: (line: string) => void lines.push(line) }),
    )
    try {
      const { jwk } = await keys.rotate('one')
      const header = { alg, kid: 'one' }
      await published.keyOf(header, { payload: '', signature: '' })
      const standing = await published.standingOf(header, (await importJWK({ ...jwk, ext: true }, alg)) as CryptoKey)
      const taken = vi.fn()
      standing.whenTaken(taken)
      keys.setAway(true)
      await clock.advance(240_000)
      await vi.waitFor(() => expect(lines.join('')).toContain('those fetched last count'))
      expect(standing.isTaken()).toBe(false)
      keys.setAway(false)
      keys.remove('one')
      await clock.armed()
      await clock.advance(240_000)
      await vi.waitFor(() => expect(taken).toHaveBeenCalledTimes(1))
      expect(standing.isTaken()).toBe(true)
    } finally {
      published.close()
    }
  })
})

it('PROMISE-252: a published key that is too weak, or no key at all, makes its tokens not valid; the issuer is not told to be away', async () => {
  served = await serveLog({ auth: jwtAuth({ jwksUrl: keys.url }) })
  const { privateKey } = await generateKeyPair(alg)
  // 1024 bits, which RS256 does not allow.
  const weak = generateKeyPairSync('rsa', { modulusLength: 1024 })
  keys.publish({ ...(await exportJWK(weak.publicKey)), kid: 'weak', alg, use: 'sig' })
  keys.publish({ kty: 'RSA', kid: 'broken', alg, use: 'sig', n: '!', e: 'AQAB' })
  keys.publish({ kty: 'RSA', kid: 'empty', alg, use: 'sig' })
  for (const kid of ['weak', 'broken', 'empty', 'none'])
    expect([kid, await status(await token({ tenant: 'a' }, { key: privateKey, alg, kid }))]).toEqual([kid, 401])
})
