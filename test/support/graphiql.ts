import type { Page } from 'playwright-core'
import { expect, vi } from 'vitest'

// GraphiQL as a person uses it, in the tests' browser. What is typed or pressed while it is still being set up it may lose, so each of these
// waits for what a person would see.

/** The result pane as a reader sees it; where it wraps a line does not matter. */
export const resultOf = async (page: Page): Promise<string> =>
  // biome-ignore lint/performance/useDomNodeTextContent: the editor's lines stand in the DOM in another order than on the screen
  (await page.locator('.graphiql-response').innerText()).replace(/\s+/g, ' ')

/**
 * Presses the button that executes. A named operation is one of several in the document: the button has a menu of them only when the editor
 * has understood the document, and pressed before that it would send at once. Timeout in ms.
 */
export async function execute(page: Page, operation?: string, timeout = 30_000): Promise<void> {
  if (operation === undefined) return page.locator('.graphiql-execute-button').click({ timeout })
  await page.locator('.graphiql-execute-button[aria-haspopup="menu"]').click({ timeout })
  await page.getByRole('menuitem', { name: operation, exact: true }).click({ timeout })
}

/** Puts the text in the place of what stands in the editor (a selector), and again where it does not come to be seen; `sign` is a word of it. */
export async function paste(page: Page, editor: string, text: string, sign: string): Promise<void> {
  const place = page.locator(editor).first()
  await vi.waitFor(
    async () => {
      await place.locator('.view-lines').first().click()
      await page.keyboard.press('ControlOrMeta+A')
      await page.evaluate((text) => navigator.clipboard.writeText(text), text)
      await page.keyboard.press('ControlOrMeta+V')
      await page.keyboard.press('ControlOrMeta+Home')
      await expect.poll(() => place.textContent(), { timeout: 3000 }).toContain(sign)
    },
    { timeout: 30_000 },
  )
}
