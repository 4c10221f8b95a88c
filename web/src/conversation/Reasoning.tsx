import { useState } from 'react'
import type { TextView } from '../../../src/client/view.ts'
import { MarkdownText } from '../markdown/MarkdownText.tsx'
import { Icon } from '../parts/Icon.tsx'

/** What the model thought before it answered: open while it is being written, folded away afterwards, unless somebody said otherwise. */
export function Reasoning({ part }: { part: TextView }) {
  const [chosen, setChosen] = useState<boolean | null>(null)
  const open = chosen ?? !part.complete
  return (
    <div className="reasoning">
      <button type="button" className="reasoning-head" aria-expanded={open} onClick={() => setChosen(!open)}>
        <Icon name="thought" size={16} />
        <span>{part.complete ? 'Thought' : 'Thinking…'}</span>
        <span className="fold" data-open={open} aria-hidden>
          <Icon name="chevron" size={14} />
        </span>
      </button>
      {open && (
        <div className="reasoning-body">
          <MarkdownText text={part.text} open={!part.complete} />
        </div>
      )}
    </div>
  )
}
