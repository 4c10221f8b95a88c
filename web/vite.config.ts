import { fileURLToPath } from 'node:url'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))
/** Where `npm run dev:web` finds the API. */
const server = process.env.HOLDFAST_URL ?? 'http://127.0.0.1:4000'

export default defineConfig({
  root: here('.'),
  plugins: [react()],
  publicDir: here('public'),
  build: {
    outDir: here('../dist/web'),
    emptyOutDir: true,
    target: 'es2023',
    manifest: true,
    // The page's policy allows no inline script and no data: font or style; everything is a file of its own with a hash in its name.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    port: 4001,
    proxy: { '/graphql': { target: server, ws: true, changeOrigin: true }, '/graphiql': server },
  },
})
