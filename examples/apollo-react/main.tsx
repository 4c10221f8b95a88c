import { ApolloProvider } from '@apollo/client/react'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { App } from './app.tsx'
import { createApollo } from './client.ts'

/** Puts the application into an element of the page. */
export function mount(element: Element, url: string) {
  const client = createApollo(url)
  const root = createRoot(element)
  root.render(
    <StrictMode>
      <ApolloProvider client={client}>
        <App />
      </ApolloProvider>
    </StrictMode>,
  )
  return () => {
    root.unmount()
    client.stop()
  }
}

// A page that the server itself serves, or a proxy in front of both: other origins are refused.
const element = document.getElementById('root')
if (element) mount(element, new URL('/graphql', location.href).href)
