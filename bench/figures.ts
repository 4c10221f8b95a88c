/** The value below which this part (0 to 1) of them lies. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}
export const median = (values: readonly number[]) => quantile(values, 0.5)

/** A line of the report. */
export const say = (...line: unknown[]) => console.log(...line)
