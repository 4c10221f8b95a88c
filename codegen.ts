import type { CodegenConfig } from '@graphql-codegen/cli'

/** Typed documents of the client, and what a cache has to know of unions and interfaces: npx graphql-codegen. */
const config: CodegenConfig = {
  schema: 'schema.graphql',
  documents: ['src/client/operations/**/*.graphql'],
  generates: {
    'src/client/generated/': {
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
    'src/client/generated/possible-types.ts': {
      plugins: ['fragment-matcher'],
      config: { useExplicitTyping: true },
    },
  },
}

export default config
