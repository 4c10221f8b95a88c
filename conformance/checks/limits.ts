import { request } from 'node:http'
import { request as requestSecure } from 'node:https'
import { waitMs, within } from '../arrivals.ts'
import type { Check } from '../check.ts'
import { answer, authorization, post, type Target } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'

/** Refused: errors with a code and no data. */
async function expectRefused(target: Target, what: string, query: string): Promise<void> {
  const { data, errors } = await answer(target, query)
  expectThat(what, !data && errors !== undefined && errors.length > 0, 'errors and no data', { data, errors })
  expectThat(
    `the code for ${what}`,
    errors!.every(({ extensions }) => extensions?.code),
    'one for each error',
    errors,
  )
}

/** Two levels each time, below three. */
const nested = (times: number) =>
  `{ sessions { edges { node { ${'interactions { session { '.repeat(times)} id ${'} } '.repeat(times)} } } } }`

/** Announces a body of this many bytes, sends none of them, and answers the status. */
function announce(target: Target, bytes: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const send = target.endpoint.startsWith('https:') ? requestSecure : request
    const outgoing = send(
      target.endpoint,
      {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'content-length': bytes, ...authorization(target) },
      },
      (incoming) => {
        resolve(incoming.statusCode ?? 0)
        outgoing.destroy()
      },
    )
    outgoing.on('error', reject)
    outgoing.flushHeaders()
  })
}

export const limitChecks: Check[] = [
  {
    id: 'C-LIMIT-01',
    title: 'a document 40 levels deep is refused with a code',
    run: ({ target }) => expectRefused(target, 'depth 40', nested(18)),
  },
  {
    id: 'C-LIMIT-02',
    title: 'a document with 5000 aliases is refused with a code',
    run: ({ target }) =>
      expectRefused(
        target,
        '5000 aliases',
        `{ ${Array.from({ length: 5000 }, (_, n) => `a${n}: __typename`).join(' ')} }`,
      ),
  },
  {
    id: 'C-LIMIT-03',
    title: 'a batch of 100 operations is refused with a code',
    async run({ target }) {
      const { status, body, text } = await post(
        target,
        Array.from({ length: 100 }, () => ({ query: '{ __typename }' })),
      )
      const answers = [body].flat()
      expectThat(
        'the answer',
        answers.length > 0 && answers.every((each) => each?.errors?.[0]?.extensions?.code && !each.data),
        'errors with a code and no data',
        `HTTP ${status} ${text}`,
      )
    },
  },
  {
    id: 'C-LIMIT-04',
    title: 'a body of 1 GiB is refused when it is announced, before it is sent',
    async run({ target }) {
      expectEqual('the status', await within('an answer to the announcement', announce(target, 2 ** 30), waitMs), 413)
    },
  },
  {
    id: 'C-LIMIT-05',
    title: 'what is no GraphQL request is refused with a code, and tells nothing of the inside',
    async run({ target }) {
      for (const body of [
        '{',
        '{}',
        '{"query":"{ nowhere }"}',
        '{"query":"{"}',
        '{"query":"query ($id: ID!) { node(id: $id) { id } }"}',
      ]) {
        const reply = await post(target, body)
        const errors = reply.body?.errors
        expectThat(
          `the answer to ${body}`,
          (errors ?? []).length > 0 && errors!.every(({ extensions }) => extensions?.code),
          'errors with codes',
          `HTTP ${reply.status} ${reply.text}`,
        )
        expectThat(
          'its text',
          !/\bat .+\.[jt]s:\d+|node_modules|prisma/i.test(reply.text),
          'no stack and no names of files',
          reply.text,
        )
      }
    },
  },
]
