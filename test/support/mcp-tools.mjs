import { McpServer } from '@modelcontextprotocol/server'
import { z } from 'zod'

/** What both test servers offer. `EXTRA_TOOL` names one more; `SECRET` is what it must not spread, and spreads. */
export function testServer() {
  const server = new McpServer({ name: 'test', version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } })
  const secret = process.env.SECRET ?? ''
  const text = (value) => ({ content: [{ type: 'text', text: value }] })
  const png = 'iVBORw0KGgo='

  server.registerTool(
    'add',
    { description: `adds ${secret}`, inputSchema: z.object({ a: z.number(), b: z.number() }) },
    ({ a, b }) => text(String(a + b)),
  )
  server.registerTool('pid', { description: 'tells its process' }, () => text(String(process.pid)))
  server.registerTool('environment', { description: 'names what it got' }, () =>
    text(Object.keys(process.env).sort().join(' ')),
  )
  server.registerTool('picture', { description: 'draws' }, () => ({
    content: [
      { type: 'text', text: 'here' },
      { type: 'image', data: png, mimeType: 'image/png' },
      { type: 'resource', resource: { uri: 'file:///a', text: 'inside' } },
      { type: 'resource_link', uri: 'file:///b', name: 'b' },
    ],
  }))
  server.registerTool('fail', { description: 'fails' }, () => ({ ...text(`no luck with ${secret}`), isError: true }))
  server.registerTool('grow', { description: 'offers one more tool' }, () => {
    server.registerTool('grown', { description: 'new' }, () => text('grown'))
    return text('done')
  })
  server.registerTool('hang', { description: 'reports, then hangs until cancelled' }, async (context) => {
    const token = context.mcpReq._meta?.progressToken
    if (token !== undefined)
      await context.mcpReq.notify({
        method: 'notifications/progress',
        params: { progressToken: token, progress: 1, total: 2, message: 'half' },
      })
    await new Promise((resolve) => context.mcpReq.signal.addEventListener('abort', resolve))
    cancelled++
    return text('cancelled')
  })
  let cancelled = 0
  server.registerTool('cancellations', { description: 'counts' }, () => text(String(cancelled)))
  const extra = process.env.EXTRA_TOOL
  if (extra) server.registerTool(extra, { description: 'extra' }, () => text('extra'))
  return server
}
