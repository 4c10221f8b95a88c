// JSON Web Tokens: with a shared secret, and with the keys that an issuer publishes.
import { generateKeyPair, UnsecuredJWT } from 'jose'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { event } from '../src/events.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'
import { closeSockets, inSeconds, issuer, jwtAuth, post, secret, socketOf, token } from './support/tokens.ts'

const query = '{ session(id: "ses_jwttest01") { id } models { id } }'

async function serve(jwt: object): Promise<Served> {
  const served = await serveLog({ auth: jwtAuth(jwt), logLevel: 'trace' })
  const made = { title: null, instructions: null, model: 'demo/echo' }
  await served.append('ses_jwttest01', event('session.created', { tenant: 'a', ...made }))
  return served
}

/** What the token gets over HTTP and over WebSocket: the same. */
async function outcome(served: Served, bearer: string): Promise<string> {
  const list = vi.spyOn(served.core.models, 'list')
  const response = await post(served.endpoint, query, { token: bearer })
  const { data, errors } = (await response.json()) as Answer
  const socket = socketOf(served, { authorization: `Bearer ${bearer}` })
  const overSocket = await socket
    .iterate({ query })
    .next()
    .then(
      ({ value }) => (value as Answer).data,
      ({ code, reason }: { code: number; reason: string }) => `${code} ${reason}`,
    )
  const calls = list.mock.calls.length
  list.mockRestore()
  expect(JSON.stringify(served.logged())).not.toContain(bearer)
  if (errors === undefined) {
    expect(response.status).toBe(200)
    expect(overSocket).toEqual(data)
    return data.session === null ? 'another tenant' : 'let in'
  }
  expect(data).toBeUndefined()
  expect(calls).toBe(0)
  const [{ message, extensions }] = errors as [NonNullable<Answer['errors']>[number]]
  const isUnavailable = extensions.code === 'UNAVAILABLE'
  expect(response.status).toBe(isUnavailable ? 503 : 401)
  expect(overSocket).toBe(`${isUnavailable ? 1013 : 4403} ${extensions.code}: ${message}`)
  return message
}

const invalid = 'the token is not valid'
/** The last reason that the log has. */
const reason = (served: Served) => served.logged().findLast((line) => 'reason' in line)?.reason

describe('SEC-02: a token signed with a shared secret', () => {
  let served: Served
  beforeAll(async () => {
    served = await serve({ secret, issuer: 'https://issuer.example/', audience: 'holdfast', tenantClaim: 'org' })
  })
  afterAll(() => served.close())
  afterEach(closeSockets)
  const good = { iss: 'https://issuer.example/', aud: 'holdfast', org: 'a' }

  it('SEC-02, SEC-05: one that is in order is let in as its tenant', async () => {
    expect(await outcome(served, await token(good))).toBe('let in')
    expect(await outcome(served, await token({ ...good, aud: ['other', 'holdfast'] }))).toBe('let in')
    expect(await outcome(served, await token({ ...good, org: 'b' }))).toBe('another tenant')
  })

  const wrong: [string, () => Promise<string> | string, string, string?][] = [
    ['expired', () => token(good, { exp: inSeconds(Date.now(), -1) }), 'the token has expired'],
    ['without an end', () => token(good, { exp: null }), invalid, 'ERR_JWT_CLAIM_VALIDATION_FAILED exp missing'],
    ['signed with another secret', () => token(good, { key: `${secret}.` }), invalid],
    ['expired and signed with another secret', () => token(good, { key: `${secret}.`, exp: 1 }), invalid],
    [
      'signed with an algorithm that is not allowed',
      () => token(good, { alg: 'HS512' }),
      invalid,
      'ERR_JOSE_ALG_NOT_ALLOWED',
    ],
    [
      'of another issuer',
      () => token({ ...good, iss: 'https://evil.example/' }),
      invalid,
      'ERR_JWT_CLAIM_VALIDATION_FAILED iss check_failed',
    ],
    ['of no issuer', () => token({ aud: 'holdfast', org: 'a' }), invalid],
    [
      'for another audience',
      () => token({ ...good, aud: 'other' }),
      invalid,
      'ERR_JWT_CLAIM_VALIDATION_FAILED aud check_failed',
    ],
    ['not valid yet', () => token({ ...good, nbf: inSeconds(Date.now(), 3600) }), invalid],
    [
      'without a tenant',
      () => token({ ...good, org: undefined, tenant: 'a' }),
      invalid,
      'the claim org names no tenant',
    ],
    ['with a tenant that is no text', () => token({ ...good, org: ['a'] }), invalid, 'the claim org names no tenant'],
    ['with an empty tenant', () => token({ ...good, org: '' }), invalid],
    ['with a tenant that has a space', () => token({ ...good, org: 'a b' }), invalid],
    ['not signed: alg none', () => new UnsecuredJWT(good).setExpirationTime('1h').encode(), invalid],
    ['cut short', async () => (await token(good)).slice(0, -2), invalid],
    [
      'changed',
      async () => (await token(good)).replace(/\.[^.]+\./, (await token({ ...good, org: 'b' })).match(/\.[^.]+\./)![0]),
      invalid,
    ],
    ['longer than any token', async () => token({ ...good, more: 'x'.repeat(9000) }), invalid, 'too long'],
    ['no token at all', () => 'a.b.c', invalid],
  ]
  it.each(wrong)(
    'SEC-02: one that is %s is refused on every transport, and no resolver runs',
    async (_, make, message, why) => {
      expect(await outcome(served, await make())).toBe(message)
      if (why !== undefined) expect(reason(served)).toBe(why)
    },
  )
})

describe('SEC-02: a token signed with a key that its issuer publishes', () => {
  afterEach(closeSockets)

  it.each(['RS256', 'ES256', 'EdDSA'])(
    'SEC-02: %s: one of the issuer is let in, one signed by another key is not',
    async (alg) => {
      const keys = await issuer(alg)
      const served = await serve({ jwksUrl: keys.url })
      try {
        const { privateKey } = await keys.rotate('one')
        expect(await outcome(served, await token({ tenant: 'a' }, { key: privateKey, alg, kid: 'one' }))).toBe('let in')
        const { privateKey: foreign } = await generateKeyPair(alg)
        expect(await outcome(served, await token({ tenant: 'a' }, { key: foreign, alg, kid: 'one' }))).toBe(invalid)
        expect(reason(served)).toBe('ERR_JWS_SIGNATURE_VERIFICATION_FAILED')
        // Fetched once for all of them.
        expect(keys.fetched()).toBe(1)
      } finally {
        await served.close()
        await keys.close()
      }
    },
  )

  it('SEC-02: a published key is no shared secret: HS256 signed with its text is refused', async () => {
    const keys = await issuer()
    const served = await serve({ jwksUrl: keys.url })
    try {
      const { jwk } = await keys.rotate('one')
      for (const key of [JSON.stringify(jwk), String(jwk.n)]) {
        expect(await outcome(served, await token({ tenant: 'a' }, { key, kid: 'one' }))).toBe(invalid)
        expect(reason(served)).toBe('ERR_JOSE_ALG_NOT_ALLOWED')
      }
    } finally {
      await served.close()
      await keys.close()
    }
  })

  it('SEC-02: the issuer changes its key: tokens of the new one are let in within seconds, of the old one refused', async () => {
    const keys = await issuer()
    const served = await serve({ jwksUrl: keys.url })
    try {
      const alg = 'RS256'
      const { privateKey: old } = await keys.rotate('one')
      const ofOld = await token({ tenant: 'a' }, { key: old, alg, kid: 'one' })
      expect(await outcome(served, ofOld)).toBe('let in')
      const { privateKey } = await keys.rotate('two')
      const ofNew = await token({ tenant: 'a' }, { key: privateKey, alg, kid: 'two' })
      await vi.waitFor(async () => expect(await outcome(served, ofNew)).toBe('let in'), {
        timeout: 10_000,
        interval: 200,
      })
      expect(await outcome(served, ofOld)).toBe(invalid)
      // Unknown key ids do not make a fetch each.
      const before = keys.fetched()
      for (let n = 0; n < 20; n++)
        await outcome(served, await token({ tenant: 'a' }, { key: privateKey, alg, kid: `guess${n}` }))
      expect(keys.fetched() - before).toBeLessThanOrEqual(2)
    } finally {
      await served.close()
      await keys.close()
    }
  })

  it('SEC-02: the issuer cannot be reached: nobody is let in, and the code says to try again, not that the token is wrong', async () => {
    const keys = await issuer()
    const served = await serve({ jwksUrl: keys.url })
    try {
      keys.setAway(true)
      const { privateKey } = await keys.rotate('one')
      const bearer = await token({ tenant: 'a' }, { key: privateKey, alg: 'RS256', kid: 'one' })
      expect(await outcome(served, bearer)).toContain('try again')
      expect(keys.fetched()).toBeGreaterThan(0)
      const line = served.logged().find(({ msg }) => String(msg).includes('cannot be fetched'))
      expect(line).toMatchObject({ level: 'error' })
      expect(JSON.stringify(served.logged())).not.toContain('hunter2')
      keys.setAway(false)
      expect(await outcome(served, bearer)).toBe('let in')
    } finally {
      await served.close()
      await keys.close()
    }
  })
})
