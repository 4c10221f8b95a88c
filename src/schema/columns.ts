// The columns that lists read along: all but the large ones, which large.ts reads when a field asks for them. What a resolver gets as a row has
// these and no others.

import { Prisma } from '../generated/prisma/client.ts'

const all = {
  Session:
    'id tenant title model seq stepOwed retryAt recoveries compactions parkedReason inputTokens outputTokens reasoningTokens cachedInputTokens createdAt updatedAt archivedAt',
  Input:
    'id sessionId kind requestedDelivery delivery state wakePending executionRequested admittedSeq promotedSeq createdAt',
  Message:
    'id sessionId kind seq createdAt hidden model executionId status streamed attempt finish errorCode errorMessage inputTokens outputTokens reasoningTokens cachedInputTokens settledAt automatic tailSeq',
  Part: 'sessionId messageId index kind complete',
  ToolCall: 'sessionId messageId callId index name status providerExecuted errorCode errorMessage startedAt settledAt',
  Interaction:
    'id sessionId messageId callId kind state toolName remember stops definition wakePending expiresAt createdAt settledAt',
  Recovery: 'id sessionId executionId phase assistantMessageId continuationMessageId wakePending error createdAt',
  Quarantine: 'id sessionId kind executionId reason action quarantinedAt resolvedAt',
} as const

type Table = keyof typeof all

/** For a `SELECT` of rows that are called `alias`. */
export const columnsOf = (table: Table, alias: string) =>
  Prisma.raw(
    all[table]
      .split(' ')
      .map((column) => `${alias}."${column}"`)
      .join(', '),
  )

/**
 * For Prisma's `select`. Its type says that nothing is left out, as the rows go where the types of Pothos ask for whole ones: no field touches the
 * other columns.
 */
export const selectOf = (table: Table) =>
  Object.fromEntries(all[table].split(' ').map((column) => [column, true])) as unknown as undefined
