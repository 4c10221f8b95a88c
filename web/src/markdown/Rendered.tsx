import { memo } from 'react'
import Markdown, { type Components } from 'react-markdown'
import remarkGfm from 'remark-gfm'
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

const Block = memo(function Block({ text }: { text: string }) {
  return (
    <Markdown components={components} remarkPlugins={remark} rehypePlugins={useHighlighter(text)}>
      {text}
    </Markdown>
  )
})

/** Markdown as a page shows it. Comes with its parser and highlighter as a file of its own, loaded when the first text is shown. */
export default function Rendered({ text, open }: { text: string; open: boolean }) {
  return blocksOf(text, open).map((block, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a piece is where it is in its text
    <Block key={index} text={block} />
  ))
}
