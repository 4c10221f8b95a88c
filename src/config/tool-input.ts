import type { JSONSchema7 } from '@ai-sdk/provider'
import { Ajv, type ErrorObject, type Options } from 'ajv'
import { Ajv2019 } from 'ajv/dist/2019.js'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { z } from 'zod'
import { toolWords } from '../tool-words.ts'

/** `thrown`: what a rule threw, for the log. */
export type Validate = (
  input: unknown,
) => { ok: true; value: unknown } | { ok: false; field: string; message: string; thrown?: unknown }

/** A tool's input in both forms: as told to the model, and as checked before a dispatch. */
export interface ToolInput {
  jsonSchema: JSONSchema7
  validate: Validate
}

/**
 * Of a Zod 4 schema; the user's own copy of Zod will do. The value is what the schema makes of the input.
 *
 * @throws if the schema cannot be said in JSON Schema or is not one of an object
 */
export function zodInput(schema: z.ZodType): ToolInput {
  return {
    jsonSchema: ofObject(z.toJSONSchema(schema, { io: 'input' }) as JSONSchema7),
    validate(input) {
      try {
        const parsed = z.safeParse(schema, input)
        if (parsed.success) return { ok: true, value: parsed.data }
        const { path, message } = parsed.error.issues[0]!
        return { ok: false, field: fieldName(path.map(String)), message: `${message}` }
      } catch (thrown) {
        // A rule of the user's own that throws, or is asynchronous: the call is refused, the step goes on.
        return { ok: false, field: 'input', message: `cannot be checked: ${toolWords(thrown)}`, thrown }
      }
    },
  }
}

// Draft 2020-12 takes `format` as a remark, and unknown keywords too.
const OPTIONS: Options = { strict: false, validateFormats: false, logger: false }

/**
 * Of a JSON Schema: draft 2020-12, or the draft 6, 7 or 2019-09 that `$schema` names. It is compiled here, once; a
 * reference to a schema elsewhere is not fetched.
 *
 * @throws if the schema does not compile or is not one of an object
 */
export function jsonSchemaInput(schema: { [keyword: string]: unknown }): ToolInput {
  const jsonSchema = ofObject(schema as JSONSchema7)
  if ('$async' in schema) throw new Error('$async is not supported')
  // A copy, as the user's object may change later; one compiler per schema, as two may have the same $id.
  const check = compiler(String(schema.$schema ?? '')).compile(structuredClone(schema))
  return {
    jsonSchema,
    validate(input) {
      if (check(input)) return { ok: true, value: input }
      return { ok: false, ...explain(check.errors![0]!) }
    },
  }
}

function compiler(draft: string): Ajv {
  if (!/draft-0[67]/.test(draft)) return draft.includes('2019-09') ? new Ajv2019(OPTIONS) : new Ajv2020(OPTIONS)
  const ajv = new Ajv(OPTIONS)
  // Draft 6 is a part of draft 7.
  if (draft.includes('draft-06'))
    ajv.addMetaSchema({ $id: draft.replace(/#$/, ''), $ref: 'http://json-schema.org/draft-07/schema#' })
  return ajv
}

/** Providers take nothing but an object as a tool's input. */
function ofObject(schema: JSONSchema7): JSONSchema7 {
  if (schema.type === 'object') return schema
  throw new Error(
    `must describe an object (its JSON Schema needs "type": "object", here it is ${JSON.stringify(schema.type)})`,
  )
}

function explain({ instancePath, params, message = 'does not fit the schema' }: ErrorObject) {
  // A missing or a surplus field is reported for the object around it.
  const inner: unknown = params.missingProperty ?? params.additionalProperty ?? params.unevaluatedProperty
  const path = instancePath.split('/').slice(1).map(unescaped)
  if (typeof inner === 'string') path.push(inner)
  const allowed = params.allowedValues ? `: ${JSON.stringify(params.allowedValues)}` : ''
  const why = params.missingProperty === undefined ? message + allowed : 'is required'
  return { field: fieldName(path), message: why }
}

const unescaped = (part: string) => part.replaceAll('~1', '/').replaceAll('~0', '~')
const fieldName = (path: string[]) => (path.length === 0 ? 'input' : path.join('.'))
