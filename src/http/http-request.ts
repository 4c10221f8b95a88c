import { IncomingMessage } from 'node:http'

/**
 * A request that asks to upgrade to anything but a WebSocket is an ordinary one: its sender is ready to be answered without (RFC 9110, section 7.8). Java's
 * HttpClient and `curl --http2` ask for h2c in their first request, and Node would not read on behind it.
 */
export class HttpRequest extends IncomingMessage {
  /** Not initialized here: the constructor of the base assigns `upgrade` first. */
  declare private asked: unknown

  get upgrade(): boolean {
    return Boolean(this.asked) && (this.method === 'CONNECT' || /^websocket$/i.test(this.headers.upgrade ?? ''))
  }

  set upgrade(asked: unknown) {
    this.asked = asked
  }
}
