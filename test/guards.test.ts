import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { staleness } from './guards/mutant.ts'
import { guards } from './guards/table.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

it('the table of guards fits the sources: each text stands there once, each has its test (npm run test:guards takes them out)', () => {
  expect(guards.length).toBeGreaterThan(35)
  expect(staleness(guards, root)).toEqual([])
})

it('a text that is gone, a mutant without a mark and a test that is not there are told', () => {
  const broken = {
    id: 'broken',
    file: 'src/claim.ts',
    find: 'no such line',
    replace: 'true',
    keeps: 'nothing',
    tests: [
      ['claim.test.ts', 'CLAIM-999'],
      ['nobody.test.ts', 'x'],
    ] as const,
  }
  expect(staleness([broken], root)).toEqual([
    'broken: its text stands 0 times in src/claim.ts',
    'broken: its mutant leaves no mark',
    'broken: no title in test/claim.test.ts matches CLAIM-999',
    'broken: test/nobody.test.ts is not there',
  ])
})
