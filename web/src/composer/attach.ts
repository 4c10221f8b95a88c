import type { Attached } from './outbox.ts'

/** The server takes 20 MB of attachments with a prompt; base64 makes 4 of 3 bytes. */
export const attachmentBytesMax = 15_000_000

/** A file as a data: URL. Rejects when it cannot be read. */
export function attached(file: File): Promise<Attached> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onerror = () => reject(new Error(`${file.name} could not be read`))
    reader.onload = () => {
      const mediaType = file.type || 'application/octet-stream'
      const data = String(reader.result)
      resolve({
        name: file.name || 'pasted',
        mediaType,
        // A browser leaves the type out when it does not know it.
        url: data.replace(/^data:[^;,]*/, `data:${mediaType}`),
      })
    }
    reader.readAsDataURL(file)
  })
}
