import { type ReactNode, useRef, useState } from 'react'
import { Icon } from '../parts/Icon.tsx'

/** Code with a button that copies it. */
export function CodeBlock({ children }: { children: ReactNode }) {
  const code = useRef<HTMLPreElement>(null)
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard?.writeText(code.current?.textContent ?? '')
    setCopied(true)
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <div className="code">
      <button
        type="button"
        className="code-copy"
        aria-label={copied ? 'Copied' : 'Copy code'}
        onClick={() => void copy()}
      >
        <Icon name={copied ? 'check' : 'copy'} size={14} />
      </button>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: wide code is scrolled by keys, too */}
      <pre ref={code} tabIndex={0}>
        {children}
      </pre>
    </div>
  )
}
