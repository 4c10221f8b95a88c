import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Served, serveLog } from '../support/served.ts'

// The files that the console is made of: how large, and how they are served.

const built = fileURLToPath(new URL('../../dist/web', import.meta.url))
interface Chunk {
  file: string
  isEntry?: boolean
  imports?: string[]
  dynamicImports?: string[]
}
const manifest: Record<string, Chunk> = JSON.parse(readFileSync(join(built, '.vite/manifest.json'), 'utf8'))

/** The JavaScript that these chunks need, and what those need. */
function scriptsOf(names: string[], found = new Set<string>()): Set<string> {
  for (const name of names) {
    const chunk = manifest[name]!
    if (found.has(chunk.file)) continue
    if (chunk.file.endsWith('.js')) found.add(chunk.file)
    scriptsOf(chunk.imports ?? [], found)
  }
  return found
}
const zipped = (files: Iterable<string>) =>
  [...files].reduce((sum, file) => sum + gzipSync(readFileSync(join(built, file))).length, 0)

let served: Served
beforeAll(async () => {
  served = await serveLog({ consoleAt: built })
})
afterAll(() => served.close())

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(served.server.url.slice(0, -1) + path, { headers })

describe('the console as files', () => {
  it('a first load takes less than 300 KB of JavaScript, compressed, also when it shows a conversation', () => {
    const entry = Object.keys(manifest).find((name) => manifest[name]!.isEntry)!
    const first = scriptsOf([entry])
    const conversation = scriptsOf([entry, ...Object.keys(manifest).filter((name) => name.endsWith('/Rendered.tsx'))])
    expect(conversation.size).toBeGreaterThan(first.size)
    console.log(`first load ${zipped(first)} bytes of JavaScript (gzip), with a conversation ${zipped(conversation)}`)
    expect(zipped(conversation)).toBeLessThan(300_000)
  })

  it('the page is asked for anew and answers 304 when it is the same; what has a hash in its name never is', async () => {
    const page = await get('/')
    expect(page.status).toBe(200)
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(page.headers.get('cache-control')).toBe('no-cache')
    const etag = page.headers.get('etag')!
    const again = await get('/', { 'if-none-match': etag })
    expect(again.status).toBe(304)
    expect(await again.text()).toBe('')
    const html = await page.text()
    const assets = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path!)
    expect(assets.length).toBeGreaterThan(1)
    for (const path of assets) {
      const asset = await get(path, { 'accept-encoding': 'gzip' })
      expect(asset.status).toBe(200)
      expect(asset.headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
      expect(asset.headers.get('content-encoding')).toBe('gzip')
      expect(await asset.text()).toBe(readFileSync(join(built, path), 'utf8'))
      expect((await get(path, { 'accept-encoding': 'br' })).headers.get('content-encoding')).toBe('br')
      expect((await get(path, { 'accept-encoding': 'identity' })).headers.get('content-encoding')).toBe(null)
    }
  })

  it('SEC-12: its policy allows no script and no style but its own files, and the page has none within', async () => {
    const page = await get('/')
    const policy = page.headers.get('content-security-policy')!
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain("script-src 'self';")
    expect(policy).toContain("style-src 'self';")
    expect(policy).not.toContain('unsafe')
    expect(policy).not.toContain('*')
    const html = await page.text()
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?:/)
  })

  it('no path leads out of its files', async () => {
    for (const path of [
      '/assets/',
      '/.vite/manifest.json',
      '/%2e%2e/server.js',
      '/assets/..%2f..%2fserver.js',
      '/index.html',
      '//etc/passwd',
    ])
      expect((await get(path)).status, path).toBe(404)
  })
})
