import { buildStale } from '../../scripts/build.mjs'

/** What `npm start` serves is made before the tests look at it. */
export default async function setup(): Promise<void> {
  await buildStale()
}
