import { existsSync } from 'node:fs'
import { basename, extname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { loadConfig as load } from 'c12'
import { ConfigError } from './error.ts'

const TYPES = ['.ts', '.mjs', '.js']

/** What a config file exports, as it stands there: nothing is checked yet. */
export interface Loaded {
  /** The file's name as errors show it. */
  name: string
  content: unknown
}

/**
 * Loads the config file: the named one, or `holdfast.config.{ts,mjs,js}` in `cwd` if there is one. It is evaluated once.
 * Nothing else is read: no .env, no rc file, no `extends`, nothing from elsewhere.
 *
 * @throws ConfigError if the named file is missing, several would do, or the file cannot be evaluated
 */
export async function loadFile(cwd: string, named: string | undefined): Promise<Loaded | undefined> {
  const file = named === undefined ? findFile(cwd) : namedFile(cwd, named)
  if (file === undefined) return undefined
  const name = basename(file)
  try {
    const { config } = await load<{ exported?: unknown }>({
      cwd,
      configFile: file,
      rcFile: false,
      globalRc: false,
      packageJson: false,
      dotenv: false,
      extend: false,
      giget: false,
      envName: false,
      jitiOptions: { fsCache: false, interopDefault: false },
      // The default one copies and joins objects; a tool or a model has to stay the object that the file made.
      merger: (...sources: unknown[]) => sources.find((source) => source !== undefined) as object,
      // Its own way of importing loses what the default export was: missing, null and a function look like settings.
      resolve: async (_source, { jiti }) => {
        const module = await evaluate(file, jiti)
        return { config: { exported: module.default }, configFile: file, _configFile: file, cwd }
      },
    })
    return { name, content: config.exported }
  } catch (cause) {
    const reason = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause)
    throw new ConfigError([`${name} cannot be loaded: ${reason.trim()} (${file})`], { cause })
  }
}

/** Node evaluates plain JavaScript itself: the TypeScript loader evaluates it a second time when it throws. */
function evaluate(
  file: string,
  jiti: { import(id: string): Promise<unknown> } | undefined,
): Promise<{ default?: unknown }> {
  const module: Promise<unknown> =
    extname(file) === '.ts' && jiti ? jiti.import(file) : import(pathToFileURL(file).href)
  return module as Promise<{ default?: unknown }>
}

function findFile(cwd: string): string | undefined {
  const found = TYPES.map((type) => resolve(cwd, `holdfast.config${type}`)).filter((file) => existsSync(file))
  if (found.length > 1) {
    const names = found.map((file) => basename(file)).join(' and ')
    throw new ConfigError([`${names} are both in ${cwd}: keep one, or name the one that counts in HOLDFAST_CONFIG`])
  }
  return found[0]
}

function namedFile(cwd: string, named: string): string {
  const file = resolve(cwd, named)
  if (!TYPES.includes(extname(file))) {
    throw new ConfigError([`HOLDFAST_CONFIG is ${JSON.stringify(named)}: must name a ${TYPES.join(', ')} file`])
  }
  if (!existsSync(file))
    throw new ConfigError([`HOLDFAST_CONFIG is ${JSON.stringify(named)}: there is no file ${file}`])
  return file
}
