import { memo, type ReactElement, useMemo } from 'react'
import Markdown, { type Components } from 'react-markdown'
import remarkGfm from 'remark-gfm'
import type { Pluggable } from 'unified'
import { blocksOf } from './blocks.ts'
import { CodeBlock } from './CodeBlock.tsx'
import { useHighlighter } from './highlighter.ts'
import './highlight.css'

// What a model or a tool writes is never trusted (SEC-12): raw HTML stays text, only the addresses of links are followed and only by a
// click, and no image is fetched, as its address would tell somebody else what was read here.
const components: Components = {
  a: ({ href, children }) =>
    href ? (
      <a href={href} target="_blank" rel="noopener noreferrer nofollow">
        {children}
      </a>
    ) : (
      <span>{children}</span>
    ),
  img: ({ src, alt }) => (
    <span className="md-image">
      [image: {alt || 'without a description'}
      {typeof src === 'string' && src !== '' && <> · {src}</>}]
    </span>
  ),
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled by keys, too
    <section className="md-table" tabIndex={0} aria-label="Table">
      <table>{children}</table>
    </section>
  ),
}
const remark = [remarkGfm]

/** What has been made of pieces lately. Scrolling back draws messages again, and most of that would be to read their text again. */
const made = new Map<string, ReactElement>()
const madeMax = 400
const textMax = 20_000

function make(text: string, plugins: Pluggable[]): ReactElement {
  return Markdown({ children: text, components, remarkPlugins: remark, rehypePlugins: plugins })
}

function kept(text: string, plugins: Pluggable[]): ReactElement {
  if (text.length > textMax) return make(text, plugins)
  const key = `${plugins.length} ${text}`
  const element = made.get(key) ?? make(text, plugins)
  // The one that was used last is the last to go.
  made.delete(key)
  made.set(key, element)
  if (made.size > madeMax) made.delete(made.keys().next().value!)
  return element
}

const Block = memo(function Block({ text, grows }: { text: string; grows: boolean }) {
  const plugins = useHighlighter(text)
  return grows ? make(text, plugins) : kept(text, plugins)
})

/** Markdown as a page shows it. Comes with its parser as a file of its own, loaded when the first text is shown. */
export default function Rendered({ text, open }: { text: string; open: boolean }) {
  const blocks = useMemo(() => blocksOf(text, open), [text, open])
  return blocks.map((block, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a piece is where it is in its text
    <Block key={index} text={block} grows={open && index === blocks.length - 1} />
  ))
}
