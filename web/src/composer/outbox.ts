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

outbox.subscribe(() => {
  try {
    sessionStorage.setItem(key, JSON.stringify(outbox.get()))
  } catch {
    // Attachments beyond what a browser keeps for a page: these are sent from memory, and a reload asks for them again.
    sessionStorage.setItem(key, JSON.stringify(outbox.get().filter(({ attachments }) => attachments.length === 0)))
  }
})

const sending = new Set<string>()

/** Takes charge of a prompt: it is sent until the server has answered, through broken connections, restarts and reloads of this page. */
export function post(outgoing: Outgoing): void {
  outbox.set([...outbox.get(), outgoing])
  void send(outgoing.messageId)
}

/** Tries once more what the server refused. */
export function again(messageId: string): void {
  outbox.set(outbox.get().map((one) => (one.messageId === messageId ? { ...one, refused: undefined } : one)))
  void send(messageId)
}

/** Gives a refused prompt up. */
export function forget(messageId: string): void {
  outbox.set(outbox.get().filter((one) => one.messageId !== messageId))
}

/** Goes on with what a reload interrupted. */
export function resumeOutbox(): void {
  for (const { messageId, refused } of outbox.get()) if (refused === undefined) void send(messageId)
}

async function send(messageId: string): Promise<void> {
  if (sending.has(messageId)) return
  sending.add(messageId)
  try {
    for (let attempt = 0; ; attempt++) {
      const outgoing = outbox.get().find((one) => one.messageId === messageId)
      if (!outgoing || outgoing.refused !== undefined) return
      try {
        await deliver(outgoing)
        return forget(messageId)
      } catch (thrown) {
        // After signing in the page begins anew and goes on with it.
        if (codeOf(thrown) === 'UNAUTHENTICATED') return
        const said = (thrown as { answer?: unknown }).answer !== undefined
        if (said || !isRepeatable(thrown)) {
          const refused = thrown instanceof Error ? thrown.message : String(thrown)
          outbox.set(outbox.get().map((one) => (one.messageId === messageId ? { ...one, refused } : one)))
          return
        }
        await pause(backOffMs(attempt))
      }
    }
  } finally {
    sending.delete(messageId)
  }
}

async function deliver({ messageId, sessionId, text, attachments, delivery, create }: Outgoing): Promise<void> {
  if (create) await act(CreateSessionDocument, { input: { sessionId, ...create } })
  await act(AdmitPromptDocument, { input: { sessionId, messageId, text, attachments, delivery } })
}
