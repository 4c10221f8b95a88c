// Registers the type of every event. Each module adds its types to the builder when it is loaded.
import './session.ts'
import './prompt.ts'
import './step.ts'
import './part.ts'
import './tool.ts'
import './execution.ts'
import './compaction.ts'
import './live.ts'
