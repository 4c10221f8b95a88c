// The guards of the migration: what the door, the chunks and the renewal look at, and the log's own rules.

import type { Guard } from './mutant.ts'

const file = 'prisma/migrations/20261129000000_ground/migration.sql'
/** The chunks' function as it is now. */
const chunkFile = 'prisma/migrations/20261130080000_chunks_share_claims/migration.sql'

/** A count that has to match, else the append is refused. */
const count = (id: string, message: string, keeps: string, tests: Guard['tests'], secondLineOf?: string): Guard => ({
  id,
  file,
  find: `IF v_count <> v_expected THEN
        RAISE EXCEPTION '${message}`,
  replace: `IF HIT(false) THEN
        RAISE EXCEPTION '${message}`,
  keeps,
  tests,
  ...(secondLineOf === undefined ? {} : { secondLineOf }),
})

const guard = (
  id: string,
  find: string,
  replace: string,
  keeps: string,
  tests: Guard['tests'],
  second?: string,
): Guard => ({
  id,
  file,
  find,
  replace,
  keeps,
  tests,
  ...(second === undefined ? {} : { secondLineOf: second }),
})

const fence: Guard['tests'] = [['claim.test.ts', 'CLAIM-10, CLAIM-12']]
const rules: Guard['tests'] = [['database-rules.test.ts', 'DB-12: a second terminal']]
const openRows: Guard['tests'] = [['door-rules.test.ts', 'settled rows']]
const chunks: Guard['tests'] = [['door-rules.test.ts', 'live text']]

const door: Guard[] = [
  guard(
    'door-fence-execution',
    'c."executionId" = m.fx\n',
    'HIT(true)\n',
    'an append under the claim of another execution',
    fence,
  ),
  guard('door-fence-owner', '(m.fo IS NULL OR c.owner = m.fo)', 'HIT(true)', 'an append by another owner', fence),
  guard('door-fence-phase', '(m.fp IS NULL OR c.phase = ANY (m.fp))', 'HIT(true)', 'an append in another phase', fence),
  guard(
    'door-fence-live',
    '(NOT COALESCE(m.fl, false) OR c."expiresAt" > v_now)',
    'HIT(true)',
    'an append after the lease',
    fence,
  ),
  guard(
    'door-fence-expiry',
    '(m.fe IS NULL OR c."expiresAt" = m.fe)',
    'HIT(true)',
    'a takeover of a claim that was renewed',
    [['recovery.test.ts', 'CLAIM-12, CLAIM-17: refused when execution']],
  ),
  guard(
    'door-fence-expired',
    '(NOT COALESCE(m.fd, false) OR c."expiresAt" <= v_now)',
    'HIT(true)',
    'a takeover of a claim that lives',
    [['log.test.ts', 'LOG-03']],
  ),
  guard(
    'door-claimed',
    `WHEN m.c = 'acquire' AND c."sessionId" IS NOT NULL THEN 'claimed'`,
    `WHEN HIT(false) THEN 'claimed'`,
    'a second claim',
    [['claim.test.ts', 'CLAIM-02']],
  ),
  guard(
    'door-unclaimed',
    'WHEN COALESCE(m.fn, false) AND c."sessionId" IS NOT NULL',
    'WHEN HIT(false)',
    'settling past an owner',
    [['log.test.ts', 'LOG-03']],
  ),
  guard(
    'door-expected-seq',
    'WHEN m.es IS NOT NULL AND m.es <> s.seq',
    'WHEN HIT(false)',
    'a decision on what has moved',
    [['log.test.ts', 'LOG-25']],
  ),
  guard(
    'door-new-id-inputs',
    'EXISTS (SELECT 1 FROM "Input" x WHERE x.id = ANY (m.ids))',
    'HIT(false)',
    'an id of an input of whichever session',
    [['log.test.ts', 'LOG-14']],
  ),
  guard(
    'door-new-id-messages',
    'OR EXISTS (SELECT 1 FROM "Message" x WHERE x.id = ANY (m.ids))',
    'OR HIT(false)',
    'an id of a message of whichever session',
    [['log.test.ts', 'LOG-14']],
  ),
  guard(
    'door-move-phase',
    'AND t."executionId" = u.fx AND t.phase = ANY (u.fp);',
    'AND HIT(true);',
    'a claim from being moved out of another phase',
    [['claim.test.ts', 'CLAIM-25']],
    'door-fence-phase',
  ),
  guard(
    'door-remove-expiry',
    'AND (u.fe IS NULL OR t."expiresAt" = u.fe) AND (u.fp IS NULL OR t.phase = ANY (u.fp));',
    'AND HIT(true);',
    'a claim that was renewed from being removed',
    [['recovery.test.ts', 'CLAIM-17: refused when the owner renewed|CLAIM-12, CLAIM-17: refused when execution']],
    'door-fence-expiry',
  ),
  guard(
    'door-claim-order',
    'WHERE c."sessionId" = ANY (v_s) ORDER BY c."sessionId" FOR UPDATE;',
    'WHERE HIT(false) AND c."sessionId" = ANY (v_s);',
    'appends of several sessions and a renewal from waiting for each other',
    [['log-groups.test.ts', 'LOG-19: and so are their claims']],
  ),
  guard(
    'door-claim-count',
    'IF v_expected <> v_count THEN',
    'IF HIT(false) THEN',
    'events whose claim did not move with them',
    [['log.test.ts', 'LOG-02: a claim move']],
  ),
  guard(
    'door-input-pending',
    `AND t.id = u.id AND t.state = 'PENDING';`,
    'AND t.id = u.id AND HIT(true);',
    'a settled input from changing',
    openRows,
  ),
  guard(
    'door-message-running',
    `AND t.id = u.id AND t.status = 'RUNNING';`,
    'AND t.id = u.id AND HIT(true);',
    'a second end of a step',
    [['log.test.ts', 'LOG-13']],
  ),
  guard(
    'door-part-open',
    'AND t.index = u.index AND NOT t.complete;',
    'AND t.index = u.index AND HIT(true);',
    'a second end of a part',
    openRows,
  ),
  guard(
    'door-tool-open',
    'AND t."callId" = u.call AND t."settledAt" IS NULL\n',
    'AND t."callId" = u.call AND HIT(true)\n',
    'a second end of a tool call',
    [['log.test.ts', 'LOG-13']],
  ),
  guard(
    'door-tool-started-once',
    `AND (NOT u.set ? 'startedAt' OR t."startedAt" IS NULL);`,
    'AND HIT(true);',
    'a tool from being started twice',
    openRows,
  ),
  guard(
    'door-interaction-open',
    `AND t.id = u.id AND t.state = 'OPEN';`,
    'AND t.id = u.id AND HIT(true);',
    'a second decision',
    openRows,
  ),
  guard(
    'door-quarantine-open',
    'AND t.id = u.id AND t."resolvedAt" IS NULL;',
    'AND t.id = u.id AND HIT(true);',
    'a second resolution',
    openRows,
  ),
  count(
    'door-input-count',
    'an input is not pending',
    'a change of an input that is not there, or settled, from passing in silence',
    openRows,
  ),
  count('door-message-count', 'a message is not running', 'the same of a step', [['log.test.ts', 'LOG-13']]),
  count('door-part-count', 'a part is not open', 'the same of a part', [['log.test.ts', 'LOG-02: a projection']]),
  count('door-tool-count', 'a tool call is not open', 'the same of a tool call', [['log.test.ts', 'LOG-13']]),
  count('door-interaction-count', 'an interaction is not open', 'the same of an interaction', openRows),
  count('door-quarantine-count', 'a quarantine entry is not open', 'the same of a quarantine entry', openRows),
  guard(
    'door-step-tools',
    `EXISTS (SELECT 1 FROM "ToolCall" t WHERE t."sessionId" = o.s AND t."messageId" = c.key->>'id' AND t."settledAt" IS NULL)`,
    'HIT(false)',
    'a step from ending over an open tool call',
    [['log.test.ts', 'LOG-15: a step does not end']],
  ),
  guard(
    'door-step-parts',
    `OR EXISTS (SELECT 1 FROM "Part" t WHERE t."sessionId" = o.s AND t."messageId" = c.key->>'id' AND NOT t.complete)`,
    'OR HIT(false)',
    'a step from ending over an open part',
    openRows,
  ),
  guard(
    'door-step-running',
    `WHERE t.kind <> 'ASSISTANT' OR t.status <> 'RUNNING') THEN`,
    'WHERE HIT(false)) THEN',
    'parts and tool calls out of a step that has ended',
    [['log.test.ts', 'LOG-15: nothing enters']],
  ),
]

const chunkRules: Guard[] = [
  guard('chunk-execution', `c."executionId" = r.x`, 'HIT(true)', 'text of another execution', chunks),
  guard('chunk-owner', 'AND c.owner = r.o\n', 'AND HIT(true)\n', 'text of another owner', chunks),
  guard('chunk-phase', `WHERE c.phase = 'UNKNOWN' AND`, 'WHERE HIT(true) AND', 'text behind an interrupt', [
    ['claim.test.ts', 'CLAIM-26'],
  ]),
  guard(
    'chunk-live',
    `c.phase = 'UNKNOWN' AND c."expiresAt" > v_now`,
    `c.phase = 'UNKNOWN' AND HIT(true)`,
    'text after the lease',
    chunks,
  ),
  guard(
    'chunk-held',
    'WHERE r.s = ANY (v_held)\n',
    'WHERE HIT(true)\n',
    'text of a session that is not held, beside others that are',
    [['stream-text.test.ts', 'STREAM-12']],
  ),
  guard(
    'chunk-part-open',
    'q.index = r.i AND NOT q.complete)',
    'q.index = r.i AND HIT(true))',
    'text behind the end of its part',
    [['stream-text.test.ts', 'LOG-18']],
  ),
  guard(
    'chunk-tool-streaming',
    `q.index = r.i AND q.status = 'STREAMING')`,
    'q.index = r.i AND HIT(true))',
    'input behind the call of its tool',
    chunks,
  ),
].map((each) => ({ ...each, file: chunkFile }))

const unique = (name: string, columns: string, marked: string, keeps: string, tests: Guard['tests']) =>
  guard(
    `log-${name.slice(6).replaceAll('_', '-')}`,
    `CREATE UNIQUE INDEX "${name}" ON "Event"(${columns})`,
    `CREATE INDEX "${name}" ON "Event"(${marked})`,
    keeps,
    tests,
  )

const log: Guard[] = [
  unique('Event_append_once', '"appendId"', '(HIT_IN_INDEX("appendId"))', 'an append from being applied twice', [
    ['door-rules.test.ts', 'applied once'],
  ]),
  unique(
    'Event_step_terminal',
    `"sessionId", (payload->>'messageId')`,
    `"sessionId", (HIT_IN_INDEX(payload->>'messageId'))`,
    'a second end of a step in the log',
    rules,
  ),
  unique(
    'Event_tool_terminal',
    `"sessionId", (payload->>'messageId'), (payload->>'callId')`,
    `"sessionId", (payload->>'messageId'), (HIT_IN_INDEX(payload->>'callId'))`,
    'a second end of a tool call in the log',
    rules,
  ),
  unique(
    'Event_execution_end',
    `"sessionId", (payload->>'executionId')`,
    `"sessionId", (HIT_IN_INDEX(payload->>'executionId'))`,
    'a second end of an execution',
    rules,
  ),
  unique(
    'Event_promoted',
    `"sessionId", (payload->>'messageId')`,
    `"sessionId", (HIT_IN_INDEX(payload->>'messageId'))`,
    'a second promotion',
    rules,
  ),
  guard(
    'log-set-aside-once',
    'CREATE UNIQUE INDEX "Quarantine_one_open" ON "Quarantine"("sessionId", "executionId", "kind")',
    'CREATE INDEX "Quarantine_one_open" ON "Quarantine"("sessionId", (HIT_IN_INDEX("executionId")), "kind")',
    'two open entries of one execution',
    [['door-rules.test.ts', 'set aside once']],
  ),
  guard(
    'log-immutable',
    `RAISE EXCEPTION 'events are immutable: % on "Event" is refused', TG_OP USING ERRCODE = 'HF010';`,
    "PERFORM HIT(true); IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW;",
    'a stored event from being changed',
    [['log.test.ts', 'LOG-06']],
  ),
]

export const sqlGuards: readonly Guard[] = [...door, ...chunkRules, ...log]
