// Bounds of a tool's output, and the loop guard's comparison: pure.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { JsonValue } from '../src/events.ts'
import { canonical, repetition } from '../src/runner/tools/loop-guard.ts'
import { boundOutput, boundText, isPartList } from '../src/runner/tools/output.ts'

const lines = (count: number) => Array.from({ length: count }, (_, n) => `line ${n + 1}`).join('\n')
/** A final newline ends a line and begins none. */
const linesOf = (text: string) => text.split('\n').length - (text.endsWith('\n') ? 1 : 0)
const bytesOf = (text: string) => Buffer.byteLength(text, 'utf8')
const kib50 = 50 * 1024

describe('TOOL-14: an output within the bounds stays untouched', () => {
  it.each([
    ['2000 lines', lines(2000)],
    ['exactly 50 KiB', 'x'.repeat(kib50)],
    ['exactly 50 KiB of two-byte characters', 'ä'.repeat(kib50 / 2)],
    ['nothing', ''],
  ])('%s', (_what, output) => {
    expect(boundOutput(output)).toBe(output)
  })

  it('JSON of any shape, as it is', () => {
    expect(boundOutput({ a: [1, null, { b: 'c' }] })).toEqual({ a: [1, null, { b: 'c' }] })
    expect(boundOutput(undefined)).toBe('')
    expect(boundOutput(null)).toBe('')
    expect(boundOutput(new Date(0))).toBe('1970-01-01T00:00:00.000Z')
  })
})

describe('TOOL-14: an output beyond them keeps head and tail, with a marker that says how much was left out', () => {
  it('2001 lines', () => {
    const bounded = boundOutput(lines(2001)) as string
    expect(bounded.startsWith(`${lines(1000)}\n[... `)).toBe(true)
    expect(bounded).toMatch(/\[\.\.\. \d+ bytes, 1 lines? left out \.\.\.\]/)
    expect(bounded.endsWith('\nline 2000\nline 2001')).toBe(true)
    expect(bounded).not.toContain('line 1001\n')
  })

  it('50 KiB and one byte', () => {
    const bounded = boundOutput(`${'a'.repeat(kib50 / 2)}X${'b'.repeat(kib50 / 2)}`) as string
    expect(bounded).toBe(`${'a'.repeat(kib50 / 2)}\n[... 1 bytes left out ...]\n${'b'.repeat(kib50 / 2)}`)
  })

  it('one huge object becomes a bounded text of its JSON', () => {
    const bounded = boundOutput({ list: Array.from({ length: 20_000 }, (_, n) => n) }) as string
    expect(bounded.startsWith('{"list":[0,1,2,')).toBe(true)
    expect(bounded.endsWith('19998,19999]}')).toBe(true)
    expect(bounded).toMatch(/\[\.\.\. \d+ bytes left out \.\.\.\]/)
  })

  it('whatever text: never more than the bounds and the marker, never half a character, head and tail its own', () => {
    const text = fc
      .array(fc.constantFrom('a', 'ä', '€', '😀', '\n', 'word '), { maxLength: 400 })
      .map((all) => all.join(''))
    fc.assert(
      fc.property(
        text,
        fc.integer({ min: 2, max: 20 }),
        fc.integer({ min: 8, max: 200 }),
        (whole, linesMax, bytesMax) => {
          const bounded = boundText(whole, linesMax, bytesMax)
          if (linesOf(whole) <= linesMax && bytesOf(whole) <= bytesMax) return void expect(bounded).toBe(whole)
          const marker = /\n\[\.\.\. (\d+) bytes(?:, \d+ lines)? left out \.\.\.\]\n/.exec(bounded)!
          const head = bounded.slice(0, marker.index)
          const tail = bounded.slice(marker.index + marker[0].length)
          expect(whole.startsWith(head)).toBe(true)
          expect(whole.endsWith(tail)).toBe(true)
          expect(bytesOf(head) + bytesOf(tail)).toBeLessThanOrEqual(bytesMax)
          expect(head.split('\n').length + linesOf(tail)).toBeLessThanOrEqual(Math.max(2, linesMax) + 1)
          expect(bytesOf(head) + bytesOf(tail) + Number(marker[1])).toBe(bytesOf(whole))
          expect(bounded).not.toContain('\ufffd')
        },
      ),
      // Empty last lines: the tail of the lines is empty, and is the tail all the same.
      { examples: [[`${'word '.repeat(40)}${'\n'.repeat(9)}`, 3, 8]] },
    )
  })
})

describe('TOOL-15: an output of text and media parts', () => {
  const media = (n: number) => ({
    type: 'media',
    data: Buffer.from(`image ${n}`).toString('base64'),
    mediaType: 'image/png',
  })
  const text = (value: string) => ({ type: 'text', text: value })

  it('media pass whole and the order is kept, while the texts are bounded together', () => {
    const output = [media(1), text('x'.repeat(40_000)), media(2), text(`${'y'.repeat(40_000)}end`), media(3)]
    const bounded = boundOutput(output) as { type: string; text?: string; data?: string }[]
    expect(bounded.filter(({ type }) => type === 'media')).toEqual([media(1), media(2), media(3)])
    expect(bounded.map(({ type }) => type)).toEqual(['media', 'text', 'media', 'text', 'media'])
    const texts = bounded.map((part) => part.text ?? '').join('')
    expect(texts.startsWith('xxx')).toBe(true)
    expect(texts.endsWith('yend')).toBe(true)
    expect(texts).toMatch(/\[\.\.\. \d+ bytes.* left out \.\.\.\]/)
    expect(bytesOf(texts)).toBeLessThanOrEqual(kib50 + 200)
  })

  it('more media than an append can hold is an error of the tool, which says so', () => {
    const most = { ...media(1), data: 'A'.repeat(32 * 1024 * 1024) }
    expect(() => boundOutput([most, text('a'), media(2)])).toThrow(
      /bytes of media, more than the 33554432 that can be kept/,
    )
  })

  it('within the bounds it stays untouched; a huge media part is no text', () => {
    const output = [text('a'), media(1), text('b'), { ...media(2), data: 'A'.repeat(200_000) }]
    expect(boundOutput(output)).toEqual(output)
  })

  it('however the text is cut into parts, it is bounded', () => {
    const part = fc.oneof(
      fc.record({ lines: fc.integer({ min: 1, max: 900 }), length: fc.integer({ min: 0, max: 60 }) }),
      fc.constant(null),
    )
    const many = fc.oneof(
      fc.array(part, { minLength: 1, maxLength: 12 }),
      fc.array(part, { minLength: 2500, maxLength: 2600 }),
    )
    fc.assert(
      fc.property(many, (shapes) => {
        const output = shapes.map((shape, n) =>
          shape === null
            ? media(n)
            : text(
                Array.from({ length: Math.min(shape.lines, 40_000 / shapes.length) }, () =>
                  'z'.repeat(shape.length),
                ).join('\n'),
              ),
        )
        const bounded = boundOutput(output as JsonValue) as typeof output
        expect(isPartList(bounded)).toBe(true)
        const isMedia = ({ type }: { type: string }) => type === 'media'
        expect(bounded.filter(isMedia)).toEqual(output.filter(isMedia))
        const joined = bounded.flatMap((each) => ('text' in each ? [each.text] : [])).join('\n')
        expect(bytesOf(joined)).toBeLessThanOrEqual(kib50 + 200)
        expect(joined.split('\n').length).toBeLessThanOrEqual(2003)
      }),
      { numRuns: 40 },
    )
  })
})

describe('TOOL-14: an output that is nested without end', () => {
  const nested = (levels: number) => Array.from({ length: levels }).reduce((inner) => [inner], 'core' as unknown)
  const marker = '[nested deeper than 100 levels: left out]'

  it('100 levels are kept', () => {
    expect(boundOutput(nested(100))).toEqual(nested(100))
  })

  it.each([101, 3000, 5000, 100_000])('of %i levels the first 100 are kept, with a text that says so', (levels) => {
    expect(JSON.stringify(boundOutput(nested(levels)))).toBe(`${'['.repeat(100)}"${marker}"${']'.repeat(100)}`)
    expect(boundOutput({ a: nested(levels), b: 'beside' })).toMatchObject({ b: 'beside' })
  })

  it('levels are counted for each place where a value stands, and what says its own JSON is believed', () => {
    const shared = nested(60)
    expect(boundOutput([nested(1), shared, [[shared]]])).toEqual([nested(1), shared, [[shared]]])
    const endless = { toJSON: (): unknown => ({ more: { toJSON: endless.toJSON } }) }
    expect(JSON.stringify(boundOutput(endless))).toContain(marker)
  })

  it('a cycle and a bigint are the errors of the tool', () => {
    const ring: unknown[] = []
    ring.push(ring)
    expect(() => boundOutput(ring)).toThrow(/circular/)
    expect(() => boundOutput({ n: 1n })).toThrow(/BigInt/)
  })
})

it('TOOL-14: what the database refuses is made storable', () => {
  expect(boundOutput({ 'k\u0000': 'a\u0000b\ud800' })).toEqual({ 'k\ufffd': 'a\ufffdb\ufffd' })
})

it('TOOL-10: calls are compared by name and canonical input, and only those in a row count', () => {
  expect(canonical({ b: [1, { d: null, c: 'x' }], a: true })).toBe('{"a":true,"b":[1,{"c":"x","d":null}]}')
  const call = (name: string, input: JsonValue) => ({ name, input })
  const again = call('look', { x: 1, y: 2 })
  const same = call('look', { y: 2, x: 1 })
  expect(repetition([], again)).toBe(1)
  expect(repetition([same, again], same)).toBe(3)
  expect(repetition([same, call('other', { x: 1, y: 2 }), same], again)).toBe(2)
  expect(repetition([same, call('look', { x: 1 }), same], again)).toBe(2)
  expect(repetition([call('look', { x: [1, 2] })], call('look', { x: [2, 1] }))).toBe(1)
})
