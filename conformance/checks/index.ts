import type { Check } from '../check.ts'
import { activityChecks } from './activity.ts'
import { admissionChecks } from './admission.ts'
import { apiChecks } from './api.ts'
import { interruptChecks } from './interrupt.ts'
import { limitChecks } from './limits.ts'
import { liveChecks } from './live.ts'
import { peopleChecks } from './people.ts'
import { replayChecks } from './replay.ts'
import { schemaChecks } from './schema.ts'
import { securityChecks } from './security.ts'
import { sseChecks } from './sse.ts'
import { websocketChecks } from './websocket.ts'

/** All checks, by subject and id. */
export const checks: readonly Check[] = [
  ...schemaChecks,
  ...apiChecks,
  ...admissionChecks,
  ...[...replayChecks, ...liveChecks].sort((a, b) => a.id.localeCompare(b.id)),
  ...sseChecks,
  ...websocketChecks,
  ...activityChecks,
  ...peopleChecks,
  ...interruptChecks,
  ...limitChecks,
  ...securityChecks,
]
