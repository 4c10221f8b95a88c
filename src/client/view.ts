// What a client sees of a session: the shape that reduce.ts keeps and that a query at the same seq gives. Names are those of the GraphQL
// schema; times are ISO text, so that a view can be stored and compared.

export interface UsageView {
  inputTokens: number
  outputTokens: number
  reasoningTokens: number
  cachedInputTokens: number
}

export interface ErrorView {
  code: string
  message: string
}

export interface AttachmentView {
  name: string
  mediaType: string
  url: string
}

export interface TextView {
  type: 'TextPart' | 'ReasoningPart'
  index: number
  text: string
  complete: boolean
}

export interface ToolCallView {
  type: 'ToolCall'
  index: number
  callId: string
  name: string
  status: 'STREAMING' | 'AWAITING_APPROVAL' | 'RUNNING' | 'COMPLETED' | 'FAILED'
  input: unknown
  output: unknown
  error: ErrorView | null
  startedAt: string | null
  settledAt: string | null
  /** Live only: the input as far as the model has written it, and the last progress of the running tool. */
  inputText?: string
  progress?: unknown
}

export type PartView = TextView | ToolCallView

interface MessageBase {
  id: string
  seq: number
  createdAt: string
}

export interface AssistantView extends MessageBase {
  type: 'AssistantMessage'
  model: string
  status: 'RUNNING' | 'ENDED' | 'FAILED' | 'INTERRUPTED'
  finish: string | null
  error: ErrorView | null
  parts: PartView[]
  usage: UsageView | null
  settledAt: string | null
  /** Live only: a request failed and is made again at this time. */
  retry?: { attempt: number; retryAt: string | null; error: ErrorView }
}

export interface CompactionView extends MessageBase {
  type: 'CompactionMessage'
  compactionStatus: 'RUNNING' | 'COMPLETED' | 'FAILED'
  summary: string | null
  error: ErrorView | null
}

export type MessageView =
  | (MessageBase & { type: 'UserMessage'; text: string; attachments: AttachmentView[] })
  | (MessageBase & { type: 'SyntheticMessage'; text: string; hidden: boolean })
  | CompactionView
  | AssistantView

export interface InputView {
  id: string
  kind: string
  text: string
  attachments: AttachmentView[]
  delivery: string
  state: 'PENDING' | 'PROMOTED' | 'WITHDRAWN'
  wakePending: boolean
  admittedSeq: number
  promotedSeq: number | null
  createdAt: string
}

export interface InteractionView {
  id: string
  kind: string
  state: string
  messageId: string
  callId: string
  toolName: string
  toolInput: unknown
  prompt: string
  options: string[]
  answer: unknown
  feedback: string | null
  editedInput: unknown
  expiresAt: string | null
  createdAt: string
}

export interface RecoveryView {
  executionId: string
  phase: string
  assistantMessageId: string | null
  continuationMessageId: string
  wakePending: boolean
  createdAt: string
}

export interface QuarantineView {
  id: string
  kind: string
  executionId: string
  reason: string
  quarantinedAt: string
  resolvedAt: string | null
}

export interface SessionView {
  id: string
  title: string | null
  instructions: string | null
  model: string
  /** The last event that this view holds: where its stream goes on. */
  seq: number
  createdAt: string
  updatedAt: string
  archivedAt: string | null
  parkedReason: string | null
  usage: UsageView
  approvedTools: string[]
  messages: MessageView[]
  inputs: InputView[]
  interactions: InteractionView[]
  recoveries: RecoveryView[]
  quarantine: QuarantineView[]
  /** The execution that has started and not ended, as the log knows it. */
  executionId: string | null
}
