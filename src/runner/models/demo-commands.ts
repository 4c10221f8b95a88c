export type DemoFailure = 'auth' | 'quota' | 'rate' | 'overload' | 'invalid' | 'content' | 'mid'

/** What a prompt asks of the demo model, beside being echoed. */
export interface DemoCommands {
  /** `/reason TEXT` to the end of the line. */
  reason: string[]
  /** `/tool NAME {json}` and `/malformed NAME`; `input` is the raw text, which need not be JSON. */
  tools: { name: string; input: string }[]
  /** `/fail KIND [TIMES]`: always, or the first TIMES attempts only. */
  fail?: { kind: DemoFailure; times: number }
  /** `/overflow [TIMES]`. */
  overflow?: { times: number }
  /** `/stall [MS]`; Infinity: until it is aborted. */
  stallMs?: number
  /** `/length N`: words of the answer. */
  words?: number
  /** `/slow MS`: delay of a word. */
  slowMs?: number
  /** The text without its commands. */
  rest: string
}

const COMMAND = /(?<!\S)\/(reason|tool|malformed|fail|overflow|stall|length|slow)(?!\S)/g
const LONGEST_MS = 3_600_000
const MOST_WORDS = 100_000

/**
 * Reads the commands in a prompt. They begin a line or follow another command; `/tool` is understood anywhere between
 * words. A command whose argument makes no sense stays part of the text.
 */
export function parseDemoCommands(text: string): DemoCommands {
  const commands: DemoCommands = { reason: [], tools: [], rest: '' }
  let copied = 0
  COMMAND.lastIndex = 0
  for (let match = COMMAND.exec(text); match !== null; match = COMMAND.exec(text)) {
    const name = match[1] ?? ''
    const line = text.slice(text.lastIndexOf('\n', match.index) + 1, match.index)
    const leads = line.trim() === '' || text.slice(copied, match.index).trim() === ''
    if (!leads && name !== 'tool') continue
    const end = take(commands, name, text, COMMAND.lastIndex)
    if (end === undefined) continue
    commands.rest += text.slice(copied, match.index)
    copied = COMMAND.lastIndex = end
  }
  commands.rest = (commands.rest + text.slice(copied)).trim()
  return commands
}

/** Puts one command's argument into `commands`; answers where it ends, or undefined if it cannot be read. */
function take(commands: DemoCommands, command: string, text: string, from: number): number | undefined {
  const argument = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = from
    return pattern.exec(text)
  }
  const whole = (match: RegExpExecArray) => match.index + match[0].length
  if (command === 'reason') {
    const match = argument(/[^\S\n]+([^\n]+)/y)
    if (match === null) return undefined
    commands.reason.push(match[1]?.trim() ?? '')
    return whole(match)
  }
  if (command === 'tool' || command === 'malformed') {
    const match = argument(/[^\S\n]+([^\s{]+)[^\S\n]*/y)
    if (match?.[1] === undefined) return undefined
    const start = whole(match)
    const end = command === 'tool' && text[start] === '{' ? endOfObject(text, start) : start
    const input = command === 'malformed' ? '{"unfinished": ' : text.slice(start, end) || '{}'
    commands.tools.push({ name: match[1], input })
    return end
  }
  if (command === 'fail') {
    const match = argument(/[^\S\n]+(auth|quota|rate|overload|invalid|content|mid)\b(?:[^\S\n]+(\d+)(?!\S))?/y)
    if (match === null) return undefined
    commands.fail = { kind: match[1] as DemoFailure, times: times(match[2]) }
    return whole(match)
  }
  const match = argument(/(?:[^\S\n]+(\d+)(?!\S))?/y)
  const number = match?.[1] === undefined ? undefined : Number(match[1])
  if (match === null) return undefined
  if (command === 'overflow') commands.overflow = { times: times(match[1]) }
  else if (command === 'stall')
    commands.stallMs = number === undefined ? Number.POSITIVE_INFINITY : Math.min(number, LONGEST_MS)
  else if (number === undefined) return undefined
  else if (command === 'length') commands.words = Math.min(number, MOST_WORDS)
  else commands.slowMs = Math.min(number, LONGEST_MS)
  return whole(match)
}

function times(digits: string | undefined): number {
  return digits === undefined ? Number.POSITIVE_INFINITY : Number(digits)
}

/** Index after the brace that closes the object at `start`; braces in strings do not count. Unclosed: end of the line. */
function endOfObject(text: string, start: number): number {
  let depth = 0
  let quoted = false
  for (let at = start; at < text.length; at++) {
    const character = text[at]
    if (quoted) {
      if (character === '\\') at++
      else if (character === '"') quoted = false
    } else if (character === '"') quoted = true
    else if (character === '{') depth++
    else if (character === '}' && --depth === 0) return at + 1
  }
  const newline = text.indexOf('\n', start)
  return newline === -1 ? text.length : newline
}
