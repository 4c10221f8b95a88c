/** The first words of a prompt, as the title of a session that was given none. */
export function titleFrom(prompt: string, most = 60): string {
  const line = prompt.trim().replace(/\s+/g, ' ')
  if (line.length <= most) return line
  const cut = line.slice(0, most)
  return `${cut.slice(0, cut.lastIndexOf(' ') > 20 ? cut.lastIndexOf(' ') : most).trimEnd()}…`
}
