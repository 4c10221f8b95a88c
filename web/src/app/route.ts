import { useSyncExternalStore } from 'react'

/** Which page is shown. In the address behind `#`, so that the server needs no rule for it and a page can be bookmarked. */
export type Route = { page: 'new' } | { page: 'session'; id: string } | { page: 'inbox' } | { page: 'recovery' }

export function parseRoute(hash: string): Route {
  const [page, id] = hash.replace(/^#\/?/, '').split('/')
  if (page === 'session' && id) return { page, id: decodeURIComponent(id) }
  if (page === 'inbox' || page === 'recovery') return { page }
  return { page: 'new' }
}

export const hrefOf = (route: Route): string =>
  route.page === 'session' ? `#/session/${encodeURIComponent(route.id)}` : `#/${route.page}`

export function go(route: Route): void {
  location.hash = hrefOf(route)
}

const subscribe = (listener: () => void) => {
  window.addEventListener('hashchange', listener)
  return () => window.removeEventListener('hashchange', listener)
}

export function useRoute(): Route {
  return parseRoute(useSyncExternalStore(subscribe, () => location.hash))
}
