import type { AttachmentView } from '../../../src/client/view.ts'
import { Icon } from '../parts/Icon.tsx'

/** Images that cannot run anything. SVG is left out: as a picture it is inert, but what is it worth showing for. */
const shown = /^data:image\/(png|jpe?g|gif|webp|avif)[;,]/i

/** Attachments as they were sent. Only data that is here already is shown; what lies elsewhere is named and fetched by nobody but the user. */
export function Attachments({ attachments }: { attachments: readonly AttachmentView[] }) {
  if (attachments.length === 0) return null
  return (
    <ul className="attachments" aria-label="Attachments">
      {attachments.map(({ name, mediaType, url }, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the list of a message never changes
        <li key={index} className="attachment">
          {shown.test(url) ? <img src={url} alt={name} /> : <Icon name="file" />}
          <span className="attachment-name">{name}</span>
          <span className="attachment-type">{mediaType}</span>
          {url.startsWith('https:') && (
            <a
              href={url}
              target="_blank"
              rel="noopener noreferrer nofollow"
              aria-label={`Open ${name} from ${hostOf(url)}`}
            >
              {hostOf(url)}
            </a>
          )}
        </li>
      ))}
    </ul>
  )
}

const hostOf = (url: string) => (URL.canParse(url) ? new URL(url).host : 'elsewhere')
