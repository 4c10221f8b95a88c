import { Button } from '@mantine/core'
import { Component, type ReactNode } from 'react'
import { Notice } from './Notice.tsx'

/** Keeps what breaks within it from taking the rest of the page away. React knows no other way to do this than a class. */
export class Contained extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state = { error: null as Error | null }

  static getDerivedStateFromError(error: Error) {
    return { error }
  }

  override render() {
    const { error } = this.state
    if (error === null) return this.props.children
    return (
      <Notice
        tone="bad"
        role="alert"
        title="This part of the page cannot be shown"
        actions={
          <>
            <Button size="xs" onClick={() => this.setState({ error: null })}>
              Try again
            </Button>
            <Button size="xs" variant="default" onClick={() => location.reload()}>
              Reload the page
            </Button>
          </>
        }
      >
        Nothing is lost: the server has it. {error.message}
      </Notice>
    )
  }
}
