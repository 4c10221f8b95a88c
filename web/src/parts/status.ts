import type { SessionStatus } from '../../../src/client/generated/graphql.ts'

/** What a status says to a person, and the tone in which it is shown. */
export const statusWords: Record<SessionStatus, { label: string; tone: string }> = {
  IDLE: { label: 'Idle', tone: 'quiet' },
  RUNNING: { label: 'Running', tone: 'busy' },
  WAITING: { label: 'Waiting for you', tone: 'ask' },
  RECOVERING: { label: 'Recovering', tone: 'busy' },
  PARKED: { label: 'Parked', tone: 'warn' },
  QUARANTINED: { label: 'Quarantined', tone: 'bad' },
}
