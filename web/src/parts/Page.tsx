import type { ReactNode } from 'react'
import { usePageTitle } from '../app/page-title.ts'

/** A page that is not a conversation: a heading, what it is about, and what is on it. */
export function Page({ title, about, children }: { title: string; about: string; children: ReactNode }) {
  usePageTitle(title)
  return (
    <div className="page">
      <div className="page-inner">
        <h1>{title}</h1>
        <p className="page-about">{about}</p>
        {children}
      </div>
    </div>
  )
}
