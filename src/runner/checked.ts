// The check of what a tool is to be run with. A rule of its schema may fail instead of saying no: that is told to the log as it is.

import type { Tool } from '../config.ts'
import { asError } from '../errors.ts'
import type { Core } from './core.ts'

/** What the schema makes of the input, or what is wrong with it in words for the model and for people. */
export function checked(core: Core, sessionId: string, tool: Tool, input: unknown) {
  const found = tool.validate(input)
  if (!found.ok && 'thrown' in found)
    core.log.warn({ err: asError(found.thrown), sessionId, tool: tool.name }, "a rule of a tool's input failed")
  return found.ok ? found : { ok: false as const, rule: `${found.field}: ${found.message}` }
}
