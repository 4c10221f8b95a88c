import { AdmitPromptDocument, CreateSessionDocument, type Delivery } from '../../../src/client/generated/graphql.ts'
import { act } from '../api/act.ts'
import { codeOf, isRepeatable } from '../api/apollo.ts'
import { backOffMs, pause } from '../api/retry.ts'
import { createStore } from '../api/store.ts'

export interface Attached {
  name: string
  mediaType: string
  url: string
}

/** What a tab has sent and has no answer to yet. Its ids were made before the first try, so that trying again changes nothing. */
export interface Outgoing {
  messageId: string
  sessionId: string
  text: string
  attachments: Attached[]
  delivery: Delivery
  /** The session is made first, if it is not there yet. */
  create?: { title: string | null; model: string | null; instructions: string | null }
  /** The server's words, when it said no. It is not tried again by itself then. */
  refused?: string
}

const key = 'holdfast.outbox'

function kept(): Outgoing[] {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? '[]') as Outgoing[]
  } catch {
    return []
  }
}

export const outbox = createStore<readonly Outgoing[]>(kept())

outbox.subscribe(() => keep(outbox.get()))

/**
 * Keeps for a reload what the browser has room for, the shorter prompts first: the others are sent from memory all the same. Never throws, as
 * whoever writes to the outbox goes on to send.
 */
function keep(unsent: readonly Outgoing[]): void {
  try {
    sessionStorage.setItem(key, JSON.stringify(unsent))
  } catch {
    if (unsent.length === 0) return
    const sizes = unsent.map((one) => JSON.stringify(one).length)
    keep(unsent.toSpliced(sizes.indexOf(Math.max(...sizes)), 1))
  }
}

/** Sessions with a prompt on its way. */
const sending = new Set<string>()

/** Takes charge of a prompt: it is sent until the server has answered, through broken connections, restarts and reloads of this page. */
export function post(outgoing: Outgoing): void {
  outbox.set([...outbox.get(), outgoing])
  void send(outgoing.sessionId)
}

/** Tries once more what the server refused. */
export function again({ messageId, sessionId }: Outgoing): void {
  change(messageId, { refused: undefined })
  void send(sessionId)
}

/** Gives a refused prompt up. */
export function forget(messageId: string): void {
  outbox.set(outbox.get().filter((one) => one.messageId !== messageId))
}

/** Goes on with what a reload interrupted. */
export function resumeOutbox(): void {
  for (const { sessionId } of outbox.get()) void send(sessionId)
}

const change = (messageId: string, change: Partial<Outgoing>) =>
  outbox.set(outbox.get().map((one) => (one.messageId === messageId ? { ...one, ...change } : one)))

/** Sends what waits for this session, one after the other: they are admitted in the order in which they were written. */
async function send(sessionId: string): Promise<void> {
  if (sending.has(sessionId)) return
  sending.add(sessionId)
  try {
    for (let attempt = 0; ; ) {
      const outgoing = outbox.get().find((one) => one.sessionId === sessionId && one.refused === undefined)
      if (!outgoing) return
      try {
        await deliver(outgoing)
        forget(outgoing.messageId)
        attempt = 0
      } catch (thrown) {
        // After signing in the page begins anew and goes on with it.
        if (codeOf(thrown) === 'UNAUTHENTICATED') return
        const isAnswer = (thrown as { answer?: unknown }).answer !== undefined
        if (isAnswer || !isRepeatable(thrown))
          change(outgoing.messageId, { refused: thrown instanceof Error ? thrown.message : String(thrown) })
        else await pause(backOffMs(attempt++))
      }
    }
  } finally {
    sending.delete(sessionId)
  }
}

async function deliver({ messageId, sessionId, text, attachments, delivery, create }: Outgoing): Promise<void> {
  if (create) await act(CreateSessionDocument, { input: { sessionId, ...create } })
  await act(AdmitPromptDocument, { input: { sessionId, messageId, text, attachments, delivery } })
}
