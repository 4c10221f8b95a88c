import type { CodegenConfig } from '@graphql-codegen/cli'

/** Documents of your own against the schema that comes with the package: npx graphql-codegen */
const config: CodegenConfig = {
  schema: 'node_modules/holdfast/schema.graphql',
  documents: ['codegen/**/*.graphql'],
  generates: {
    'codegen/gql/': {
      preset: 'client',
      presetConfig: { fragmentMasking: false },
      config: {
        useTypeImports: true,
        enumsAsTypes: true,
        strictScalars: true,
        scalars: { DateTime: 'string', JSON: 'unknown', SafeInt: 'number' },
        emitLegacyCommonJSImports: false,
        importExtension: '.ts',
      },
    },
  },
}

export default config
