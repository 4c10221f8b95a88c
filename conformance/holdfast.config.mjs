// HOLDFAST_CONFIG=conformance/holdfast.config.mjs npm start: a server on which the checks of approvals are not skipped.
export default {
  tools: [
    {
      name: 'conformance_approval',
      description: 'Answers with its input, once a person has said yes.',
      inputSchema: {
        type: 'object',
        properties: { value: { type: 'number' } },
        required: ['value'],
        additionalProperties: false,
      },
      needsApproval: true,
      execute: (input) => input,
    },
  ],
}
