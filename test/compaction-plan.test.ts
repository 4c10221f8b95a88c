import { describe, expect, it } from 'vitest'
import { planCompaction } from '../src/runner/compaction.ts'
import type { History, HistoryMessage } from '../src/runner/history.ts'

const message = (seq: number, kind: 'USER' | 'ASSISTANT', characters: number) =>
  ({
    id: `m${seq}`,
    seq,
    kind,
    status: kind === 'USER' ? null : 'ENDED',
    hidden: false,
    text: 'x'.repeat(characters),
    attachments: [],
    parts: [],
    toolCalls: [],
  }) as unknown as HistoryMessage

const history = (...messages: HistoryMessage[]): History => ({
  instructions: null,
  messages,
  summary: null,
  compactions: 0,
})

const seqs = (messages: HistoryMessage[]) => messages.map(({ seq }) => seq)

describe('what a compaction summarises, and what stays', () => {
  it('COMP-05: older messages go, the recent ones within a quarter of the context stay', () => {
    const plan = planCompaction(
      history(message(2, 'USER', 4000), message(5, 'ASSISTANT', 4000), message(9, 'USER', 400)),
      4000,
      true,
    )
    expect(seqs(plan!.older)).toEqual([2, 5])
    expect(plan!.tailSeq).toBe(9)
  })
  it('a prompt that waits for its answer stays, however long', () => {
    const plan = planCompaction(
      history(message(2, 'USER', 10), message(5, 'ASSISTANT', 10), message(9, 'USER', 40_000)),
      4000,
      true,
    )
    expect(plan!.tailSeq).toBe(9)
    expect(planCompaction(history(message(2, 'USER', 40_000)), 4000, true)).toBeNull()
  })
  it('a long activity of one prompt is compacted from its beginning on; its last message stays', () => {
    const steps = Array.from({ length: 20 }, (_, n) => message(10 + n, 'ASSISTANT', 800))
    const plan = planCompaction(history(message(2, 'USER', 100), ...steps), 4000, true)
    // A quarter of 4000 tokens holds four of 204, not five.
    expect(seqs(plan!.older)).toEqual([2, ...steps.slice(0, -4).map(({ seq }) => seq)])
    expect(plan!.tailSeq).toBe(26)
  })
  it('COMP-14: with nothing there, there is nothing to summarise; a single exchange that is over goes whole', () => {
    expect(planCompaction(history(), 4000, false)).toBeNull()
    const plan = planCompaction(history(message(2, 'USER', 10), message(5, 'ASSISTANT', 10)), 4000, false)
    expect(seqs(plan!.older)).toEqual([2, 5])
    expect(plan!.tailSeq).toBe(6)
  })
})
