import type { SessionEventFieldsFragment } from '../../../src/client/generated/graphql.ts'

export interface Described {
  /** In a few words. */
  title: string
  detail: string
  tone: 'quiet' | 'busy' | 'ask' | 'warn' | 'bad' | 'good'
  /** Begins or ends a step, an execution, or something a person did: what is left when only the outline is wanted. */
  outline: boolean
}

const one = (title: string, detail = '', tone: Described['tone'] = 'quiet', outline = true): Described => ({
  title,
  detail,
  tone,
  outline,
})
const short = (text: string, most = 120) => (text.length <= most ? text : `${text.slice(0, most)}…`)
/** Ids are long, and their ends tell them apart. */
const tail = (id: string | number) => `…${String(id).slice(-8)}`
const tokens = ({ inputTokens, outputTokens }: { inputTokens: number; outputTokens: number }) =>
  `${inputTokens} in, ${outputTokens} out`
const failure = ({ code, message }: { code: string; message: string }) => short(`${code}: ${message}`, 200)

/** An event of the log in words. */
export function describe(event: SessionEventFieldsFragment): Described {
  switch (event.__typename) {
    case 'SessionCreated':
      return one('Session created')
    case 'SessionUpdated':
      return one('Session changed')
    case 'PromptAdmitted':
      return one(
        event.inputKind === 'COMPACTION' ? 'Compaction asked for' : 'Prompt admitted',
        event.inputKind === 'COMPACTION' ? '' : `${event.delivery.toLowerCase()} · ${short(event.text)}`,
      )
    case 'PromptPromoted':
      return one(
        event.hidden ? 'Continuation taken up' : 'Prompt joined the history',
        event.hidden ? '' : short(event.text),
      )
    case 'PromptExecutionRequested':
      return one('Start asked for')
    case 'PromptDeliveryChanged':
      return one('Delivery changed', event.delivery.toLowerCase())
    case 'PromptWithdrawn':
      return one('Prompt withdrawn')
    case 'InterruptRequested':
      return one(
        'Stop asked for',
        event.interruptedExecutionId ? tail(event.interruptedExecutionId) : 'nothing was running',
        'warn',
      )
    case 'ExecutionStarted':
      return one('Execution started', tail(event.executionId), 'busy')
    case 'ExecutionSettled':
      return one(
        `Execution ${event.outcome.toLowerCase()}`,
        event.retryAt ? `again at ${event.retryAt}` : '',
        event.outcome === 'SUCCEEDED' ? 'good' : event.outcome === 'FAILED' ? 'bad' : 'quiet',
      )
    case 'StepStarted':
      return one('Step started', event.model, 'busy')
    case 'StepEnded':
      return one(
        'Step ended',
        `${event.finish} · ${tokens(event.usage)}${event.continues ? ' · another one follows' : ''}`,
        'good',
      )
    case 'StepFailed':
      return one('Step failed', failure(event.error), 'bad')
    case 'StepInterrupted':
      return one('Step interrupted', failure(event.error), 'warn')
    case 'StepRetryScheduled':
      return one(`Attempt ${event.attempt - 1} failed`, failure(event.error), 'warn')
    case 'StepRecovered':
      return one(
        'Recovered',
        `${event.phase}${event.handover ? ' · handed over' : ''} · ${tail(event.executionId)}`,
        'warn',
      )
    case 'ToolCalled':
      return one(`Tool called: ${event.name}`, short(JSON.stringify(event.toolInput) ?? ''), 'busy', false)
    case 'ToolStarted':
      return one('Tool started', event.callId, 'busy', false)
    case 'ToolSucceeded':
      return one('Tool succeeded', event.callId, 'good', false)
    case 'ToolFailed':
      return one('Tool failed', failure(event.error), 'bad', false)
    case 'InteractionRequested':
      return one(
        event.kind === 'APPROVAL' ? 'Approval asked for' : 'Question asked',
        `${event.name} · ${short(event.prompt)}`,
        'ask',
      )
    case 'InteractionSettled':
      return one(`Answer: ${event.state.toLowerCase()}`, '', 'ask')
    case 'QuarantineOpened':
      return one('Quarantined', event.reason, 'bad')
    case 'QuarantineResolved':
      return one('Quarantine resolved', event.action.toLowerCase(), 'good')
    case 'SessionParked':
      return one('Parked', event.reason, 'warn')
    case 'SessionResumeRequested':
      return one('Resume asked for')
    case 'CompactionStarted':
      return one('Compaction started', event.automatic ? 'automatic' : 'asked for', 'busy')
    case 'CompactionEnded':
      return one('Compaction ended', tokens(event.usage), 'good')
    case 'CompactionFailed':
      return one('Compaction failed', failure(event.error), 'bad')
    default:
      return one(event.__typename.replace(/(?<=[a-z])(?=[A-Z])/g, ' '), '', 'quiet', false)
  }
}
