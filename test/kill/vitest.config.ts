import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// Kills whole processes, which takes a machine for itself, so these have a run of their own: npm run test:kill
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/kill/*.kill.ts'],
    // With a database of the user's own one is made on that server; else the servers bring their embedded one along.
    globalSetup: process.env.DATABASE_URL ? ['test/support/global-setup.ts'] : [],
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 120_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'kill'}.json` }]],
  },
})
