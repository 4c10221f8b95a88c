import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// Thousands of deaths, which `npm test` need not wait for: npm run test:crash, and a sample of them in CI: npm run test:crash:ci
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/crash/*.points.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    maxWorkers: 2,
    testTimeout: 3_600_000,
    hookTimeout: 120_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'crash'}.json` }]],
  },
})
