import type { OperationVariables, TypedDocumentNode } from '@apollo/client'
import { useCallback, useState } from 'react'
import { apollo } from './apollo.ts'

/** Sends a mutation and gives its answer's payload; throws an Error with the server's words for any member of the union that is an error. */
export async function act<Result, Variables extends OperationVariables>(
  mutation: TypedDocumentNode<Result, Variables>,
  variables: Variables,
) {
  const { data } = await apollo.mutate({ mutation, variables } as unknown as Parameters<typeof apollo.mutate>[0])
  const [answer] = Object.values(data as Record<string, { __typename: string; message?: string }>)
  if (answer?.__typename.endsWith('Error')) throw Object.assign(new Error(answer.message), { answer })
  return answer
}

/** One thing that a button does: whether it is under way, and what went wrong the last time. */
export function useAct() {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<string | null>(null)
  const run = useCallback(async (work: () => Promise<unknown>): Promise<boolean> => {
    setBusy(true)
    setError(null)
    try {
      await work()
      return true
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown))
      return false
    } finally {
      setBusy(false)
    }
  }, [])
  return { busy, error, run, clear: useCallback(() => setError(null), []) }
}
