// What must hold of every answer, whatever was asked.
const internal = /INTERNAL|UNAVAILABLE|DOWNSTREAM/
// Of the server, never of the asker: no value that is sent looks like one of these.
const inside =
  /node_modules|\.ts:\d|\n\s+at |\b(?:SELECT|INSERT|UPDATE|DELETE)\b.+\b(?:FROM|INTO|SET)\b|[Pp]risma|[Pp]ostgres|ECONN[A-Z]+|\/(?:home|root|usr|var|tmp)\//

interface SentError {
  message?: unknown
  extensions?: { code?: unknown }
}

/** Why this GraphQL result is no answer that anybody should get; null if it is one. */
export function whyWrong(result: unknown): string | null {
  if (typeof result !== 'object' || result === null) return `no result: ${JSON.stringify(result)}`
  if (Array.isArray(result)) return result.map(whyWrong).find((why) => why !== null) ?? null
  const { errors, data } = result as { errors?: SentError[]; data?: unknown }
  if (errors === undefined) return data === undefined ? 'neither data nor errors' : null
  if (!Array.isArray(errors) || errors.length === 0) return 'errors that are no list'
  for (const error of errors) {
    if (typeof error.message !== 'string' || error.message === '') return 'an error without a message'
    const code = error.extensions?.code
    if (typeof code !== 'string') return `an error without a code: ${error.message}`
    if (internal.test(code)) return `${code}: ${error.message}`
    if (inside.test(error.message)) return `an error that shows the inside: ${error.message}`
  }
  return null
}
