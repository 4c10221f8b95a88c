// Guards that keep one caller from taking from the others: turns, places, rates and limits.
import type { Guard } from './mutant.ts'

export const fairGuards: Guard[] = [
  {
    id: 'turns-line',
    file: 'src/runner/turns.ts',
    find: '} else await join(line, ranks.indexOf(rank))',
    replace: '} else HIT(line)',
    keeps: 'callers of one session from making each other decide again',
    tests: [['promise-turns.test.ts', 'PROMISE-071']],
  },
  {
    id: 'turns-bound',
    file: 'src/runner/turns.ts',
    find: 'if (!isOwner && line.waiting.length >= waitingMax)',
    replace: 'if (HIT(false))',
    keeps: 'a line of waiting callers from growing without end',
    tests: [['promise-turns.test.ts', 'PROMISE-075']],
  },
  {
    id: 'turns-rank',
    file: 'src/runner/turns.ts',
    find: 'const behind = line.waiting.findIndex((other) => other.rank > rank)',
    replace: 'const behind = HIT(-1)',
    keeps: 'a run and an interrupt from standing behind all callers who wait',
    tests: [['promise-turns.test.ts', 'PROMISE-074']],
  },
  {
    id: 'turns-tenant',
    file: 'src/runner/decide-again.ts',
    find: "[tenant, sessionId].join(' ')",
    replace: "HIT([sessionId]).join(' ')",
    keeps: "callers from standing in the line of another tenant's session",
    tests: [['promise-turns.test.ts', 'PROMISE-077']],
  },
  {
    id: 'decide-bound',
    file: 'src/runner/decide-again.ts',
    find: 'throw new BusyError(',
    replace: 'throw new Error(HIT(`x`) + ',
    keeps: 'a caller who is one of many from being told of an internal error',
    tests: [['promise-turns.test.ts', 'PROMISE-072']],
  },
  {
    id: 'drain-turn',
    file: 'src/runner/drain.ts',
    find: 'if (stale++ >= staleMax) hold.begun',
    replace: 'if (HIT(false)) hold.begun',
    keeps: 'a run from never getting to its step while callers of its process come without end',
    tests: [['promise-turns.test.ts', 'PROMISE-073: a run gets']],
  },
  {
    id: 'late-commit-look-up',
    file: 'src/append-queue.ts',
    find: 'const earlier = isRepeat ? await lookUp(prepared) : null',
    replace: 'const earlier = HIT(null)',
    keeps: 'an append from being told as refused by what it wrote itself',
    tests: [['promise-late-commit.test.ts', 'PROMISE-080']],
  },
]
