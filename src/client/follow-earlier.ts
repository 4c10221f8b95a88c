import { SessionMessagesDocument } from './generated/graphql.ts'
import { ProblemError, problemOfAnswer, problemOfThrown } from './problem.ts'
import { messageView } from './snapshot.ts'
import type { Transport } from './transport.ts'
import type { MessageView } from './view.ts'

export interface EarlierPage {
  /** The cursor that was asked with. */
  from: string
  messages: MessageView[]
  /** The cursor of the page before; null if this is the first one. */
  before: string | null
}

/**
 * The messages before a cursor, at most 200. They are settled and do not change: what is still open is among the last ten of a session,
 * which every snapshot has. Throws ProblemError.
 */
export async function earlierMessages(
  transport: Pick<Transport, 'execute'>,
  id: string,
  count: number,
  from: string,
  signal: AbortSignal,
): Promise<EarlierPage> {
  const variables = { id, last: Math.min(200, Math.max(1, count)), before: from }
  const answer = await transport.execute(SessionMessagesDocument, variables, { signal }).catch((thrown) => {
    throw new ProblemError(problemOfThrown(thrown), { cause: thrown })
  })
  const problem = problemOfAnswer(answer)
  if (problem?.code === 'DOCUMENT_TOO_LARGE' && count > 1)
    return earlierMessages(transport, id, Math.floor(Math.min(200, count) / 2), from, signal)
  if (problem !== null) throw new ProblemError(problem)
  const page = answer.data?.session?.messages
  if (!page) throw new ProblemError({ code: 'NOT_FOUND', message: `there is no session ${id}`, again: false })
  return {
    from,
    messages: page.edges.map(({ node }) => messageView(node)),
    before: page.pageInfo.hasPreviousPage ? (page.pageInfo.startCursor ?? null) : null,
  }
}
