
      export type PossibleTypesResultData = {
  "possibleTypes": {
    "AdmitPromptResult": [
      "InvalidInputError",
      "LimitExceededError",
      "PromptAdmission",
      "PromptConflictError",
      "SessionNotFoundError"
    ],
    "CompactSessionResult": [
      "CompactSessionPayload",
      "InvalidInputError",
      "LimitExceededError",
      "PromptConflictError",
      "SessionNotFoundError"
    ],
    "CreateSessionResult": [
      "CreateSessionPayload",
      "InvalidInputError",
      "LimitExceededError",
      "SessionConflictError"
    ],
    "Error": [
      "InteractionNotFoundError",
      "InteractionSettledError",
      "InterruptPendingError",
      "InvalidInputError",
      "LimitExceededError",
      "PromptConflictError",
      "PromptNotPendingError",
      "QuarantineNotFoundError",
      "SessionChangedError",
      "SessionConflictError",
      "SessionNotFoundError",
      "SessionQuarantinedError"
    ],
    "InteractionResult": [
      "InteractionNotFoundError",
      "InteractionPayload",
      "InteractionSettledError",
      "InvalidInputError"
    ],
    "InterruptSessionResult": [
      "InterruptPendingError",
      "InterruptSessionPayload",
      "SessionNotFoundError"
    ],
    "Message": [
      "AssistantMessage",
      "CompactionMessage",
      "SyntheticMessage",
      "UserMessage"
    ],
    "MessagePart": [
      "ReasoningPart",
      "TextPart",
      "ToolCall"
    ],
    "Node": [
      "AssistantMessage",
      "CompactionMessage",
      "Interaction",
      "QuarantineEntry",
      "Recovery",
      "Session",
      "SessionInput",
      "SyntheticMessage",
      "UserMessage"
    ],
    "PromptChangeResult": [
      "InvalidInputError",
      "PromptChangePayload",
      "PromptNotPendingError",
      "SessionChangedError",
      "SessionNotFoundError"
    ],
    "ResolveQuarantineResult": [
      "QuarantineNotFoundError",
      "ResolveQuarantinePayload"
    ],
    "ResumeSessionResult": [
      "ResumeSessionPayload",
      "SessionChangedError",
      "SessionNotFoundError",
      "SessionQuarantinedError"
    ],
    "SessionEvent": [
      "CompactionEnded",
      "CompactionFailed",
      "CompactionStarted",
      "ExecutionSettled",
      "ExecutionStarted",
      "InteractionRequested",
      "InteractionSettled",
      "InterruptRequested",
      "LogSynced",
      "PromptAdmitted",
      "PromptDeliveryChanged",
      "PromptExecutionRequested",
      "PromptPromoted",
      "PromptWithdrawn",
      "QuarantineOpened",
      "QuarantineResolved",
      "ReasoningDelta",
      "ReasoningEnded",
      "ReasoningStarted",
      "SessionCreated",
      "SessionParked",
      "SessionResumeRequested",
      "SessionUpdated",
      "StepEnded",
      "StepFailed",
      "StepInterrupted",
      "StepRecovered",
      "StepRetryScheduled",
      "StepStarted",
      "StepStreamed",
      "StreamEnded",
      "SyntheticAppended",
      "TextDelta",
      "TextEnded",
      "TextStarted",
      "ToolCalled",
      "ToolFailed",
      "ToolInputDelta",
      "ToolInputStarted",
      "ToolProgress",
      "ToolStarted",
      "ToolSucceeded"
    ],
    "UpdateSessionResult": [
      "InvalidInputError",
      "SessionChangedError",
      "SessionNotFoundError",
      "UpdateSessionPayload"
    ]
  }
};
      const result: PossibleTypesResultData = {
  "possibleTypes": {
    "AdmitPromptResult": [
      "InvalidInputError",
      "LimitExceededError",
      "PromptAdmission",
      "PromptConflictError",
      "SessionNotFoundError"
    ],
    "CompactSessionResult": [
      "CompactSessionPayload",
      "InvalidInputError",
      "LimitExceededError",
      "PromptConflictError",
      "SessionNotFoundError"
    ],
    "CreateSessionResult": [
      "CreateSessionPayload",
      "InvalidInputError",
      "LimitExceededError",
      "SessionConflictError"
    ],
    "Error": [
      "InteractionNotFoundError",
      "InteractionSettledError",
      "InterruptPendingError",
      "InvalidInputError",
      "LimitExceededError",
      "PromptConflictError",
      "PromptNotPendingError",
      "QuarantineNotFoundError",
      "SessionChangedError",
      "SessionConflictError",
      "SessionNotFoundError",
      "SessionQuarantinedError"
    ],
    "InteractionResult": [
      "InteractionNotFoundError",
      "InteractionPayload",
      "InteractionSettledError",
      "InvalidInputError"
    ],
    "InterruptSessionResult": [
      "InterruptPendingError",
      "InterruptSessionPayload",
      "SessionNotFoundError"
    ],
    "Message": [
      "AssistantMessage",
      "CompactionMessage",
      "SyntheticMessage",
      "UserMessage"
    ],
    "MessagePart": [
      "ReasoningPart",
      "TextPart",
      "ToolCall"
    ],
    "Node": [
      "AssistantMessage",
      "CompactionMessage",
      "Interaction",
      "QuarantineEntry",
      "Recovery",
      "Session",
      "SessionInput",
      "SyntheticMessage",
      "UserMessage"
    ],
    "PromptChangeResult": [
      "InvalidInputError",
      "PromptChangePayload",
      "PromptNotPendingError",
      "SessionChangedError",
      "SessionNotFoundError"
    ],
    "ResolveQuarantineResult": [
      "QuarantineNotFoundError",
      "ResolveQuarantinePayload"
    ],
    "ResumeSessionResult": [
      "ResumeSessionPayload",
      "SessionChangedError",
      "SessionNotFoundError",
      "SessionQuarantinedError"
    ],
    "SessionEvent": [
      "CompactionEnded",
      "CompactionFailed",
      "CompactionStarted",
      "ExecutionSettled",
      "ExecutionStarted",
      "InteractionRequested",
      "InteractionSettled",
      "InterruptRequested",
      "LogSynced",
      "PromptAdmitted",
      "PromptDeliveryChanged",
      "PromptExecutionRequested",
      "PromptPromoted",
      "PromptWithdrawn",
      "QuarantineOpened",
      "QuarantineResolved",
      "ReasoningDelta",
      "ReasoningEnded",
      "ReasoningStarted",
      "SessionCreated",
      "SessionParked",
      "SessionResumeRequested",
      "SessionUpdated",
      "StepEnded",
      "StepFailed",
      "StepInterrupted",
      "StepRecovered",
      "StepRetryScheduled",
      "StepStarted",
      "StepStreamed",
      "StreamEnded",
      "SyntheticAppended",
      "TextDelta",
      "TextEnded",
      "TextStarted",
      "ToolCalled",
      "ToolFailed",
      "ToolInputDelta",
      "ToolInputStarted",
      "ToolProgress",
      "ToolStarted",
      "ToolSucceeded"
    ],
    "UpdateSessionResult": [
      "InvalidInputError",
      "SessionChangedError",
      "SessionNotFoundError",
      "UpdateSessionPayload"
    ]
  }
};
      export default result;
    