import { marked } from 'marked'
import remend from 'remend'

/**
 * A text in pieces that can be rendered one by one: while an answer grows only its last piece changes. `open`: the text still grows, so
 * marks that begin and do not end yet are closed for now.
 */
export function blocksOf(text: string, open: boolean): string[] {
  const blocks: string[] = []
  for (const { raw, type } of marked.lexer(text, { gfm: true })) {
    if (type === 'space' && blocks.length > 0) blocks[blocks.length - 1] += raw
    else blocks.push(raw)
  }
  const last = blocks.length - 1
  if (open && last >= 0) blocks[last] = remend(blocks[last]!)
  return blocks
}
