// Are the generated files fresh? Runs the generators and compares what git sees: node scripts/check-generated.mjs
import { execFileSync } from 'node:child_process'

const generated = ['src/generated', 'src/client/generated', 'schema.graphql']
const git = (...args) => execFileSync('git', args, { encoding: 'utf8' })
const stateOf = () =>
  git('status', '--porcelain', '--untracked-files=all', '--', ...generated) + git('diff', 'HEAD', '--', ...generated)

const before = stateOf()
execFileSync('npm', ['run', '--silent', 'generate'], { stdio: ['ignore', 'ignore', 'inherit'] })
if (stateOf() !== before) {
  console.error('Generated files were stale; they are fresh now. Commit them:')
  console.error(git('status', '--porcelain', '--', ...generated))
  process.exit(1)
}
console.log('generated files are fresh')
