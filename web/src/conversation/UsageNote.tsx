import type { UsageView } from '../../../src/client/view.ts'

const number = new Intl.NumberFormat()

/** Tokens of the whole session. */
export function UsageNote({ usage }: { usage: UsageView }) {
  const { inputTokens, outputTokens, reasoningTokens, cachedInputTokens } = usage
  const details = [
    `${number.format(inputTokens)} input, ${number.format(cachedInputTokens)} of them cached`,
    `${number.format(outputTokens)} output, ${number.format(reasoningTokens)} of them reasoning`,
  ].join('; ')
  return (
    <span className="usage" title={`Tokens: ${details}`}>
      {number.format(inputTokens)} in · {number.format(outputTokens)} out
    </span>
  )
}
