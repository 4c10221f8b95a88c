import type { Check } from '../check.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import type { Socket } from '../websocket.ts'
import type { World } from '../world.ts'

interface Shown {
  id: string
  title: string | null
  status: string
  seq: number
}

/** `sessionActivity`, of which only the check's own session counts; others may move meanwhile. */
async function watchActivity(world: World, id: string): Promise<{ socket: Socket; shown: () => Shown[] }> {
  const socket = await world.socket()
  socket.send({
    type: 'subscribe',
    id: 'activity',
    payload: { query: 'subscription { sessionActivity { id title status seq } }' },
  })
  const shown = () =>
    socket.received.all
      .filter((message) => message.type === 'next')
      .map(({ payload }) => payload.data.sessionActivity as Shown)
      .filter((item) => item.id === id)
  // It is live only: whether it has begun is seen by what it tells.
  let tries = 0
  do {
    await rename(world, id, `try ${++tries}`)
    await socket.received.until('the first item', () => shown().length > 0, 1000).catch(() => {})
  } while (shown().length === 0 && tries < 15)
  expectThat('items after a change', shown().length > 0, 'at least one', shown())
  return { socket, shown }
}

const rename = (world: World, id: string, title: string) =>
  world.ask(
    'mutation ($id: ID!, $title: String) { updateSession(input: { sessionId: $id, title: $title }) { __typename } }',
    { id, title },
  )

export const activityChecks: Check[] = [
  {
    id: 'C-ACT-01',
    title: 'sessionActivity tells of a changed session with its committed state',
    async run(world) {
      const id = await world.session()
      const { socket, shown } = await watchActivity(world, id)
      await rename(world, id, 'committed')
      await socket.received.until('an item with the title', () => shown().some(({ title }) => title === 'committed'))
      expectEqual('its seq', shown().at(-1)!.seq, await world.seq(id))
    },
  },
  {
    id: 'C-ACT-02',
    title: 'bursts may be merged, but the last state is never left out',
    async run(world) {
      const id = await world.session()
      const { socket, shown } = await watchActivity(world, id)
      for (let round = 0; round < 5; round++) {
        for (let n = 0; n < 10; n++) await rename(world, id, `burst ${round} ${n}`)
        const seq = await world.seq(id)
        await socket.received.until('an item with the last state', () => shown().at(-1)?.seq === seq, 8000)
        expectEqual('its title', shown().at(-1)!.title, `burst ${round} 9`)
      }
      const all = shown().map(({ seq }) => seq)
      expectEqual(
        'seqs, which only grow',
        all,
        [...all].sort((a, b) => a - b),
      )
    },
  },
  {
    id: 'C-ACT-03',
    title: 'a prompt shows its session RUNNING, and in the end IDLE',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const { socket, shown } = await watchActivity(world, id)
      await world.admit(id, '/slow 60 slow enough to be seen running')
      await socket.received.until('RUNNING', () => shown().some(({ status }) => status === 'RUNNING'))
      const log = await world.rest(id)
      await socket.received.until(
        'IDLE at the end',
        () => shown().at(-1)?.seq === log.at(-1)!.seq && shown().at(-1)?.status === 'IDLE',
      )
    },
  },
]
