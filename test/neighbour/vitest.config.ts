import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// One tenant is hostile, another works: npm run test:neighbour. HOLDFAST_NEIGHBOUR_S says for how many seconds.
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/neighbour/*.neighbour.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 180_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'neighbour'}.json` }]],
  },
})
