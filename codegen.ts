import type { CodegenConfig } from '@graphql-codegen/cli'

/** Typed documents for the operations under test/operations: npx graphql-codegen. An example for clients as well. */
const config: CodegenConfig = {
  schema: 'schema.graphql',
  documents: ['test/operations/**/*.graphql'],
  generates: {
    'test/generated/': {
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
