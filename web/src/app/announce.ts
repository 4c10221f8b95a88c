import { createStore } from '../api/store.ts'

/** What a screen reader is told next; a repeated text is told again. */
export const announcement = createStore<{ text: string; count: number }>({ text: '', count: 0 })

export function announce(text: string): void {
  announcement.set({ text, count: announcement.get().count + 1 })
}
