import { builder } from './builder.ts'
import './scalars.ts'
import './json.ts'
import './session.ts'
import './sessions.ts'
import './recovery.ts'
import './event/index.ts'
import './catalog.ts'
import './mutations-of-session.ts'
import './mutations-of-prompt.ts'
import './mutations-of-people.ts'
import './subscription.ts'
import { refuseIllFormed } from './well-formed.ts'

/** The executable schema. */
export const schema = refuseIllFormed(builder.toSchema())
