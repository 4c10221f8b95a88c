import { mergeConfig } from 'vitest/config'
import whole from './vitest.config.ts'

// A part of the whole, another one every day: see deaths.points.ts.
export default mergeConfig(whole, { test: { env: { CRASH_SAMPLE: process.env.CRASH_SAMPLE ?? '300' } } })
