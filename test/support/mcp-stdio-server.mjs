// A real MCP server on standard input and output, to be started, killed and started again.
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { testServer } from './mcp-tools.mjs'

console.error(`started with ${process.env.SECRET}`)
serveStdio(testServer)
