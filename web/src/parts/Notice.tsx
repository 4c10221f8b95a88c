import type { ReactNode } from 'react'

/** Says something that matters, with what can be done about it. `role`: alert interrupts a screen reader, status waits. */
export function Notice(props: {
  tone: 'info' | 'ask' | 'warn' | 'bad'
  title?: ReactNode
  children?: ReactNode
  actions?: ReactNode
  role?: 'alert' | 'status'
}) {
  return (
    <div className="notice" data-tone={props.tone} role={props.role ?? 'status'}>
      <div className="notice-text">
        {props.title !== undefined && <strong className="notice-title">{props.title}</strong>}
        {props.children !== undefined && <div>{props.children}</div>}
      </div>
      {props.actions !== undefined && <div className="notice-actions">{props.actions}</div>}
    </div>
  )
}
