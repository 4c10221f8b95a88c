import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDataDir } from '../src/embedded/place.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'holdfast-place-'))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

it('DB-18: a data directory is made with all that is missing above it', () => {
  const made = openDataDir(join(dir, 'a/b c/ü'))
  expect(statSync(made).isDirectory()).toBe(true)
  expect(openDataDir(made)).toBe(made)
})

it('DB-18: one that cannot be made is refused at once, with the setting to change', () => {
  writeFileSync(join(dir, 'file'), '')
  for (const place of [join(dir, 'file'), join(dir, 'file/below'), '/proc/holdfast', '/proc/holdfast/below'])
    expect(() => openDataDir(place), place).toThrow(/cannot be used .* HOLDFAST_DATA_DIR/s)
})
