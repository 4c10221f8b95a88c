import { createTheme } from '@mantine/core'

const closeNamed = { closeButtonProps: { 'aria-label': 'Close' } }

/** What Mantine has to know; the colours and sizes themselves are in theme.css, as the page's policy allows no style made by a script. */
export const theme = createTheme({
  primaryColor: 'indigo',
  defaultRadius: 'md',
  cursorType: 'pointer',
  respectReducedMotion: true,
  focusRing: 'auto',
  components: {
    Modal: { defaultProps: closeNamed },
    Drawer: { defaultProps: closeNamed },
  },
})
