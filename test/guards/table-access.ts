// Guards of who is let in, and for how long.

import type { Guard } from './mutant.ts'

export const accessGuards: Guard[] = [
  {
    id: 'issuer-key-taken',
    file: 'src/access/published-keys.ts',
    find: 'if (await isIn(set, one)) continue',
    replace: 'if (HIT(true)) continue',
    keeps: 'the sockets of a key that its issuer has taken out from living on',
    tests: [['promise-issuer-keys.test.ts', 'PROMISE-25[01]']],
  },
  {
    id: 'issuer-key-unusable',
    file: 'src/access/published-keys.ts',
    find: 'if (set !== undefined) await createLocalJWKSet(set)(header).catch(throwUnlessMissing)',
    replace: 'HIT(set)',
    keeps: 'a published key that is none from being told as an issuer that is away',
    tests: [['promise-issuer-keys.test.ts', 'PROMISE-252']],
  },
]
