import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// A server of its own is asked what nobody should ask: npm run test:fuzz. HOLDFAST_FUZZ says how many operations, HOLDFAST_FUZZ_SEED which.
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/fuzz/*.fuzz.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    fileParallelism: false,
    testTimeout: 7_200_000,
    hookTimeout: 180_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'fuzz'}.json` }]],
  },
})
