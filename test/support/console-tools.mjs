// The config of the servers whose console is tested: a tool that needs an approval, and one that answers with markup.
export default {
  tools: [
    {
      name: 'deploy',
      description: 'Deploys.',
      needsApproval: true,
      inputSchema: { type: 'object', properties: { to: { type: 'string' } }, required: ['to'] },
      execute: ({ to }) => ({ deployed: to }),
    },
    {
      name: 'markup',
      description: 'Answers with markup.',
      inputSchema: { type: 'object', properties: {} },
      execute: () => '<img src="https://evil.example/a.png" onerror="alert(1)"><script>alert(2)</script>',
    },
  ],
}
