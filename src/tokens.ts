// Token counts as they are kept. A provider may send any number; what is kept can be added up, stored and shown without loss: as a JSON
// number, in a bigint column, as SafeInt. So a count ends where whole numbers do, and so does a sum of counts.

export const tokensMax = Number.MAX_SAFE_INTEGER

/** A provider's count as it is kept: a whole number from 0 to `tokensMax`, whatever was sent. */
export function tokenCount(sent: unknown): number {
  if (typeof sent !== 'number' || !(sent > 0)) return 0
  return Math.min(Math.round(sent), tokensMax)
}

/** Two counts together. A sum that has reached the end stays there. */
export const sumOfTokens = (a: number, b: number): number => Math.min(a + b, tokensMax)
