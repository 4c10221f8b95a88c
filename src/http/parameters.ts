// From a request to what GraphQL is asked, in place of the library's own parsers: those read a body of any kind to its end, parse it on the main
// thread, and quote what they cannot read.

import type { IncomingMessage } from 'node:http'
import type { Plugin } from 'graphql-yoga'
import { findInexact, type Inexact, inexactText } from '../exact-numbers.ts'
import { refusal } from '../schema/refusal.ts'
import { type Body, badRequest, type createBodies, readBody } from './body.ts'
import { InvalidJsonError, type JsonParser } from './json.ts'
import type { Operation } from './operation.ts'

type Bodies = ReturnType<typeof createBodies>

const jsonTypes = new Set(['application/json', 'application/graphql+json'])
const accepted = 'application/json'

/** What GraphQL is asked by an HTTP request: one operation, or a list of them. Throws errors that say what is wrong with it. */
export async function parametersOf(request: IncomingMessage, json: JsonParser, bodies: Bodies): Promise<unknown> {
  const { headers, method, url = '' } = request
  if (method === 'GET') return ofSearch(new URLSearchParams(url.slice(url.indexOf('?') + 1)))
  const coding = headers['content-encoding'] ?? 'identity'
  if (coding.toLowerCase() !== 'identity')
    throw badRequest(415, 'Content-Encoding: a body must not be compressed', 'BAD_REQUEST', {
      'accept-encoding': 'identity',
    })
  const type = /^[^;,]*/
    .exec(headers['content-type'] ?? '')![0]
    .trim()
    .toLowerCase()
  const held = bodies.open()
  try {
    if (jsonTypes.has(type)) return await ofJson(await readBody(request, true, held), json)
    if (type === 'application/graphql') return { query: (await readBody(request, false, held)).bytes.toString() }
    if (type === 'application/x-www-form-urlencoded')
      return ofSearch(new URLSearchParams((await readBody(request, false, held)).bytes.toString()))
  } finally {
    held.close()
  }
  throw badRequest(415, `Content-Type: must be ${accepted}`, 'BAD_REQUEST', { accept: accepted })
}

async function ofJson({ bytes, inexact }: Body, json: JsonParser): Promise<object> {
  const value = await json.parse(bytes).catch((thrown: unknown) => {
    throw thrown instanceof InvalidJsonError ? badRequest(400, 'the body is not valid JSON') : thrown
  })
  if (inexact !== null) throw inexactRequest(inexact)
  if (typeof value !== 'object' || value === null)
    throw badRequest(400, 'the body must be a JSON object, or a list of them')
  return value
}

const inexactRequest = (inexact: Inexact) => badRequest(400, inexactText(inexact), 'BAD_USER_INPUT')

function ofSearch(search: URLSearchParams) {
  const text = (name: string) => search.get(name) || undefined
  const parsed = (name: string) => {
    const given = text(name)
    if (given === undefined) return undefined
    let value: unknown
    try {
      value = JSON.parse(given)
    } catch {
      throw badRequest(400, `${name} is not valid JSON`)
    }
    const inexact = name === 'variables' ? findInexact(given) : null
    if (inexact !== null) throw inexactRequest({ ...inexact, path: [name, ...inexact.path] })
    return value
  }
  return {
    query: text('query'),
    operationName: text('operationName'),
    variables: parsed('variables'),
    extensions: parsed('extensions'),
  }
}

/** Reads requests that way, and answers those with a reason that the library would leave without. */
export function useParameters(
  json: JsonParser,
  bodies: Bodies,
): Plugin<object, Operation & { req?: IncomingMessage; isBatch?: boolean }> {
  return {
    onRequestParse({ serverContext, setRequestParser }) {
      const { req } = serverContext
      if (req) setRequestParser(() => parametersOf(req, json, bodies) as never)
      return {
        onRequestParseDone({ requestParserResult }) {
          serverContext.isBatch = Array.isArray(requestParserResult)
        },
      }
    },
    onParams({ params }) {
      if (params?.query == null && params?.extensions?.persistedQuery != null)
        throw badRequest(
          400,
          'extensions.persistedQuery: persisted queries are not supported, send the query',
          'PERSISTED_QUERY_NOT_SUPPORTED',
        )
    },
    onSubscribe({ args, setSubscribeFn }) {
      // Nobody would read it, nor end it: a batch is answered when all its parts are.
      if ((args.contextValue as { isBatch?: boolean }).isBatch)
        setSubscribeFn(() => ({
          errors: [refusal('BAD_USER_INPUT', 'a subscription cannot be part of a batch: send it alone')],
        }))
    },
  }
}

/** Says what can be sent where nothing fits the Accept header; without it the answer would be empty. Behind whatever else chooses how to send. */
export function useNotAcceptable(): Plugin {
  return {
    onResultProcess({ resultProcessor, setResultProcessor, acceptableMediaTypes }) {
      if (resultProcessor) return
      const possible = [...new Set(acceptableMediaTypes)].join(', ')
      const message = `Accept: this can be sent as ${possible} only`
      const answer = JSON.stringify({ errors: [{ message, extensions: { code: 'NOT_ACCEPTABLE' } }] })
      const headers = { 'content-type': 'application/json; charset=utf-8' }
      setResultProcessor((_, { Response }) => new Response(answer, { status: 406, headers }), 'application/json')
    },
  }
}
