// A process that projects the events it is given on its input and says what they change. Whatever is not a function of the event alone
// (clock, chance) throws here.
import { text } from 'node:stream/consumers'
import { type PlacedEvent, project } from '../../src/project.ts'

async function main(): Promise<void> {
  const events = JSON.parse(await text(process.stdin)) as PlacedEvent[]
  const never = (what: string) => () => {
    throw new Error(`project asks for ${what}`)
  }
  const RealDate = Date
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args) => (args.length === 0 ? never('the time')() : Reflect.construct(target, args)),
    apply: never('the time'),
    get: (target, name) => (name === 'now' ? never('the time') : Reflect.get(target, name)),
  })
  Math.random = never('chance')
  performance.now = never('the time')
  crypto.randomUUID = never('an id')
  crypto.getRandomValues = never('chance')
  const changes = events.map((event) => project(event))
  globalThis.Date = RealDate
  process.stdout.write(JSON.stringify(changes))
}

main().catch((error) => {
  console.error(error.message)
  process.exitCode = 1
})
