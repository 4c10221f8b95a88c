import { lazy, Suspense } from 'react'

const Rendered = lazy(() => import('./Rendered.tsx'))

/** A text that a model wrote. Plain until the Markdown code has been loaded. */
export function MarkdownText({ text, open = false }: { text: string; open?: boolean }) {
  return (
    <div className="md">
      <Suspense fallback={<div className="md-plain">{text}</div>}>
        <Rendered text={text} open={open} />
      </Suspense>
    </div>
  )
}
