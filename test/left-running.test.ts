import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { platform } from 'node:process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterEach, expect, it } from 'vitest'

// What every CI run asks after `npm test`: is a process of it still there? Here it is seen to find one.

const script = fileURLToPath(new URL('../scripts/left-running.mjs', import.meta.url))
// As CI asks: who runs it has the mark in its command line, too, and is none of them.
const ask = (mark: string) =>
  promisify(execFile)('timeout', ['60', process.execPath, script, mark], { env: {} }).then(
    ({ stdout }) => ({ code: 0, said: stdout }),
    ({ code, stderr }) => ({ code, said: stderr as string }),
  )

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

async function start(args: string[], env: NodeJS.ProcessEnv): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['-e', 'console.log("up"); setInterval(() => {}, 1000)', '--', ...args], {
    env,
  })
  children.push(child)
  await once(child.stdout!, 'data')
  return child
}

it.runIf(platform === 'linux')(
  'OPS-15: a process that a test run leaves behind is found by what it inherited or by what it was given, and one of others is not',
  async () => {
    const mark = `/tmp/mark-${randomUUID()}`
    await start(['another'], { OF: 'another run' })
    const heir = await start(['heir'], { TMPDIR: mark })
    const given = await start(['-D', `${mark}/postgres`], {})
    const found = await ask(mark)
    expect(found.code).toBe(1)
    expect(
      found.said
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[2]),
    ).toEqual([`${heir.pid}`, `${given.pid}`])
    expect(found.said).toContain(`-D ${mark}/postgres`)

    for (const child of [heir, given]) {
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    expect(await ask(mark)).toEqual({ code: 0, said: 'no process is left\n' })
  },
)
