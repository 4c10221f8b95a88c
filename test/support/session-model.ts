// A small pure model of one session, beside which the real one is run (test/session-model.test.ts). It knows the rules of admission,
// promotion, decisions, interrupts and failures, and nothing of how they are kept.

export interface ModelInput {
  id: string
  text: string
  requested: 'STEER' | 'QUEUE'
  delivery: 'STEER' | 'QUEUE'
  state: 'PENDING' | 'PROMOTED' | 'WITHDRAWN'
  armed: boolean
  /** Somebody has asked for execution at some time. */
  asked: boolean
}

export interface SessionModel {
  inputs: ModelInput[]
  /** `asking`: a request is open. `resting`: a retry waits for its time. `waiting`: a person is asked. */
  run: 'idle' | 'asking' | 'resting' | 'waiting'
  /** What the person was asked for last. */
  asked: 'APPROVAL' | 'QUESTION'
  stepOwed: boolean
  attempt: number
  requests: number
  toolRuns: number
  /** The failed attempt left output, so the next one is a new message at a boundary. */
  continues: boolean
}

export const newModel = (): SessionModel => ({
  inputs: [],
  run: 'idle',
  asked: 'APPROVAL',
  stepOwed: false,
  attempt: 1,
  requests: 0,
  toolRuns: 0,
  continues: false,
})

const pending = (model: SessionModel) => model.inputs.filter(({ state }) => state === 'PENDING')

export function disarm(model: SessionModel) {
  for (const input of pending(model)) input.armed = false
}

export function arm(model: SessionModel) {
  for (const input of pending(model)) input.armed = true
}

function promote(input: ModelInput) {
  input.state = 'PROMOTED'
  input.armed = false
}

function ask(model: SessionModel, attempt = 1) {
  model.run = 'asking'
  model.attempt = attempt
  model.requests++
  model.stepOwed = true
}

/** A safe boundary within an execution: everything pending is taken along, armed or not. */
export function boundary(model: SessionModel, attempt = 1) {
  const steers = pending(model).filter(({ delivery }) => delivery === 'STEER')
  const queued = pending(model).find(({ delivery }) => delivery === 'QUEUE')
  if (model.stepOwed || steers.length > 0) {
    for (const input of steers) promote(input)
    ask(model, attempt)
  } else if (queued) {
    promote(queued)
    ask(model, attempt)
  } else model.run = 'idle'
}

/** Without an execution only armed rows and owed steps make one start; its start arms what is pending. */
export function start(model: SessionModel) {
  model.run = 'idle'
  if (!model.stepOwed && !pending(model).some(({ armed }) => armed)) return
  arm(model)
  boundary(model)
}

export function endClean(model: SessionModel, continues: boolean) {
  model.stepOwed = continues
  boundary(model)
}

export function failForGood(model: SessionModel, disarms: boolean) {
  model.stepOwed = false
  if (disarms) disarm(model)
  start(model)
}

export const attemptsMax = 5

export function failForNow(model: SessionModel, hadOutput: boolean) {
  if (model.attempt >= attemptsMax) return failForGood(model, false)
  model.attempt++
  model.continues = hadOutput
  model.run = 'resting'
}

export function retryNow(model: SessionModel) {
  if (model.continues) boundary(model, model.attempt)
  else ask(model, model.attempt)
  model.continues = false
}

/** The step stays open and the claim goes until a person has decided. */
export function waitFor(model: SessionModel, asked: SessionModel['asked']) {
  model.run = 'waiting'
  model.asked = asked
}

/** Says whether there was anything to stop. */
export function interrupt(model: SessionModel): boolean {
  const had = model.run !== 'idle' || model.stepOwed || pending(model).some(({ armed }) => armed)
  disarm(model)
  model.stepOwed = false
  model.run = 'idle'
  return had
}

/** A decision that lets the step end: a new execution takes it up, and goes on from there. */
export function decided(model: SessionModel, toolRan: boolean) {
  arm(model)
  if (toolRan) model.toolRuns++
  endClean(model, true)
}
