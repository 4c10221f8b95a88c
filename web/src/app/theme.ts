import { createTheme } from '@mantine/core'

/** What Mantine has to know; the colours and sizes themselves are in theme.css, as the page's policy allows no style made by a script. */
export const theme = createTheme({
  primaryColor: 'indigo',
  defaultRadius: 'md',
  cursorType: 'pointer',
  respectReducedMotion: true,
  focusRing: 'auto',
})
