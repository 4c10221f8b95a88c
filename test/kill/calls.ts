/** What the people of test/kill ask a server. */
export const createSession = `mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }`

export const admitPrompt = `mutation ($s: ID!, $m: ID!, $t: String!, $d: Delivery!, $resume: Boolean!) {
  admitPrompt(input: { sessionId: $s, messageId: $m, text: $t, delivery: $d, resume: $resume }) {
    __typename ... on PromptAdmission { outcome input { id text } } ... on Error { message } } }`

export const resumeSession = `mutation ($s: ID!, $seq: Int!) {
  resumeSession(input: { sessionId: $s, ifSeq: $seq }) { __typename } }`

export const interruptSession = `mutation ($s: ID!, $x: ID) {
  interruptSession(input: { sessionId: $s, executionId: $x }) {
    __typename ... on InterruptSessionPayload { interrupted } } }`

export const decideApproval = `mutation ($i: ID!, $d: ApprovalDecision!) {
  decideApproval(input: { interactionId: $i, decision: $d, feedback: "so it was decided" }) { __typename } }`

export const answerQuestion = `mutation ($i: ID!) {
  answerQuestion(input: { interactionId: $i, answer: "blue" }) { __typename } }`

export const dismissQuestion = `mutation ($i: ID!) { dismissQuestion(input: { interactionId: $i }) { __typename } }`

export const resolveQuarantine = `mutation ($q: ID!, $a: QuarantineAction!) {
  resolveQuarantine(input: { id: $q, action: $a }) { __typename } }`

export const sessionNow = `query ($s: ID!) { session(id: $s) {
  seq status parkedReason execution { id } interactions { id kind } } }`

export const openQuarantine = `query ($after: String) { quarantine(open: true, first: 100, after: $after) {
  edges { node { id session { id } } } pageInfo { hasNextPage endCursor } } }`

export const follow = `subscription ($s: ID!, $after: Int!) { sessionEvents(sessionId: $s, after: $after) {
  __typename seq } }`
