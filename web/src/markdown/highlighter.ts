import type { Pluggable } from 'unified'
import { createStore, useStore } from '../api/store.ts'

const none: Pluggable[] = []
const loaded = createStore(none)
let isLoading = false

/** What colours code, once it is needed and there: the grammars of all languages are larger than everything else that Markdown takes. */
export function useHighlighter(text: string): Pluggable[] {
  const plugins = useStore(loaded)
  if (!isLoading && /^ *(```|~~~) *\w/m.test(text)) {
    isLoading = true
    import('rehype-highlight').then(
      ({ default: highlight }) => loaded.set([[highlight, { detect: false }]]),
      () => {
        // The connection broke: code stays without colours until the next piece of it asks again.
        isLoading = false
      },
    )
  }
  return plugins
}
