// A number that a double cannot keep is never silently another one: it is refused, and the field is named.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { findInexact, isExact } from '../src/exact-numbers.ts'
import { createGauge } from '../src/http/json-gauge.ts'
import { type Served, serveLog } from './support/served.ts'

const inexact = [
  '9007199254740993',
  '-9007199254740993',
  '1e400',
  '-1e400',
  '1e-400',
  '0.1234567890123456789012345',
  '123456789012345678',
]
const exact = [
  '0',
  '-0',
  '0.0',
  '1.0',
  '1e2',
  '1E+2',
  '10000000000000000000000',
  '1e22',
  '0.1',
  '9007199254740991',
  '5e-324',
  '123456789012345680000',
  '1.7976931348623157e308',
  '0.00000000000000000001',
  '100000000000000.0000000000',
]

let served: Served
beforeAll(async () => {
  served = await serveLog()
})
afterAll(() => served?.close())

const post = async (body: string) => {
  const response = await fetch(served.endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
  return {
    status: response.status,
    ...((await response.json()) as { errors?: { message: string; extensions: { code: string } }[]; data?: unknown }),
  }
}
const mutation = 'mutation ($input: DecideApprovalInput!) { decideApproval(input: $input) { __typename } }'
const variables = (number: string) =>
  `{"input":{"interactionId":"int_nowhere0","decision":"APPROVE","editedInput":{"list":[1,{"quote\\"d":${number}}]}}}`
const message = (number: string) =>
  `variables.input.editedInput.list.1.quote"d: the number ${number} cannot be kept exactly; send it as text`

describe('PROMISE-25: numbers', () => {
  it('PROMISE-253: a number of the variables that cannot be kept is refused with its field, whatever the transport, the size and the place in a batch', async () => {
    for (const number of inexact) {
      const { status, errors } = await post(`{"query":${JSON.stringify(mutation)},"variables":${variables(number)}}`)
      expect([status, errors?.[0]?.message, errors?.[0]?.extensions.code]).toEqual([
        400,
        message(number),
        'BAD_USER_INPUT',
      ])
    }
    const [number] = inexact as [string]
    const large = `{"query":${JSON.stringify(mutation)},"pad":"${'9'.repeat(600_000)}","variables":${variables(number)}}`
    expect((await post(large)).errors?.[0]?.message).toBe(message(number))
    const batch = await post(
      `[{"query":"{ __typename }"},{"query":${JSON.stringify(mutation)},"variables":${variables(number)}}]`,
    )
    expect(batch.errors?.[0]?.message).toBe(`1.${message(number)}`)
    const url = `${served.endpoint}?query=${encodeURIComponent('query ($n: Int) { sessions(first: $n) { edges { node { id } } } }')}&variables=${encodeURIComponent(`{"n":${number}}`)}`
    expect(await (await fetch(url)).json()).toMatchObject({
      errors: [{ message: expect.stringMatching(/^variables\.n: the number 9007199254740993 cannot/) }],
    })
    // Elsewhere nothing is kept of it, and what is no JSON is told so.
    expect((await post(`{"query":"{ __typename }","extensions":{"n":${number}}}`)).status).toBe(200)
    expect((await post(`{"query":"{ __typename }","variables":{"n":${number}`)).errors?.[0]?.message).toBe(
      'the body is not valid JSON',
    )
    for (const kept of exact) {
      const { data } = await post(`{"query":${JSON.stringify(mutation)},"variables":${variables(kept)}}`)
      expect([kept, data]).toEqual([kept, { decideApproval: { __typename: 'InteractionNotFoundError' } }])
    }
  })

  it('PROMISE-254: the same over WebSocket: the operation is refused, its socket goes on', async () => {
    const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
    const got: { type: string; id?: string; payload: unknown }[] = []
    client.on('message', (data) => got.push(JSON.parse(String(data))))
    await new Promise((resolve) => client.once('open', resolve))
    client.send('{"type":"connection_init"}')
    client.send(
      `{"id":"1","type":"subscribe","payload":{"query":${JSON.stringify(mutation)},"variables":${variables('1e400')}}}`,
    )
    client.send('{"id":"2","type":"subscribe","payload":{"query":"{ __typename }"}}')
    await vi.waitFor(() => expect(got).toHaveLength(4), { timeout: 30_000 })
    const refused = got.find(({ id }) => id === '1')
    expect(refused).toMatchObject({
      type: 'error',
      payload: [{ message: message('1e400'), extensions: { code: 'BAD_USER_INPUT' } }],
    })
    expect(got.filter(({ id }) => id === '2').map(({ type }) => type)).toEqual(['next', 'complete'])
    client.terminate()
  })

  it('PROMISE-255: in a document too, with the place in the value; an enum value is no JSON; variables within are what they are', async () => {
    const decide = (edited: string, head = '') =>
      post(
        JSON.stringify({
          query: `mutation ${head} { decideApproval(input: { interactionId: "int_nowhere0", decision: APPROVE, editedInput: ${edited} }) { __typename } }`,
          variables: head === '' ? undefined : { n: 7 },
        }),
      )
    for (const number of inexact)
      expect((await decide(`{ a: [0, ${number}] }`)).errors?.[0]?.message).toMatch(
        `JSON.a.1: the number ${number} cannot be kept exactly; send it as text`,
      )
    expect((await decide('{ a: RED }')).errors?.[0]?.message).toMatch(
      'JSON.a: RED is an enum value, which JSON does not have; write "RED"',
    )
    for (const kept of [...exact, '{ a: $n, b: [$n] }'])
      expect([kept, (await decide(`{ n: ${kept} }`, kept.includes('$') ? '($n: Int)' : '')).data]).toEqual([
        kept,
        { decideApproval: { __typename: 'InteractionNotFoundError' } },
      ])
  })

  it('PROMISE-256: the measure of a body sees numbers across its pieces and none in texts; what is printed of any double is exact', () => {
    const measured = (...pieces: string[]) => {
      const gauge = createGauge()
      for (const piece of pieces) gauge.take(Buffer.from(piece))
      return gauge.hasInexact()
    }
    expect(measured('[90071992', '547409', '93]')).toBe(true)
    expect(measured('1e4', '00')).toBe(true)
    expect(measured('["9007199254740993", "\\"1e400', '", true, false, null, 1.5e3]')).toBe(false)
    expect(findInexact('{"a":"1e400","b":{"c":[[],{},1e400]}}')).toEqual({ path: ['b', 'c', 2], number: '1e400' })
    const bits = new DataView(new ArrayBuffer(8))
    for (let n = 0; n < 2000; n++) {
      bits.setUint32(0, (n * 2654435761) % 2 ** 32)
      bits.setUint32(4, (n * 40503 * 65537) % 2 ** 32)
      const value = bits.getFloat64(0)
      if (Number.isFinite(value)) expect([value, isExact(JSON.stringify(value))]).toEqual([value, true])
    }
  })
})
