import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { expect, it } from 'vitest'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'

it('OPS-07: the text has every metric of the documentation, under the prefix of Holdfast', async () => {
  const text = await createMetrics().text()
  const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name!)
  const docs = await readFile(resolve(import.meta.dirname, '../docs/configuration.md'), 'utf8')
  const documented = [...docs.matchAll(/^\| `(holdfast_\w+)`/gm)].map(([, name]) => name!)
  const own = names.filter((name) => !/^holdfast_(process|nodejs)_/.test(name))
  expect(own.toSorted()).toEqual(documented.toSorted())
  expect(names.every((name) => name.startsWith('holdfast_'))).toBe(true)
  expect(names).toContain('holdfast_process_cpu_seconds_total')
})

it('OPS-07: two servers in one process count apart', async () => {
  const one = createMetrics()
  const other = createMetrics()
  one.retries.inc()
  one.refusedStaleWrites.inc({ what: 'chunk' })
  one.appendGroupSize.observe(3)
  expect(await one.text()).toMatch(/^holdfast_retries_total 1$/m)
  expect(await one.text()).toMatch(/^holdfast_refused_stale_writes_total\{what="chunk"\} 1$/m)
  expect(await one.text()).toMatch(/^holdfast_append_group_size_bucket\{le="4"\} 1$/m)
  expect(await other.text()).toMatch(/^holdfast_retries_total 0$/m)
  expect(await other.text()).not.toContain('what="chunk"')
})

function lines() {
  const written: string[] = []
  return { written, log: createLog('info', { write: (line) => void written.push(line) }) }
}

it('SEC-10: credentials in fields, bindings, texts and nested values do not reach the log', () => {
  const { written, log } = lines()
  log.info(
    { apiKey: 'hunter2', req: { headers: { Authorization: 'hunter2', 'x-api-key': 'hunter2' } }, contextTokens: 5 },
    'a',
  )
  log.info({ databaseUrl: 'hunter2', list: [{ password: 'hunter2' }] }, 'connect to postgres://u:hunter2@h/x')
  log.child({ token: 'hunter2' }).warn('Bearer hunter2hunter2')
  expect(written).toHaveLength(3)
  expect(written.join('')).not.toContain('hunter2')
  expect(JSON.parse(written[0]!)).toMatchObject({ level: 'info', msg: 'a', contextTokens: 5, apiKey: '[redacted]' })
})

it('SEC-10: an error is logged with kind, code, frames and cause, and without bodies and quoted data', () => {
  const { written, log } = lines()
  const cause = Object.assign(new Error('connect postgres://u:hunter2@h'), { code: 'ECONNREFUSED' })
  const error = new Error('request failed', { cause })
  log.error(
    Object.assign(error, { requestBodyValues: { prompt: 'hunter2' }, responseBody: 'hunter2', statusCode: 500 }),
  )
  const invocation = 'Invalid `p.session.create()` invocation:\n{ text: "hunter2" }\nArgument `id` is missing.'
  const prisma = Object.assign(new Error(invocation), { name: 'PrismaClientValidationError' })
  log.error({ err: prisma, sessionId: 's' })
  log.error({ err: prisma }, 'drain failed')
  expect(written.join('')).not.toContain('hunter2')
  const [first, second, third] = written.map((line) => JSON.parse(line))
  expect(first).toMatchObject({
    msg: 'request failed',
    err: { type: 'Error', status: 500, cause: { code: 'ECONNREFUSED' } },
  })
  expect(first.err.stack).toContain('metrics.test.ts')
  expect(second).toMatchObject({ sessionId: 's', err: { type: 'PrismaClientValidationError' } })
  expect(second.err.message).toContain('Argument `id` is missing.')
  expect(third.msg).toBe('drain failed')
})

it('SEC-10: a line of the log stays small when something with a thousand cycles or bytes is logged', () => {
  const { written, log } = lines()
  const web: Record<string, unknown> = { bytes: Buffer.alloc(100_000) }
  for (let i = 0; i < 1000; i++) web[`k${i}`] = web
  log.info({ web })
  expect(written[0]!.length).toBeLessThan(50_000)
  expect(written[0]).toContain('[100000 bytes]')
})

it('OPS-02: nothing below the level is written', () => {
  const { written, log } = lines()
  log.debug('x')
  expect(written).toEqual([])
})
