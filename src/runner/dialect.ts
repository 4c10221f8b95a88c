// What the providers behind a model id take. A file that a provider refuses would fail every later request of the session, as history
// is sent again and again; so it is decided here, before a request, what goes as a file, what as text and what is only named.

/** `own`: a model of the user's config or the demo model. Nothing is known of it, so nothing is kept from it. */
export type Dialect = 'anthropic' | 'openai' | 'compatible' | 'own'

export function dialectOf(modelId: string): Dialect {
  const provider = modelId.slice(0, modelId.indexOf('/'))
  return provider === 'anthropic' || provider === 'openai' || provider === 'compatible' ? provider : 'own'
}

const PICTURES = /^image\/(png|jpeg|gif|webp)$/
const PDF = 'application/pdf'

/** Whether a user's file of this type may be sent, with its bytes or as a URL that the provider fetches. */
export function takesFile(dialect: Dialect, mediaType: string, by: 'data' | 'url'): boolean {
  const type = mediaType.toLowerCase()
  switch (dialect) {
    case 'own':
      return true
    case 'anthropic':
    case 'openai':
      return PICTURES.test(type) || type === PDF
    case 'compatible':
      // Servers differ; this is what the wire format can say at all.
      if (/^(image|video)\//.test(type) && type !== 'image/svg+xml') return true
      return by === 'data' && (type === PDF || /^audio\/(wav|mp3|mpeg)$/.test(type))
  }
}

/** Whether a tool's output may hold a file of this type. Chat completions take text only. */
export function takesInResult(dialect: Dialect, mediaType: string): boolean {
  return dialect !== 'compatible' && takesFile(dialect, mediaType, 'data')
}

/** Files that can be read as UTF-8 text, which every model takes. */
export function isTextual(mediaType: string): boolean {
  return /^text\/|^application\/(json|xml|yaml|x-yaml|toml|sql|javascript|x-sh|x-ndjson)$|\+(json|xml|yaml)$/i.test(
    mediaType,
  )
}
