import { Button, PasswordInput } from '@mantine/core'
import { useState } from 'react'
import { token } from '../api/token.ts'

/** What is shown when the server does not know who this is. Starting over with the token is simplest and leaves nothing of before. */
export function SignIn({ refused }: { refused: boolean }) {
  const [text, setText] = useState('')
  return (
    <main className="sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault()
          token.set(text.trim())
          location.reload()
        }}
      >
        <h1>Sign in to Holdfast</h1>
        <p>
          {refused
            ? 'The server does not accept the key that was given, or no longer.'
            : 'This server asks for an API key or a token.'}
        </p>
        <PasswordInput
          label="API key or token"
          description="Kept for this tab until it is closed"
          data-autofocus
          autoFocus
          autoComplete="off"
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
        <Button type="submit" disabled={text.trim() === ''} fullWidth>
          Sign in
        </Button>
      </form>
    </main>
  )
}
