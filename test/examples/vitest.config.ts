import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// Packs the package, and runs everything under examples/ in an empty project that has it: npm run test:examples
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  test: {
    include: ['test/examples/examples.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: process.env.CI ? 180_000 : 60_000,
    hookTimeout: process.env.CI ? 300_000 : 120_000,
    reporters: ['default', ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'examples'}.json` }]],
  },
})
