import { defineConfig } from 'vitest/config'
import { retried } from './test/support/retried.ts'

export default defineConfig({
  // Node loads graphql's CommonJS build for the libraries; Vite would pick the other build for our sources, and the two do not
  // recognize each other's objects.
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // Files wait for the database's disk more than for a processor: with one worker the machine would stand idle.
    maxWorkers: 2,
    // Tests that race real processes and real disks get one second chance where nobody sits before them; who needed it is named at the end.
    retry: process.env.CI ? 1 : 0,
    // A machine that others share may be several times slower than this one.
    testTimeout: process.env.CI ? 120_000 : 30_000,
    hookTimeout: process.env.CI ? 180_000 : 60_000,
    reporters: [
      'default',
      retried,
      ['json', { outputFile: `test-results/${process.env.TEST_REPORT ?? 'vitest'}.json` }],
    ],
  },
})
