/** A tab that GraphiQL opens with. Where a document has several operations the button asks which. */
export interface ExampleTab {
  query: string
  /** JSON; the same names mean the same in every tab. */
  variables: string | null
}

/** As the first tab creates it. */
const session = 'ses_example01'

const tab = (query: string, variables: Record<string, unknown> | null): ExampleTab => ({
  query: `${query.trim()}\n`,
  variables: variables && JSON.stringify(variables, null, 2),
})

/** From the first session to what needs a person. A browser that has tabs of its own keeps those. */
export const exampleTabs: readonly ExampleTab[] = [
  tab(
    `
# Holdfast: durable AI agent sessions. Go through the tabs from left to right.
# The client makes the ids: repeated with the same one, a mutation changes nothing.
# To start anew take another id here, and in the variables of the other tabs.

mutation Create {
  createSession(input: { sessionId: "ses_example01", title: "First steps" }) {
    ... on CreateSessionPayload { created session { id status model } }
    ... on Error { message }
  }
}
`,
    // The editor leaves out the variables of the tab that it opens with.
    null,
  ),
  tab(
    `
# Answers as soon as the prompt is durable. Start Watch in the next tab to see the answer come in, then send another:
# with a new message id and a text such as
#   /tool ask_user {"question":"Which colour?","options":["red","blue"]}    something to decide
#   /tool wait {"ms":60000}                                                 something to interrupt

mutation Prompt($session: ID!, $message: ID!, $text: String!, $delivery: Delivery) {
  admitPrompt(input: { sessionId: $session, messageId: $message, text: $text, delivery: $delivery }) {
    ... on PromptAdmission { outcome executionRequested input { id state } }
    ... on Error { message }
  }
}
`,
    { session, message: 'msg_example01', text: '/slow 400 Hello! Slowly, please.', delivery: 'STEER' },
  ),
  tab(
    `
# Over WebSocket: every event behind \`after\`, then LogSynced, then what happens from then on.

subscription Watch($session: ID!, $after: Int) {
  sessionEvents(sessionId: $session, after: $after) {
    __typename
    seq
    ... on TextDelta { offset text }
    ... on TextEnded { text }
    ... on ToolCalled { name toolInput }
    ... on InteractionRequested { interactionId prompt options }
    ... on StepFailed { error { code message } }
    ... on ExecutionSettled { outcome }
  }
}
`,
    { session, after: 0 },
  ),
  tab(
    `
query Read($session: ID!) {
  session(id: $session) {
    status
    seq
    messages(first: 50) {
      edges {
        node {
          __typename
          ... on UserMessage { text }
          ... on AssistantMessage {
            status
            parts {
              ... on TextPart { text }
              ... on ReasoningPart { text }
              ... on ToolCall { name status input output error { code message } }
            }
          }
        }
      }
    }
  }
}
`,
    { session },
  ),
  tab(
    `
# What waits for a person, over all sessions.

query Inbox($first: Int, $after: String) {
  interactions(first: $first, after: $after) {
    edges { node { id kind toolName toolInput prompt options expiresAt session { id title status } } }
    pageInfo { hasNextPage endCursor }
  }
}
`,
    { first: 20, after: null },
  ),
  tab(
    `
# Take the id from Inbox. The first decision wins; the same one again gets the same answer.

mutation Answer($interaction: ID!, $answer: JSON!) {
  answerQuestion(input: { interactionId: $interaction, answer: $answer }) { ...Decided }
}

mutation Dismiss($interaction: ID!) {
  dismissQuestion(input: { interactionId: $interaction }) { ...Decided }
}

mutation Decide($interaction: ID!, $decision: ApprovalDecision!, $feedback: String) {
  decideApproval(input: { interactionId: $interaction, decision: $decision, feedback: $feedback }) { ...Decided }
}

fragment Decided on InteractionResult {
  ... on InteractionPayload { interaction { id state answer } }
  ... on InteractionSettledError { message interaction { state answer } }
  ... on Error { message }
}
`,
    { interaction: 'req_…', answer: 'red', decision: 'APPROVE', feedback: null },
  ),
  tab(
    `
# Answers once the work has stopped. With an executionId (Running tells it) it cannot stop a later one.

mutation Interrupt($session: ID!, $execution: ID) {
  interruptSession(input: { sessionId: $session, executionId: $execution }) {
    ... on InterruptSessionPayload { interrupted session { status } }
    ... on Error { message }
  }
}

query Running($session: ID!) {
  session(id: $session) { status execution { id phase owner expiresAt } }
}
`,
    { session, execution: null },
  ),
  tab(
    `
# What was cut off and taken up again, and what could not be trusted and waits for you.

query Recoveries($session: ID!) {
  session(id: $session) {
    status
    parkedReason
    recoveries { id phase executionId assistantMessageId continuationMessageId wakePending error createdAt }
  }
  quarantine(first: 20) {
    edges { node { id kind reason executionId quarantinedAt resolvedAt session { id } } }
  }
}

mutation Resume($session: ID!) {
  resumeSession(input: { sessionId: $session }) {
    ... on ResumeSessionPayload { session { status } }
    ... on Error { message }
  }
}

mutation Resolve($quarantine: ID!, $action: QuarantineAction!) {
  resolveQuarantine(input: { id: $quarantine, action: $action }) {
    ... on ResolveQuarantinePayload { session { id status } }
    ... on Error { message }
  }
}
`,
    { session, quarantine: 'qua_…', action: 'RETRY' },
  ),
]
