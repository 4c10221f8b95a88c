import { type Anything, ask, type Target } from './http.ts'
import { Failed, Skipped } from './outcome.ts'
import { createWorld, type World } from './world.ts'

/** What a check needs of the server beyond the contract. Without it the check is skipped, and says so. */
export type Need = 'echo' | 'wait' | 'ask_user' | 'approval' | 'token'

export interface Check {
  /** Stable: never given to another promise. */
  id: string
  /** The promise in plain words. */
  title: string
  needs?: readonly Need[]
  /** It takes its time, so it begins first. */
  slow?: true
  run(world: World): Promise<void>
}

export interface Result {
  id: string
  title: string
  outcome: 'pass' | 'fail' | 'skip'
  /** Why it was skipped, or what was expected and what was seen; null if it passed. */
  detail: string | null
  ms: number
}

/** A tool that a server may offer for this: it has to need approval and to answer with its input. */
export const approvalTool = 'conformance_approval'

/** What this server lacks, each with the reason that a skipped check gives. Throws what keeps the whole kit from running. */
export async function lacking(target: Target): Promise<Map<Need, string>> {
  const found: Anything = await ask(target, '{ models { id } tools { name needsApproval } }')
  const tools: { name: string; needsApproval: boolean }[] = found.tools
  const lacks = new Map<Need, string>()
  if (!found.models.some(({ id }: { id: string }) => id === target.model))
    lacks.set('echo', `the server has no model ${target.model}`)
  else if (target.model !== 'demo/echo')
    lacks.set('echo', `${target.model} does not obey the commands of demo/echo, without which nothing is certain`)
  for (const name of ['wait', 'ask_user'] as const)
    if (!tools.some((tool) => tool.name === name)) lacks.set(name, `the server has no tool ${name}`)
  if (!tools.some(({ name, needsApproval }) => name === approvalTool && needsApproval))
    lacks.set('approval', `the server has no tool ${approvalTool} that needs approval; docs/conformance.md has one`)
  if (target.token === null) lacks.set('token', 'no --token was given')
  return lacks
}

const checkMsMax = 90_000

/** Runs one check in a world of its own. Never throws. */
export async function perform(check: Check, target: Target, lacks: Map<Need, string>): Promise<Result> {
  const begun = Date.now()
  const result = (outcome: Result['outcome'], detail: string | null): Result => ({
    id: check.id,
    title: check.title,
    outcome,
    detail,
    ms: Date.now() - begun,
  })
  const missing = check.needs?.find((need) => lacks.has(need))
  if (missing !== undefined) return result('skip', lacks.get(missing)!)

  const world = createWorld(target)
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Failed('the check', `it to end within ${checkMsMax} ms`, 'nothing')),
      checkMsMax,
    )
  })
  let thrown: unknown
  try {
    await Promise.race([check.run(world), late])
  } catch (error) {
    thrown = error
  }
  clearTimeout(timer)
  // What it leaves behind is part of the promise; but what failed first says more.
  await world.end().catch((error: unknown) => {
    thrown ??= error
  })
  if (thrown === undefined) return result('pass', null)
  if (thrown instanceof Skipped) return result('skip', thrown.message)
  return result('fail', thrown instanceof Failed ? thrown.message : `the check could not go on: ${describe(thrown)}`)
}

/** With its cause: "fetch failed" alone says nothing. */
function describe(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown)
  return thrown.cause instanceof Error ? `${thrown.message} (${thrown.cause.message})` : thrown.message
}
