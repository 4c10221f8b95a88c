import { expect, it } from 'vitest'
import { checkAttachment } from '../src/runner/attachment.ts'

const image = (body: string) => ({ name: 'a.png', mediaType: 'image/png', url: `data:image/png;base64,${body}` })

it('ADM-18: base64 is checked in full, also of an attachment of many megabytes', async () => {
  expect(await checkAttachment(image('A'.repeat(28_000_000)))).toEqual({ bytes: 21_000_000 })
  expect(await checkAttachment(image(`${'A'.repeat(28_000_000)}*AAA`))).toHaveProperty('rule')
  expect(await checkAttachment(image('QUJD'))).toEqual({ bytes: 3 })
  for (const body of ['QUI=', 'QQ==', '']) expect(await checkAttachment(image(body)), body).toHaveProperty('bytes')
  for (const body of ['QUJ', 'QQ=', '=QQQ', 'QU=D', 'QQ===', 'QU JD', 'QU-_'])
    expect(await checkAttachment(image(body)), body).toHaveProperty('rule')
})

it('ADM-17: an https: URL passes, unless it holds a password; no other kind does', async () => {
  const at = (url: string) => checkAttachment({ name: 'a', mediaType: 'text/plain', url })
  expect(await at('https://example.org/a.txt')).toHaveProperty('bytes')
  for (const url of ['https://user:secret@example.org/', 'http://example.org/', 'file:///etc/passwd', 'https://', ''])
    expect(await at(url), url).toHaveProperty('rule')
})
