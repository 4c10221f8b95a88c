import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// Needs a Chromium, which `npm test` must not, so these have a run of their own: npm run test:browser
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  // As in the tests without a browser (vitest.config.ts).
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/browser/*.ts'],
    exclude: ['test/browser/vitest.config.ts'],
    globalSetup: ['test/support/global-setup.ts', 'test/support/build.ts'],
    maxWorkers: 2,
    retry: process.env.CI ? 1 : 0,
    // A page shows things when it gets to them.
    expect: { poll: { timeout: 15_000 } },
    testTimeout: process.env.CI ? 240_000 : 90_000,
    hookTimeout: process.env.CI ? 300_000 : 120_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'browser'}.json` }]],
  },
})
