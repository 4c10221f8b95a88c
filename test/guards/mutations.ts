// Mutations of predicates: a condition that always or never holds, a comparison that is turned, a look that is left out. Found in the syntax
// tree of TypeScript and in the text of SQL; pure.

import { parseSync } from 'vite'

export interface Mutation {
  /** Where it stands in the text. */
  start: number
  end: number
  replace: string
  kind: string
}

const turned: Record<string, string> = {
  '===': '!==',
  '!==': '===',
  '=': '<>',
  '<>': '=',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  'IS NULL': 'IS NOT NULL',
  'IS NOT NULL': 'IS NULL',
  'NOT EXISTS': 'EXISTS',
}

/** What says whose row it is, inside `where` and `key`. */
const whose = new Set([
  'sessionId',
  'tenant',
  'executionId',
  'owner',
  'messageId',
  'callId',
  'kind',
  'state',
  'resolvedAt',
])
/** What makes an append conditional. */
const fences = new Set(['fence', 'expectedSeq', 'unclaimed', 'owner', 'phases', 'expiresAt', 'expired', 'executionId'])

type Node = { type: string; start: number; end: number } & Record<string, unknown>
const isNode = (value: unknown): value is Node => typeof (value as Node | null)?.type === 'string'

/** Of a TypeScript source, with the SQL in its templates. */
export function mutationsOfSource(file: string, text: string): Mutation[] {
  const found: Mutation[] = []
  const of = ({ start, end }: Node) => text.slice(start, end)
  const put = (at: { start: number; end: number }, replace: string, kind: string) =>
    found.push({ start: at.start, end: at.end, replace, kind })
  const leaves = (node: unknown): boolean =>
    isNode(node) &&
    (['ReturnStatement', 'ContinueStatement'].includes(node.type) ||
      (node.type === 'BlockStatement' && (node.body as Node[]).length > 0 && leaves((node.body as Node[]).at(-1))))

  function visit(node: Node, within: string): void {
    const { left, right, operator, test, consequent, alternate } = node as unknown as Record<
      string,
      Node | undefined
    > & { operator: never }
    if (node.type === 'LogicalExpression' && (operator as string) !== '??') {
      put(node, of(left!), `without ${operator} ${of(right!)}`)
      put(node, of(right!), `without ${of(left!)} ${operator}`)
    }
    if (node.type === 'BinaryExpression' && turned[operator as string] !== undefined)
      put(node, `${of(left!)} ${turned[operator as string]} ${of(right!)}`, 'turned')
    if (node.type === 'IfStatement') {
      put(test!, `!(${of(test!)})`, 'negated')
      if (leaves(consequent) && !alternate) put(node, ';', 'left out')
    }
    if (node.type === 'ConditionalExpression') put(test!, `!(${of(test!)})`, 'negated')
    if (node.type === 'Property' && isNode(node.key)) {
      const name = of(node.key)
      if (within === 'where' || within === 'key' ? whose.has(name) : within === 'request' && fences.has(name))
        put(node, `...{}`, `without ${name}`)
    }
    if (node.type === 'TemplateLiteral' && /\b(SELECT|UPDATE|DELETE)\b/.test(of(node)))
      found.push(...mutationsOfSql(text, node.start, node.end))
    for (const [name, child] of Object.entries(node)) {
      const children = Array.isArray(child) ? child : [child]
      for (const each of children) if (isNode(each)) visit(each, scopeOf(node, name, within))
    }
  }
  /** Is an object literal in there a condition (`where`, `key`), an append or its fence (`request`)? */
  function scopeOf(node: Node, name: string, within: string): string {
    if (node.type === 'Property' && name === 'value' && isNode(node.key)) {
      const key = of(node.key)
      if (key === 'where' || key === 'key') return key
      return key === 'fence' ? 'request' : within === 'where' ? within : ''
    }
    if (node.type === 'CallExpression' && name === 'arguments')
      return /append/i.test(of(node.callee as Node)) ? 'request' : ''
    if (node.type === 'VariableDeclarator' && name === 'init')
      return /: (AppendRequest|Fence)\b/.test(of(node.id as Node)) ? 'request' : ''
    return ['ArrowFunctionExpression', 'FunctionDeclaration'].includes(node.type) ? '' : within
  }
  visit(parseSync(file, text).program as unknown as Node, '')
  return found
}

const begins = /\b(WHERE|AND|OR|ON|WHEN|IF)\b/g
const ends =
  /[(),;]|\b(AND|OR|ORDER|LIMIT|GROUP|FOR|RETURNING|UNION|THEN|WHERE|JOIN|LEFT|CROSS|OFFSET|LOOP|AS|ELSE|END|DO)\b/g
const comparisons = /<>|<=|>=|(?<![-=:<>])[=<>](?![=>])|\bIS (?:NOT )?NULL\b|\bNOT EXISTS\b/

/** Of the conditions of the SQL that stands in `text` from `from` to `to`. */
export function mutationsOfSql(text: string, from: number, to: number): Mutation[] {
  const found: Mutation[] = []
  const sql = blanked(text.slice(from, to))
  for (const begun of sql.matchAll(begins)) {
    const [word] = begun
    if (word === 'ON' && /^\s+CONFLICT/.test(sql.slice(begun.index + 2))) continue
    // What is caught is no condition; the blanks are a comment's.
    if (word === 'WHEN' && /\bEXCEPTION[\s_]+$/.test(sql.slice(0, begun.index))) continue
    const first = begun.index + word.length
    const last = endOf(sql, first)
    const start = from + first + sql.slice(first, last).search(/\S|$/)
    const end = from + sql.slice(0, last).trimEnd().length
    if (end <= start) continue
    const never = word === 'OR' || word === 'WHEN' || word === 'IF'
    found.push({ start, end, replace: String(!never), kind: `${word} ${!never}` })
    // Outside of parentheses, which hold conditions of their own.
    const flat = flattened(sql.slice(start - from, end - from))
    const compared = comparisons.exec(flat)
    if (compared === null) continue
    const at = start + compared.index
    found.push({ start: at, end: at + compared[0].length, replace: turned[compared[0]]!, kind: `${word} turned` })
  }
  return found
}

/** Of what the tables that are made in `text` accept: a CHECK that holds always, a unique index of other rows. */
export function mutationsOfTables(text: string): Mutation[] {
  const sql = blanked(text)
  const checks = [...sql.matchAll(/\bCHECK \(/g)].map(({ 0: word, index }) => {
    const start = index + word.length
    return { start, end: endOf(sql, start, /[()]/g), replace: 'true', kind: 'CHECK true' }
  })
  const indexes = [...sql.matchAll(/^CREATE UNIQUE INDEX [^;]*;/gm)]
  return [...checks, ...indexes.flatMap(({ 0: index, index: at }) => mutationsOfSql(text, at, at + index.length))]
}

/** Where the condition that begins at `first` ends: at the next word or bracket outside of its own parentheses. */
function endOf(sql: string, first: number, words = ends): number {
  let depth = 0
  for (const { 0: word, index } of sql.slice(first).matchAll(words)) {
    if (word === '(') depth++
    else if (word === ')' && depth > 0) depth--
    else if (depth === 0) return first + index
  }
  return sql.length
}

/** Strings, names, comments and `${…}` as blanks of the same length that no word is found in. */
function blanked(sql: string): string {
  return sql.replaceAll(/--[^\n]*|'(?:[^']|'')*'|"[^"]*"|\$\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|`/g, (one) =>
    '_'.repeat(one.length),
  )
}

/** What stands in parentheses as blanks. */
function flattened(sql: string): string {
  let depth = 0
  return [...sql]
    .map((char) => {
      if (char === ')') depth--
      const seen = depth > 0 ? '_' : char
      if (char === '(') depth++
      return seen
    })
    .join('')
}
