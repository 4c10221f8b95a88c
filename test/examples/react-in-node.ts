// The React example as a browser would run it, in a document without one. Prints what stands in the page when the answer is there.
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Window } from 'happy-dom'
import WebSocket from 'ws'

const url = new URL('graphql', process.argv[2]).href
const page = new Window({ url })
const globals = { window: page, document: page.document, navigator: page.navigator, location: page.location, WebSocket }
for (const [name, value] of Object.entries(globals))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true })
const document = page.document as unknown as Document
// Copied into the project beside this file.
const main = pathToFileURL(resolve('apollo-react/main.tsx')).href
const { mount } = (await import(main)) as { mount(element: Element, url: string): () => void }

const root = document.createElement('div')
document.body.append(root)
const unmount = mount(root, url)

async function found<T>(what: string, look: () => T | null | undefined | false): Promise<T> {
  for (const limit = Date.now() + 20_000; ; ) {
    const now = look()
    if (now) return now
    if (Date.now() > limit) throw new Error(`waited for ${what}: ${root.innerHTML}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const button = (name: string) => [...root.querySelectorAll('button')].find((one) => one.textContent === name)
;(await found('the application', () => button('New session'))).click()
await found('a live session', () => root.querySelector('[role=status]')?.textContent === 'LIVE')
const input = await found('the input', () => root.querySelector('input'))
// React listens to the setter of the element's class, not to that of the one instance.
Object.getOwnPropertyDescriptor(Object.getPrototypeOf(input), 'value')!.set!.call(input, '/slow 20 Hello from React')
input.dispatchEvent(new page.Event('input', { bubbles: true }) as unknown as Event)
;(await found('the button', () => button('Send'))).click()
await found('the answer', () =>
  [...root.querySelectorAll('ol li')].some(
    (one) => one.textContent?.includes('from React') && one.textContent.includes('demo/echo'),
  ),
)
await found('the list', () => root.querySelector('ul')?.textContent?.includes('From React: IDLE'))
for (const line of root.querySelectorAll('li')) console.log(line.textContent)
unmount()
await page.happyDOM.close()
process.exit()
