import { types } from 'node:util'
import type { JSONSchema7, JSONValue } from '@ai-sdk/provider'
import { z } from 'zod'
import { wordsOf } from '../thrown.ts'
import { definitionHash } from './definition-hash.ts'
import { jsonSchemaInput, type Validate, zodInput } from './tool-input.ts'

/** What a tool gets beside its input (design section 6). */
export interface ToolContext {
  sessionId: string
  /** The assistant message that made the call. */
  messageId: string
  /** Unique and stable for this call: give it to other systems as idempotency key. */
  callId: string
  /** Aborted on an interrupt, at the deadline and when the process has to stop. */
  signal: AbortSignal
  /** Shows something to whoever watches the session right now. It is not kept. */
  progress(update: JSONValue): void
  /** When the signal will be aborted at the latest. */
  deadline: Date
}

/** A tool as it is written in the config file. */
export interface ToolDefinition<Input = unknown> {
  /** Letters, digits, `_` and `-`, at most 64: what all providers take. */
  name: string
  /** Tells the model what the tool does and when to use it. */
  description: string
  /** What the model has to give: a Zod schema or a JSON Schema, of an object. */
  inputSchema: z.ZodType<Input> | JsonSchema
  /**
   * Whether a person has to approve a call before it runs, always or by its input (design section 7). A function gets what `execute` would
   * get; one that throws means yes.
   */
  needsApproval?: boolean | ((input: Input) => boolean)
  /** How long an approval of this tool may stay open, in milliseconds; then the call is declined. The config's if left out. */
  approvalExpiresMs?: number
  /** Deadline of one call in milliseconds; HOLDFAST_TOOL_TIMEOUT_MS if left out. */
  timeoutMs?: number
  /** Runs only with input that fits the schema. What it throws, the model sees as the tool's error. */
  execute(input: Input, context: ToolContext): Promise<JSONValue> | JSONValue
}

/** A JSON Schema object. Without `$schema` it is read as draft 2020-12. */
export type JsonSchema = { [keyword: string]: unknown }

/** A tool whose schema has been compiled. */
export interface Tool extends ToolDefinition {
  /** Changes with name, description or schema, and only then: a remembered approval holds for one of these (ASK-25). */
  definition: string
  /** A call is a question to a person, and the answer is its output: `execute` is never called. Built-in tools only. */
  asks?: 'question'
  /** What the model and clients are told. */
  jsonSchema: JSONSchema7
  /** Looks at a model's input. Never throws; `field` is the path of what is wrong, `input` for the whole. */
  validate: Validate
}

/** Gives `execute` the type of a Zod schema's output; a JSON Schema leaves it `unknown`. Changes nothing at run time. */
export function defineTool<Schema extends z.ZodType>(
  tool: Omit<ToolDefinition<z.output<Schema>>, 'inputSchema'> & { inputSchema: Schema },
): ToolDefinition
export function defineTool(tool: ToolDefinition): ToolDefinition
export function defineTool(tool: unknown): ToolDefinition {
  return tool as ToolDefinition
}

const LONGEST_TIMER = 2 ** 31 - 1
const LONGEST_EXPIRY_MS = 315_576_000_000 // ten years

/** Milliseconds until an open approval expires: a date in the database, not a timer. */
export const expiryMs = z.int().min(1).max(LONGEST_EXPIRY_MS)

const isDecider = (value: unknown) =>
  typeof value === 'boolean' || (typeof value === 'function' && !types.isAsyncFunction(value))

const shape = z.strictObject({
  name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"'),
  description: z.string().min(1, 'must not be empty'),
  inputSchema: z.custom(
    (value) => typeof value === 'object' && value !== null,
    'must be a Zod schema or a JSON Schema',
  ),
  needsApproval: z.custom(isDecider, 'must be true, false or a function (not an async one) of the input').optional(),
  approvalExpiresMs: expiryMs.optional(),
  timeoutMs: z.int().min(1).max(LONGEST_TIMER).optional(),
  execute: z.custom((value) => typeof value === 'function', 'must be a function'),
})

/** The known fields of a tool, for hints. */
export const toolFields = Object.keys(shape.shape)

/**
 * Checks a tool and compiles its schema.
 *
 * @returns the tool, or for each problem the field and the rule
 */
export function prepareTool(tool: unknown): { tool: Tool } | { issues: z.core.$ZodIssue[] } {
  const parsed = shape.safeParse(tool)
  if (!parsed.success) return { issues: parsed.error.issues }
  const given = tool as ToolDefinition
  try {
    const { name, description, inputSchema } = given
    const input = isZod(inputSchema) ? zodInput(inputSchema) : jsonSchemaInput(inputSchema)
    return {
      tool: Object.freeze({
        ...given,
        ...(typeof given.needsApproval === 'function' && { needsApproval: cautious(given) }),
        // Bound, as a tool may be an object with a method that uses `this`.
        execute: (value: unknown, context: ToolContext) => given.execute(value, context),
        ...input,
        definition: definitionHash(name, description, input.jsonSchema),
      }),
    }
  } catch (error) {
    return { issues: [{ code: 'custom', path: ['inputSchema'], message: wordsOf(error), input: undefined }] }
  }
}

/** Anything but a plain `false` asks a person. What the function throws is the caller's to log, and asks too. */
function cautious(tool: ToolDefinition): (input: unknown) => boolean {
  return (input) => {
    const said: unknown = (tool.needsApproval as (input: unknown) => unknown)(input)
    // What it would come to is not waited for, and its failure is nobody's surprise.
    if (said instanceof Promise) said.catch(() => {})
    return said !== false
  }
}

function isZod(schema: ToolDefinition['inputSchema']): schema is z.ZodType {
  return '_zod' in schema
}
