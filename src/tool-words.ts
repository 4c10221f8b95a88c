// What the model, and with it the tenant, is told of what a tool threw.

import { getSystemErrorMap } from 'node:util'
import { fieldOf, wordsOf } from './thrown.ts'

/**
 * What a tool, or a rule of one, threw, in words for the model: its own message as it is. What it did not say itself but let through, an error of the system, of Node's
 * HTTP client or of a Prisma client of its own, is told by its code, as its text names paths and addresses. Never throws.
 */
export function toolWords(thrown: unknown): string {
  const message = wordsOf(thrown)
  const code = fieldOf(thrown, 'code')
  const name = fieldOf(thrown, 'name')
  if (typeof name === 'string' && /^PrismaClient\w{1,40}$/.test(name))
    return `${name}${typeof code === 'string' && /^P\d{4}$/.test(code) ? ` ${code}` : ''}`
  if (typeof code !== 'string' || !/^[A-Z][A-Z0-9_]{2,60}$/.test(code)) return message
  const call = fieldOf(thrown, 'syscall')
  const isSystems =
    typeof call === 'string' && (message.startsWith(`${code}: `) || message.startsWith(`${call} ${code}`))
  const isOfNode = /^UND_ERR_/.test(code) || code.endsWith('MODULE_NOT_FOUND')
  if (!isSystems && !isOfNode) return message
  const errno = fieldOf(thrown, 'errno')
  const meaning = typeof errno === 'number' ? getSystemErrorMap().get(errno)?.[1] : undefined
  // Of a process that could not be started the call holds the command.
  const verb = isSystems ? /^[a-z]{2,20}/.exec(call)?.[0] : undefined
  return `${code}${meaning ? `: ${meaning}` : ''}${verb ? `, ${verb}` : ''}`
}
