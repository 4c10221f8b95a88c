import { GraphQLError } from 'graphql'

/** The codes of extensions.code that a caller can act on. */
export type RefusalCode =
  | 'BAD_USER_INPUT'
  | 'NOT_FOUND'
  | 'CURSOR_AHEAD'
  | 'UNAUTHENTICATED'
  | 'DOCUMENT_TOO_LARGE'
  | 'CLIENT_GONE'
  | 'SEARCH_TOO_SLOW'

/** An error whose text is meant for the caller and goes out unmasked. Results that a union can carry are values, not this. */
export function refusal(code: RefusalCode, message: string): GraphQLError {
  return new GraphQLError(message, { extensions: { code } })
}
