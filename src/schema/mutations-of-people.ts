import { answerQuestion, decideApproval, dismissQuestion } from '../runner/decide.ts'
import { builder } from './builder.ts'
import { ApprovalDecision, QuarantineAction } from './enums.ts'
import {
  InteractionNotFoundError,
  InteractionPayload,
  InteractionSettledError,
  InvalidInputError,
  QuarantineNotFoundError,
  ResolveQuarantinePayload,
} from './outcome.ts'
import { resultOf } from './result.ts'

const interactionId = { required: true, description: 'The interaction.' } as const

const DecideApprovalInput = builder.inputType('DecideApprovalInput', {
  description: 'A decision about a tool call.',
  fields: (t) => ({
    interactionId: t.id(interactionId),
    decision: t.field({ type: ApprovalDecision, required: true, description: 'Whether the tool may run.' }),
    feedback: t.string({ description: 'What to tell the model with it.' }),
    editedInput: t.field({
      type: 'JSON',
      description: "With APPROVE: runs the tool with this in place of the model's input, if its schema allows it.",
    }),
    remember: t.boolean({
      defaultValue: false,
      description: 'With APPROVE: this tool needs no approval in this session from now on.',
    }),
  }),
})

const AnswerQuestionInput = builder.inputType('AnswerQuestionInput', {
  description: 'An answer to a question of the model.',
  fields: (t) => ({
    interactionId: t.id(interactionId),
    answer: t.field({
      type: 'JSON',
      required: true,
      description: 'The answer, which the model gets as the output of its tool.',
    }),
  }),
})

const InteractionIdInput = builder.inputType('InteractionIdInput', {
  description: 'Names an interaction.',
  fields: (t) => ({ interactionId: t.id(interactionId) }),
})

const ResolveQuarantineInput = builder.inputType('ResolveQuarantineInput', {
  description: 'What to do with a row that was set aside.',
  fields: (t) => ({
    id: t.id({ required: true, description: 'The quarantine entry.' }),
    action: t.field({ type: QuarantineAction, required: true, description: 'What to do.' }),
  }),
})

const InteractionResult = resultOf(
  'InteractionResult',
  'What decideApproval, answerQuestion and dismissQuestion answer.',
  [InteractionPayload, InteractionNotFoundError, InteractionSettledError, InvalidInputError],
)

builder.mutationFields((t) => ({
  decideApproval: t.field({
    type: InteractionResult,
    description: 'Approves or declines a tool call. The first decision wins; the same one again gets the same answer.',
    args: { input: t.arg({ type: DecideApprovalInput, required: true, description: 'The decision.' }) },
    resolve: (_root, { input }, { core, tenant }) => decideApproval(core, tenant, input),
  }),
  answerQuestion: t.field({
    type: InteractionResult,
    description: 'Answers a question of the model.',
    args: { input: t.arg({ type: AnswerQuestionInput, required: true, description: 'The answer.' }) },
    resolve: (_root, { input }, { core, tenant }) => answerQuestion(core, tenant, { ...input, answer: input.answer }),
  }),
  dismissQuestion: t.field({
    type: InteractionResult,
    description: 'Sets a question aside, which ends the activity.',
    args: { input: t.arg({ type: InteractionIdInput, required: true, description: 'Which question.' }) },
    resolve: (_root, { input }, { core, tenant }) => dismissQuestion(core, tenant, input),
  }),
  resolveQuarantine: t.field({
    type: resultOf('ResolveQuarantineResult', 'What resolveQuarantine answers.', [
      ResolveQuarantinePayload,
      QuarantineNotFoundError,
    ]),
    description: 'Lets a session go on whose row was set aside. The same action again gets the same answer.',
    args: {
      input: t.arg({ type: ResolveQuarantineInput, required: true, description: 'Which entry, and what to do.' }),
    },
    resolve: (_root, { input }, { core, tenant, resolveQuarantine }) => resolveQuarantine(core, tenant, input),
  }),
}))
