import type { OperationVariables, TypedDocumentNode } from '@apollo/client'
import { act } from '../api/act.ts'

interface Settled {
  answer?: { __typename: string; interaction?: { state: string } }
}

/** Sends a decision. Somebody else was first: `onOther` is told what they decided, which is an answer and no failure. */
export async function decide<Result, Variables extends OperationVariables>(
  onOther: (words: string) => void,
  mutation: TypedDocumentNode<Result, Variables>,
  variables: Variables,
): Promise<void> {
  try {
    await act(mutation, variables)
  } catch (thrown) {
    const { answer } = thrown as Settled
    if (answer?.__typename !== 'InteractionSettledError') throw thrown
    onOther(`Settled already: ${(answer.interaction?.state ?? 'decided').toLowerCase()}.`)
  }
}
