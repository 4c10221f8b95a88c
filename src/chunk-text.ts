// The text that chunks hold, which is theirs as far as they reach without a hole: what lies behind one cannot be told from what is lost.

export interface ChunkText {
  /** In UTF-16 code units from the beginning of the part. */
  offset: number
  text: string
}

/** What these chunks, in order of their offsets, hold from `from` on, up to the first hole. They may overlap. */
export function joinedChunks(chunks: Iterable<ChunkText>, from = 0): string {
  let text = ''
  for (const chunk of chunks) {
    const end = from + text.length
    if (chunk.offset > end) break
    text += chunk.text.slice(end - chunk.offset)
  }
  return text
}
