// Tools for prompts of the fuzz: one of each fate.
const inputSchema = { type: 'object', additionalProperties: true }

export default {
  tools: [
    {
      name: 'approve_me',
      description: 'Answers what it got, if a person agrees.',
      inputSchema,
      needsApproval: true,
      execute: (input) => input,
    },
    { name: 'echo_json', description: 'Answers what it got.', inputSchema, execute: (input) => input },
    {
      name: 'boom',
      description: 'Throws.',
      inputSchema,
      execute: () => {
        throw new Error('it broke')
      },
    },
  ],
}
