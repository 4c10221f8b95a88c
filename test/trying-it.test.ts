import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { ask, endServers, startServer } from './support/server-process.ts'

// docs/trying-it.md promises what each prompt of its tables leads to. They are sent as they stand there.

const document = readFileSync(join(import.meta.dirname, '../docs/trying-it.md'), 'utf8')
const rows = [...document.matchAll(/^\| `(.+?)` \| .* \| (`.+`) \|$/gm)].map(([, prompt, column]) => ({
  prompt: prompt!,
  expected: [...column!.matchAll(/`([^`]+)`/g)].map(([, text]) => text!),
}))

let database: TestDatabase
let url: string

beforeAll(async () => {
  database = await createTestDatabase()
  url = await startServer({ DATABASE_URL: database.url }).ready
}, 90_000)
afterAll(async () => {
  await endServers()
  await database.drop()
})

const read = `query ($s: ID!) {
  session(id: $s) {
    status
    messages(first: 50) {
      edges {
        node {
          __typename
          ... on SyntheticMessage { text }
          ... on AssistantMessage {
            status
            error { code }
            parts {
              __typename
              ... on TextPart { text }
              ... on ReasoningPart { text }
              ... on ToolCall { name status output error { code message } }
            }
          }
        }
      }
    }
    events(first: 200) { __typename ... on StepRetryScheduled { error { code } } ... on ExecutionSettled { outcome } }
  }
}`

describe('docs/trying-it.md', () => {
  it('has prompts to try', () => expect(rows.length).toBeGreaterThan(15))

  it.concurrent.each(rows)(
    'OPS-12: $prompt does what the document says',
    async ({ prompt, expected }) => {
      const s = `ses_${randomUUID()}`
      await ask(url, 'mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }', { s })
      const admit =
        'mutation ($s: ID!, $m: ID!, $t: String!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: $t }) { __typename } }'
      expect((await ask(url, admit, { s, m: `msg_${randomUUID()}`, t: prompt })).admitPrompt.__typename).toBe(
        'PromptAdmission',
      )
      const isOver = (session: { events: { __typename: string }[] }) =>
        session.events.at(-1)?.__typename === 'ExecutionSettled'
      // By hand, as the test's own poll does not run beside others.
      const deadline = Date.now() + 60_000
      while (!isOver((await ask(url, read, { s })).session)) {
        if (Date.now() > deadline) throw new Error('the session was not at rest after 60 s')
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
      const seen = JSON.stringify((await ask(url, read, { s })).session)
      for (const text of expected) expect(seen).toContain(text)
    },
    90_000,
  )
})
