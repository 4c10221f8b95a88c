// What the client needs of whatever carries GraphQL: two functions. Apollo, urql, graphql-ws and fetch are fitted to it in libraries.ts,
// web-socket.ts and fetch.ts.

import type { TypedDocumentNode } from '@graphql-typed-document-node/core'
import { type DocumentNode, print } from 'graphql'

export interface AnswerError {
  message: string
  extensions?: Record<string, unknown> | undefined
}

/** A GraphQL result. */
export interface Answer<Result> {
  data?: Result | null | undefined
  errors?: readonly AnswerError[] | undefined
}

export interface Sink<Result> {
  next(answer: Answer<Result>): void
  /** The stream is over, for this reason: whatever the transport knows of it. */
  error(thrown: unknown): void
  complete(): void
}

export interface Transport {
  /** Sends a query or a mutation. Rejects when there is no GraphQL answer. */
  execute<Result, Variables>(
    document: TypedDocumentNode<Result, Variables>,
    variables: Variables,
    options?: { signal?: AbortSignal },
  ): Promise<Answer<Result>>
  /** Starts a subscription; the function that it gives back ends it. */
  subscribe<Result, Variables>(
    document: TypedDocumentNode<Result, Variables>,
    variables: Variables,
    sink: Sink<Result>,
  ): () => void
}

/** The token as it is now: text, or a function that is asked at each connection and each request, so that it can be renewed. */
export type Token = string | (() => string | null | undefined | Promise<string | null | undefined>)

/** The value of an authorization header, or null if there is no token. */
export async function bearer(token: Token | undefined): Promise<string | null> {
  const now = typeof token === 'function' ? await token() : token
  return now ? `Bearer ${now}` : null
}

const texts = new WeakMap<DocumentNode, string>()

/** The document as text. */
export function textOf(document: DocumentNode): string {
  const known = texts.get(document)
  if (known !== undefined) return known
  const text = print(document)
  texts.set(document, text)
  return text
}
