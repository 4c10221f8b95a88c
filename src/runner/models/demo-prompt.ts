import type { LanguageModelV4Prompt, LanguageModelV4ToolResultPart } from '@ai-sdk/provider'

/** What the demo model looks at: the last user message, and what its tools have answered since. */
export interface DemoPrompt {
  text: string
  attachments: number
  results: { name: string; output: string }[]
  /** Words in the whole prompt, as a rough count of tokens. */
  words: number
}

export function readDemoPrompt(prompt: LanguageModelV4Prompt): DemoPrompt {
  const last = prompt.findLastIndex((message) => message.role === 'user')
  const user = prompt[last]
  const parts = user?.role === 'user' ? user.content : []
  const results = prompt
    .slice(last + 1)
    .flatMap((message) => (message.role === 'tool' ? message.content : []))
    .filter((part) => part.type === 'tool-result')
  return {
    text: parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n'),
    attachments: parts.filter((part) => part.type === 'file').length,
    results: results.map(({ toolName, output }) => ({ name: toolName, output: outputText(output) })),
    words: prompt.reduce((sum, message) => sum + messageWords(message), 0),
  }
}

export function countWords(text: string): number {
  return text.match(/\S+/g)?.length ?? 0
}

function messageWords(message: LanguageModelV4Prompt[number]): number {
  if (typeof message.content === 'string') return countWords(message.content)
  let words = 0
  for (const part of message.content) {
    if (part.type === 'text' || part.type === 'reasoning') words += countWords(part.text)
    else if (part.type === 'tool-call') words += countWords(JSON.stringify(part.input) ?? '') + 1
    else if (part.type === 'tool-result') words += countWords(outputText(part.output)) + 1
  }
  return words
}

function outputText(output: LanguageModelV4ToolResultPart['output']): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value
    case 'json':
    case 'error-json':
      return JSON.stringify(output.value)
    case 'execution-denied':
      return output.reason ?? 'not allowed to run'
    case 'content':
      return output.value.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n')
  }
}
