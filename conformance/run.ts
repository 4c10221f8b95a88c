// npm run conformance -- URL [--token T] [--model M] [--only ID,…] [--json]
import { parseArgs } from 'node:util'
import { lacking, type Result } from './check.ts'
import { checks } from './checks/index.ts'
import type { Target } from './http.ts'
import { performAll } from './perform.ts'

const usage = `npm run conformance -- URL [--token T] [--model demo/echo] [--only ID[,ID…]] [--json]

Checks a running server from outside: URL is its address, such as http://127.0.0.1:4000/
  --token T   sent as a bearer token; without it the checks of authentication are skipped
  --model M   the model of the sessions that the checks create (default demo/echo)
  --only ID   only checks whose id begins so, such as C-STREAM or C-STREAM-01
  --json      one JSON document instead of lines
Exit code 0: nothing failed. 1: something failed. 2: nothing could be checked.`

/** Ends with the words that say why nothing can be checked. */
function refuse(why: string): never {
  console.error(why)
  process.exit(2)
}

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        token: { type: 'string' },
        model: { type: 'string', default: 'demo/echo' },
        only: { type: 'string', multiple: true, default: [] },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    })
  } catch (error) {
    return refuse(`${(error as Error).message}\n\n${usage}`)
  }
}

const { values, positionals } = readArguments()
if (values.help) {
  console.log(usage)
  process.exit(0)
}
const [address, ...others] = positionals
if (address === undefined || others.length > 0) refuse(`one URL is needed\n\n${usage}`)
if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol))
  refuse(`${address} is not an address that begins with http:// or https://`)
const wanted = values.only.flatMap((ids) => ids.split(',')).filter((id) => id !== '')
const chosen = checks.filter(
  ({ id }) => wanted.length === 0 || wanted.some((want) => id === want || id.startsWith(`${want}-`)),
)
const unknown = wanted.filter((want) => !checks.some(({ id }) => id === want || id.startsWith(`${want}-`)))
if (unknown.length > 0) refuse(`--only: there is no check ${unknown.join(', ')}`)

const url = new URL(address)
const target: Target = {
  endpoint: url.pathname === '/' ? new URL('/graphql', url).href : url.href,
  token: values.token ?? null,
  model: values.model,
}
const lacks = await lacking(target).catch((error: Error) =>
  refuse(
    `${target.endpoint} cannot be checked: ${error.message}${error.cause instanceof Error ? ` (${error.cause.message})` : ''}`,
  ),
)

const line = ({ id, outcome, title, detail }: Result) =>
  `${id}  ${outcome}  ${title}${detail === null ? '' : `: ${detail}`}`
const results = await performAll(chosen, target, lacks, (result) => {
  if (!values.json) console.log(line(result))
})
const count = (outcome: Result['outcome']) => results.filter((result) => result.outcome === outcome).length
const summary = { passed: count('pass'), failed: count('fail'), skipped: count('skip') }
if (values.json) console.log(JSON.stringify({ ...summary, results }, null, 2))
else console.log(`${summary.passed} passed, ${summary.failed} failed, ${summary.skipped} skipped`)
process.exit(summary.failed > 0 ? 1 : summary.passed > 0 ? 0 : 2)
