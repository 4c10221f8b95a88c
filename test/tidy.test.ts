import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'
import { variables } from '../src/config/variables.ts'

// Reads the source tree and holds it to the design: which room may know which, where facts are written, what the documents name.

const root = normalize(join(import.meta.dirname, '..'))
/** Everything that is or would be tracked, and is there. A copy without git has no more than that, besides what is made here. */
function list(): string[] {
  try {
    const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    return listed.split('\n')
  } catch {
    const made = /^(\.git|node_modules|dist|test-results|\.holdfast)$/
    const inside = readdirSync(root).filter((name) => !made.test(name))
    return inside.flatMap((name) =>
      statSync(join(root, name)).isDirectory()
        ? readdirSync(join(root, name), { recursive: true }).map(
            (path) => `${name}/${String(path).replaceAll('\\', '/')}`,
          )
        : [name],
    )
  }
}
const files = list().filter((file) => file !== '' && statSync(join(root, file), { throwIfNoEntry: false })?.isFile())
const read = (file: string) => readFileSync(join(root, file), 'utf8')

const isGenerated = (file: string) => file.includes('/generated/')
const sources = files.filter((file) => /^src\/.*\.ts$/.test(file) && !isGenerated(file))

/** Text without comments, so that what a comment speaks of counts for nothing. Strings with `//` in them lose their end, which harms no check here. */
const code = (file: string) =>
  read(file)
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/(^|\s)\/\/.*$/gm, '$1')

/** Relative imports, those of types and dynamic ones included. */
function importsOf(file: string): string[] {
  const found = code(file).matchAll(/(?:\bfrom|\bimport\s*\(?)\s*'(\.[^']+)'/g)
  return [...found].map(([, path]) => normalize(join(dirname(file), path!)))
}

type Room = 'roof' | 'schema' | 'recovery' | 'runner' | 'client' | 'ground'
const roofs = new Set(['src/server.ts', 'src/start.ts', 'src/startup-problem.ts'])

function roomOf(file: string): Room {
  if (roofs.has(file) || file.startsWith('src/http/')) return 'roof'
  const room = /^src\/(schema|recovery|runner|client)\//.exec(file)?.[1]
  return (room as Room | undefined) ?? 'ground'
}

/** The arrows of docs/architecture.md. Each room may import itself. */
const arrows: Record<Room, readonly Room[]> = {
  roof: ['schema', 'recovery', 'runner', 'ground'],
  schema: ['runner', 'ground'],
  recovery: ['runner', 'ground'],
  runner: ['ground'],
  client: ['ground'],
  ground: [],
}

describe('the rooms', () => {
  it('imports follow the arrows: roof to schema and recovery, both to the runner, all to the ground, which knows no room', () => {
    expect(sources.length).toBeGreaterThan(50)
    const wrong = sources.flatMap((file) =>
      importsOf(file)
        .filter((target) => roomOf(target) !== roomOf(file) && !arrows[roomOf(file)].includes(roomOf(target)))
        .map((target) => `${file} (${roomOf(file)}) imports ${target} (${roomOf(target)})`),
    )
    expect(wrong).toEqual([])
  })

  it('no file imports itself by way of others, types included', () => {
    const done = new Set<string>()
    const rings: string[] = []
    const walk = (file: string, path: string[]) => {
      if (path.includes(file)) rings.push([...path.slice(path.indexOf(file)), file].join(' -> '))
      if (done.has(file) || path.includes(file)) return
      for (const target of importsOf(file)) if (!isGenerated(target)) walk(target, [...path, file])
      done.add(file)
    }
    for (const file of sources) walk(file, [])
    expect(rings).toEqual([])
  })

  it('every relative import names a file that is there, with its extension', () => {
    const dangling = sources.flatMap((file) =>
      importsOf(file)
        .filter((target) => !existsSync(join(root, target)))
        .map((target) => `${file}: ${target}`),
    )
    expect(dangling).toEqual([])
  })
})

describe('the console', () => {
  const console_ = files.filter((file) => /^web\/src\/.*\.tsx?$/.test(file))

  it('knows of the server nothing but the typed client, and no file of it is long', () => {
    expect(console_.length).toBeGreaterThan(40)
    const wrong = console_.flatMap((file) =>
      importsOf(file)
        .filter((target) => !/^(web\/src|src\/client)\//.test(target))
        .map((target) => `${file} imports ${target}`),
    )
    expect(wrong).toEqual([])
    expect(console_.flatMap((file) => importsOf(file).filter((target) => !existsSync(join(root, target))))).toEqual([])
    expect(console_.filter((file) => read(file).split('\n').length > 250)).toEqual([])
  })

  it('SEC-12: nothing in it makes elements of text', () => {
    const makes =
      /dangerouslySetInnerHTML|\.innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|rehype-raw/
    expect(console_.filter((file) => makes.test(code(file)))).toEqual([])
  })
})

describe('sizes', () => {
  const linesMax = 400
  /** Why a file may be longer stands beside it. */
  const longer: Record<string, number> = {
    'src/runner/step.ts': 700, // the phases of a step read downward in one file
    'src/project.ts': 600, // one projection per event
    'src/client/reduce.ts': 600, // its twin for clients
  }

  it('a source file has at most 400 lines, except those where reading on is the point', () => {
    const long = sources.filter((file) => read(file).split('\n').length > (longer[file] ?? linesMax))
    expect(long).toEqual([])
  })
})

describe('LOG-09', () => {
  const models = [...read('prisma/schema.prisma').matchAll(/((?:^\s*\/\/\/.*\n)*)^model (\w+) \{/gm)]
  const kindOf = new Map(models.map(([, notes, name]) => [name!, /\/\/\/ @(\w+)/.exec(notes!)?.[1]]))

  it('LOG-09: the schema marks every table as projected, operational or the log itself', () => {
    expect(kindOf.size).toBeGreaterThan(8)
    for (const [name, kind] of kindOf) expect(['projected', 'operational', 'log'], name).toContain(kind)
    expect([...kindOf].filter(([, kind]) => kind === 'log').map(([name]) => name)).toEqual(['Event'])
    expect(
      [...kindOf]
        .filter(([, kind]) => kind === 'operational')
        .map(([name]) => name)
        .sort(),
    ).toEqual(['Chunk', 'Claim'])
  })

  /** What else may write, and what. */
  const writers: Record<string, RegExp> = {
    'src/migrate.ts': /^_prisma_migrations$/,
    'src/live-text.ts': /^Chunk$/,
    'src/claim.ts': /^Claim$/,
    'src/recovery/takeover.ts': /^Claim$/,
    // Brings a row that is behind its log to what a replay gives; the log has said it already.
    'src/recovery/settle-rows.ts': /^Recovery$/,
    // Offline: brings all projected rows of a session to what a replay gives.
    'src/rebuild.ts': /^(Session|Claim|Chunk)$/,
  }

  it('LOG-09: no statement outside append writes a table', () => {
    const wrong: string[] = []
    for (const file of sources) {
      const text = code(file)
      const sql = [
        ...text.matchAll(
          /\b(?:INSERT\s+INTO|(?<!FOR NO KEY )UPDATE|DELETE\s+FROM|TRUNCATE|MERGE\s+INTO)\s+"?([A-Za-z_]\w*)"?/g,
        ),
      ]
      const prisma = [
        ...text.matchAll(
          /\.(\w+)\.(?:create|createMany|createManyAndReturn|update|updateMany|updateManyAndReturn|upsert|delete|deleteMany)\(/g,
        ),
      ].filter(([, delegate]) => [...kindOf.keys()].some((name) => name.toLowerCase() === delegate!.toLowerCase()))
      const tables = [
        ...sql.map(([, table]) => table!),
        ...prisma.map(([, delegate]) => delegate![0]!.toUpperCase() + delegate!.slice(1)),
      ]
      for (const table of tables) if (!writers[file]?.test(table)) wrong.push(`${file} writes ${table}`)
    }
    expect(wrong).toEqual([])
  })

  it('LOG-09: the function that appends is called from one file', () => {
    const callers = sources.filter((file) => /\bholdfast_append\s*\(/.test(code(file)))
    expect(callers).toEqual(['src/append.ts'])
  })
})

describe('documents', () => {
  const documents = files.filter((file) => file.endsWith('.md'))

  it('links in the documents lead to files and headings that are there', () => {
    const slug = (heading: string) =>
      heading
        .trim()
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-')
    const headings = (file: string) =>
      [
        ...read(file)
          .replace(/^```[\s\S]*?^```/gm, '')
          .matchAll(/^#+ (.+)$/gm),
      ].map(([, text]) => slug(text!))
    const links = documents.flatMap((file) =>
      [...read(file).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => ({ file, link: link! })),
    )
    expect(links.length).toBeGreaterThan(5)
    const broken = links.filter(({ file, link }) => {
      if (/^[a-z]+:/.test(link)) return false
      const [path = '', anchor] = link.split('#')
      const target = path === '' ? file : normalize(join(dirname(file), path))
      if (!existsSync(join(root, target))) return true
      return anchor !== undefined && !headings(target).includes(anchor)
    })
    expect(broken).toEqual([])
  })

  it('files that the documents name in code type are there', () => {
    const named = documents
      .filter((file) => !file.startsWith('docs/decisions/'))
      .flatMap((file) =>
        [...read(file).matchAll(/`((?:src|test|docs|scripts|prisma)\/[\w./-]+\.\w+)`/g)].map(([, path]) => ({
          file,
          path: path!,
        })),
      )
    expect(named.length).toBeGreaterThan(10)
    expect(named.filter(({ path }) => !existsSync(join(root, path)))).toEqual([])
  })

  it('every environment variable that the code reads stands in docs/configuration.md', () => {
    const documented = read('docs/configuration.md')
    const names = Object.values(variables).map(({ name }) => name)
    expect(names.filter((name) => !documented.includes(`| \`${name}\` |`))).toEqual([])
    // Settings are read in one place. What else looks at the environment takes what the operating system says.
    const readers = sources.filter((file) => /\bprocess\.env\b/.test(code(file)))
    // The server asks whether npm started it, which is no setting.
    expect(readers.sort()).toEqual(['src/config.ts', 'src/embedded/binaries.ts', 'src/server.ts'])
  })
})

describe('leftovers', () => {
  const texts = files.filter((file) => /\.(ts|tsx|mjs|js|json|md|sql|prisma|graphql|yml|html|css)$|^\.ci\//.test(file))

  it('no note to self is left in the tree', () => {
    const note = new RegExp(`\\b(?:${['TO', 'DO'].join('')}|FIX${'ME'}|X${'XX'})\\b`)
    expect(texts.filter((file) => !isGenerated(file) && file !== 'package-lock.json' && note.test(read(file)))).toEqual(
      [],
    )
  })

  it('no file names a directory of the machine it was written on', () => {
    const place = new RegExp(`/${'work'}/|/home/\\w+/|/Users/\\w+/`)
    expect(texts.filter((file) => place.test(read(file)))).toEqual([])
  })
})
