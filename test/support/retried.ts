import type { Reporter } from 'vitest/node'

/** Names every test that passed only when it was tried again: a retry must not hide what is not quiet. */
export const retried: Reporter = {
  onTestRunEnd(modules) {
    for (const module of modules) {
      for (const test of module.children.allTests('passed')) {
        const count = test.diagnostic()?.retryCount ?? 0
        if (count > 0) console.log(`tried again ${count} times until it passed: ${test.fullName}`)
      }
    }
  },
}
