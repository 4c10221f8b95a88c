import { ApolloProvider } from '@apollo/client/react'
import { MantineProvider } from '@mantine/core'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { apollo } from './api/apollo.ts'
import { App } from './app/App.tsx'
import { theme } from './app/theme.ts'
import './app/mantine.css'
import './app/theme.css'

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <ApolloProvider client={apollo}>
      <MantineProvider
        theme={theme}
        defaultColorScheme="auto"
        withCssVariables={false}
        withGlobalClasses={false}
        withStaticClasses={false}
      >
        <App />
      </MantineProvider>
    </ApolloProvider>
  </StrictMode>,
)
