// Writes schema.graphql from the code: npx tsx scripts/print-schema.ts
import { writeFileSync } from 'node:fs'
import { schema } from '../src/schema/index.ts'
import { printed } from '../src/schema/printed.ts'

writeFileSync(new URL('../schema.graphql', import.meta.url), printed(schema))
