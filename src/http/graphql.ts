import { createYoga } from 'graphql-yoga'
import { resolveQuarantine } from '../recovery/quarantine.ts'
import type { Core } from '../runner/core.ts'
import type { Context } from '../schema/context.ts'
import { schema } from '../schema/index.ts'
import { useDocumentLimits } from '../schema/limits.ts'
import { maskOutside, useMasking } from '../schema/masking.ts'
import { useReadSnapshot } from '../schema/read-snapshot.ts'
import { useUnconditionalRoot } from '../schema/subscription-root.ts'
import { createBodies } from './body.ts'
import { boundedCache } from './bounded-cache.ts'
import { useFairness } from './fairness.ts'
import type { JsonParser } from './json.ts'
import { type Operation, requestIds } from './operation.ts'
import { useNotAcceptable, useParameters } from './parameters.ts'
import { useEventStream } from './sse.ts'
import { useTracing } from './traced.ts'

export const graphqlPath = '/graphql'

/** Proxies close what has been silent for 30 s or more. */
export const pingMs = 10_000
const batchSizeMax = 10

/** GraphQL for both transports: plugins, context and validation are the same on HTTP, SSE and WebSocket. */
export function createGraphql(core: Core, json: JsonParser, options: { pingMs?: number; bodiesBytes: number }) {
  return createYoga<Operation, Context>({
    schema,
    graphqlEndpoint: graphqlPath,
    context: ({ requestId, lastEventId, position, caller, gone, taking }): Context => ({
      core,
      db: core.db,
      tenant: caller.tenant,
      caller,
      gone,
      requestId,
      lastEventId,
      position,
      taking,
      resolveQuarantine,
    }),
    plugins: [
      useParameters(json, createBodies(options.bodiesBytes)),
      useDocumentLimits(),
      useUnconditionalRoot(),
      useReadSnapshot(),
      // After what else wraps the execution, so that its span covers that too.
      useTracing(),
      // The wait for a place is no part of that.
      useFairness(core),
      useMasking(),
      useEventStream({ pingMs: options.pingMs ?? pingMs }),
      useNotAcceptable(),
    ],
    maskedErrors: { maskError: maskOutside(core.log, () => requestIds.getStore()) },
    batching: { limit: batchSizeMax },
    // parameters.ts reads the bodies.
    maxRequestBodySize: false,
    parserAndValidationCache: { documentCache: boundedCache(), errorCache: boundedCache() },
    multipart: false,
    cors: false,
    graphiql: false,
    landingPage: false,
    logging: false,
    disposeOnProcessTerminate: false,
  })
}

export type Graphql = ReturnType<typeof createGraphql>
