-- The ground of design section 3: tables, their same-session references, CHECKs, partial indexes, the clock, and the one door into history.
-- Applied migrations are never edited; see docs/decisions/.

-- ---------------------------------------------------------------------------------------------------------------- tables
CREATE TABLE "Session" (
    "id" TEXT NOT NULL,
    "tenant" TEXT NOT NULL,
    "title" TEXT,
    "instructions" TEXT,
    "model" TEXT NOT NULL,
    "seq" INTEGER NOT NULL,
    "stepOwed" BOOLEAN NOT NULL DEFAULT false,
    "retryAt" TIMESTAMPTZ(3),
    "recoveries" INTEGER NOT NULL DEFAULT 0,
    "compactions" INTEGER NOT NULL DEFAULT 0,
    "parkedReason" TEXT,
    "inputTokens" BIGINT NOT NULL DEFAULT 0,
    "outputTokens" BIGINT NOT NULL DEFAULT 0,
    "reasoningTokens" BIGINT NOT NULL DEFAULT 0,
    "cachedInputTokens" BIGINT NOT NULL DEFAULT 0,
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    "updatedAt" TIMESTAMPTZ(3) NOT NULL,
    "archivedAt" TIMESTAMPTZ(3),
    CONSTRAINT "Session_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Session_seq_check" CHECK ("seq" >= 1),
    CONSTRAINT "Session_counts_check" CHECK ("recoveries" >= 0 AND "compactions" >= 0)
);

CREATE TABLE "Event" (
    "sessionId" TEXT NOT NULL,
    "seq" INTEGER NOT NULL,
    "type" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL,
    "appendId" UUID NOT NULL,
    "ordinal" SMALLINT NOT NULL,
    CONSTRAINT "Event_pkey" PRIMARY KEY ("sessionId","seq"),
    CONSTRAINT "Event_seq_check" CHECK ("seq" >= 1 AND "ordinal" >= 0)
);

CREATE TABLE "Input" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "text" TEXT NOT NULL,
    "attachments" JSONB NOT NULL DEFAULT '[]',
    "requestedDelivery" TEXT NOT NULL,
    "delivery" TEXT NOT NULL,
    "state" TEXT NOT NULL,
    "wakePending" BOOLEAN NOT NULL,
    "executionRequested" BOOLEAN NOT NULL,
    "admittedSeq" INTEGER NOT NULL,
    "promotedSeq" INTEGER,
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    CONSTRAINT "Input_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Input_kind_check" CHECK ("kind" IN ('PROMPT', 'CONTINUATION', 'COMPACTION')),
    CONSTRAINT "Input_delivery_check" CHECK ("delivery" IN ('STEER', 'QUEUE') AND "requestedDelivery" IN ('STEER', 'QUEUE')),
    CONSTRAINT "Input_state_check" CHECK ("state" IN ('PENDING', 'PROMOTED', 'WITHDRAWN')),
    CONSTRAINT "Input_promoted_check" CHECK (("state" = 'PROMOTED') = ("promotedSeq" IS NOT NULL)),
    CONSTRAINT "Input_armed_check" CHECK ("state" = 'PENDING' OR NOT "wakePending")
);

CREATE TABLE "Message" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "seq" INTEGER NOT NULL,
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    "text" TEXT,
    "attachments" JSONB NOT NULL DEFAULT '[]',
    "hidden" BOOLEAN NOT NULL DEFAULT false,
    "model" TEXT,
    "executionId" TEXT,
    "status" TEXT,
    "streamed" BOOLEAN NOT NULL DEFAULT false,
    "attempt" INTEGER NOT NULL DEFAULT 1,
    "finish" TEXT,
    "errorCode" TEXT,
    "errorMessage" TEXT,
    "inputTokens" BIGINT,
    "outputTokens" BIGINT,
    "reasoningTokens" BIGINT,
    "cachedInputTokens" BIGINT,
    "settledAt" TIMESTAMPTZ(3),
    "automatic" BOOLEAN,
    "summary" TEXT,
    "tailSeq" INTEGER,
    CONSTRAINT "Message_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Message_kind_check" CHECK ("kind" IN ('USER', 'SYNTHETIC', 'COMPACTION', 'ASSISTANT')),
    CONSTRAINT "Message_status_check" CHECK (
        CASE "kind"
            WHEN 'ASSISTANT' THEN "status" IS NOT NULL AND "status" IN ('RUNNING', 'ENDED', 'FAILED', 'INTERRUPTED')
            WHEN 'COMPACTION' THEN "status" IS NOT NULL AND "status" IN ('RUNNING', 'COMPLETED', 'FAILED')
            ELSE "status" IS NULL
        END),
    CONSTRAINT "Message_settled_check" CHECK ("status" IS NULL OR ("status" = 'RUNNING') = ("settledAt" IS NULL)),
    CONSTRAINT "Message_error_check" CHECK (("errorCode" IS NULL) = ("errorMessage" IS NULL) AND ("status" IS DISTINCT FROM 'ENDED' OR "errorCode" IS NULL)),
    CONSTRAINT "Message_text_check" CHECK ("kind" NOT IN ('USER', 'SYNTHETIC') OR "text" IS NOT NULL),
    CONSTRAINT "Message_model_check" CHECK ("kind" <> 'ASSISTANT' OR "model" IS NOT NULL)
);

CREATE TABLE "Part" (
    "sessionId" TEXT NOT NULL,
    "messageId" TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    "kind" TEXT NOT NULL,
    "text" TEXT NOT NULL DEFAULT '',
    "complete" BOOLEAN NOT NULL DEFAULT false,
    "state" JSONB,
    CONSTRAINT "Part_pkey" PRIMARY KEY ("sessionId","messageId","index"),
    CONSTRAINT "Part_kind_check" CHECK ("kind" IN ('TEXT', 'REASONING'))
);

CREATE TABLE "ToolCall" (
    "sessionId" TEXT NOT NULL,
    "messageId" TEXT NOT NULL,
    "callId" TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    "name" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "providerExecuted" BOOLEAN NOT NULL DEFAULT false,
    "input" JSONB,
    "output" JSONB,
    "errorCode" TEXT,
    "errorMessage" TEXT,
    "state" JSONB,
    "startedAt" TIMESTAMPTZ(3),
    "settledAt" TIMESTAMPTZ(3),
    CONSTRAINT "ToolCall_pkey" PRIMARY KEY ("sessionId","messageId","callId"),
    CONSTRAINT "ToolCall_status_check" CHECK ("status" IN ('STREAMING', 'AWAITING_APPROVAL', 'RUNNING', 'COMPLETED', 'FAILED')),
    CONSTRAINT "ToolCall_settled_check" CHECK (("status" IN ('COMPLETED', 'FAILED')) = ("settledAt" IS NOT NULL)),
    CONSTRAINT "ToolCall_terminal_check" CHECK (
        ("output" IS NOT NULL) = ("status" = 'COMPLETED') AND ("errorCode" IS NOT NULL) = ("status" = 'FAILED')
        AND ("errorCode" IS NULL) = ("errorMessage" IS NULL))
);

CREATE TABLE "Interaction" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "messageId" TEXT NOT NULL,
    "callId" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "state" TEXT NOT NULL,
    "toolName" TEXT NOT NULL,
    "toolInput" JSONB NOT NULL,
    "prompt" TEXT NOT NULL,
    "options" JSONB NOT NULL DEFAULT '[]',
    "answer" JSONB,
    "feedback" TEXT,
    "editedInput" JSONB,
    "remember" BOOLEAN NOT NULL DEFAULT false,
    "stops" BOOLEAN NOT NULL DEFAULT false,
    "definition" TEXT,
    "wakePending" BOOLEAN NOT NULL DEFAULT false,
    "expiresAt" TIMESTAMPTZ(3),
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    "settledAt" TIMESTAMPTZ(3),
    CONSTRAINT "Interaction_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Interaction_kind_check" CHECK ("kind" IN ('APPROVAL', 'QUESTION')),
    CONSTRAINT "Interaction_state_check" CHECK ("state" IN ('OPEN', 'APPROVED', 'DECLINED', 'ANSWERED', 'DISMISSED', 'EXPIRED', 'CANCELLED')),
    CONSTRAINT "Interaction_settled_check" CHECK (("state" = 'OPEN') = ("settledAt" IS NULL)),
    CONSTRAINT "Interaction_armed_check" CHECK ("state" <> 'OPEN' OR NOT "wakePending")
);

CREATE TABLE "Recovery" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "phase" TEXT NOT NULL,
    "assistantMessageId" TEXT,
    "continuationMessageId" TEXT NOT NULL,
    "wakePending" BOOLEAN NOT NULL,
    "error" TEXT,
    "createdAt" TIMESTAMPTZ(3) NOT NULL,
    CONSTRAINT "Recovery_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Recovery_phase_check" CHECK ("phase" IN ('READY', 'UNKNOWN', 'CONTINUE'))
);

CREATE TABLE "Quarantine" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "reason" TEXT NOT NULL,
    "action" TEXT,
    "quarantinedAt" TIMESTAMPTZ(3) NOT NULL,
    "resolvedAt" TIMESTAMPTZ(3),
    CONSTRAINT "Quarantine_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "Quarantine_kind_check" CHECK ("kind" IN ('EXECUTION', 'RECOVERY')),
    CONSTRAINT "Quarantine_action_check" CHECK (("action" IS NULL) = ("resolvedAt" IS NULL) AND ("action" IS NULL OR "action" IN ('RETRY', 'DISCARD')))
);

CREATE TABLE "Claim" (
    "sessionId" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "owner" TEXT NOT NULL,
    "phase" TEXT NOT NULL,
    "messageId" TEXT,
    "startedAt" TIMESTAMPTZ(3) NOT NULL,
    "expiresAt" TIMESTAMPTZ(3) NOT NULL,
    "error" TEXT,
    CONSTRAINT "Claim_pkey" PRIMARY KEY ("sessionId"),
    CONSTRAINT "Claim_phase_check" CHECK ("phase" IN ('READY', 'UNKNOWN', 'SAFE', 'CONTINUE', 'CANCELLING', 'CANCELLED'))
);

CREATE TABLE "Chunk" (
    "sessionId" TEXT NOT NULL,
    "messageId" TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    "text" TEXT NOT NULL,
    CONSTRAINT "Chunk_pkey" PRIMARY KEY ("sessionId","messageId","index","offset")
);

-- --------------------------------------------------------------------------------------------- indexes Prisma knows of
CREATE INDEX "Session_tenant_updatedAt_id_idx" ON "Session"("tenant", "updatedAt" DESC, "id" DESC);
CREATE INDEX "Session_tenant_createdAt_idx" ON "Session"("tenant", "createdAt");
CREATE UNIQUE INDEX "Input_sessionId_id_key" ON "Input"("sessionId", "id");
CREATE INDEX "Input_sessionId_admittedSeq_idx" ON "Input"("sessionId", "admittedSeq");
CREATE UNIQUE INDEX "Message_sessionId_id_key" ON "Message"("sessionId", "id");
CREATE UNIQUE INDEX "Message_sessionId_seq_key" ON "Message"("sessionId", "seq");
CREATE UNIQUE INDEX "ToolCall_sessionId_messageId_index_key" ON "ToolCall"("sessionId", "messageId", "index");
CREATE UNIQUE INDEX "Interaction_sessionId_id_key" ON "Interaction"("sessionId", "id");
CREATE INDEX "Interaction_sessionId_createdAt_idx" ON "Interaction"("sessionId", "createdAt");
CREATE UNIQUE INDEX "Recovery_executionId_key" ON "Recovery"("executionId");
CREATE UNIQUE INDEX "Recovery_sessionId_id_key" ON "Recovery"("sessionId", "id");
CREATE UNIQUE INDEX "Recovery_sessionId_continuationMessageId_key" ON "Recovery"("sessionId", "continuationMessageId");
CREATE UNIQUE INDEX "Quarantine_sessionId_id_key" ON "Quarantine"("sessionId", "id");
CREATE INDEX "Quarantine_quarantinedAt_id_idx" ON "Quarantine"("quarantinedAt", "id");
CREATE UNIQUE INDEX "Claim_executionId_key" ON "Claim"("executionId");
CREATE INDEX "Claim_expiresAt_sessionId_idx" ON "Claim"("expiresAt", "sessionId");
CREATE INDEX "Claim_owner_idx" ON "Claim"("owner");

-- ------------------------------------------------------------------------------- same session by construction
ALTER TABLE "Event" ADD CONSTRAINT "Event_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Input" ADD CONSTRAINT "Input_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Message" ADD CONSTRAINT "Message_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Part" ADD CONSTRAINT "Part_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "ToolCall" ADD CONSTRAINT "ToolCall_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Interaction" ADD CONSTRAINT "Interaction_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Interaction" ADD CONSTRAINT "Interaction_sessionId_messageId_callId_fkey" FOREIGN KEY ("sessionId", "messageId", "callId") REFERENCES "ToolCall"("sessionId", "messageId", "callId") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_assistantMessageId_fkey" FOREIGN KEY ("sessionId", "assistantMessageId") REFERENCES "Message"("sessionId", "id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_continuationMessageId_fkey" FOREIGN KEY ("sessionId", "continuationMessageId") REFERENCES "Input"("sessionId", "id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Quarantine" ADD CONSTRAINT "Quarantine_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Claim" ADD CONSTRAINT "Claim_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id") ON DELETE RESTRICT ON UPDATE RESTRICT;
ALTER TABLE "Chunk" ADD CONSTRAINT "Chunk_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "id") ON DELETE CASCADE ON UPDATE RESTRICT;

-- ------------------------------------------------------- what is owed has an index of its own: a scan costs what is owed
CREATE INDEX "Input_pending" ON "Input"("sessionId", "admittedSeq") WHERE "state" = 'PENDING';
CREATE INDEX "Input_armed" ON "Input"("sessionId") WHERE "wakePending";
CREATE INDEX "Session_owed" ON "Session"("id") WHERE "stepOwed";
CREATE INDEX "Session_parked" ON "Session"("id") WHERE "parkedReason" IS NOT NULL;
CREATE INDEX "Message_running" ON "Message"("sessionId") WHERE "status" = 'RUNNING';
CREATE INDEX "Message_assistant" ON "Message"("sessionId", "seq") WHERE "kind" = 'ASSISTANT';
CREATE INDEX "Part_open" ON "Part"("sessionId", "messageId") WHERE NOT "complete";
CREATE INDEX "ToolCall_open" ON "ToolCall"("sessionId", "messageId") WHERE "settledAt" IS NULL;
CREATE INDEX "Interaction_open" ON "Interaction"("createdAt", "id") WHERE "state" = 'OPEN';
CREATE INDEX "Interaction_open_session" ON "Interaction"("sessionId") WHERE "state" = 'OPEN';
CREATE INDEX "Interaction_armed" ON "Interaction"("sessionId") WHERE "wakePending";
CREATE INDEX "Interaction_remembered" ON "Interaction"("sessionId") WHERE "remember" AND "state" = 'APPROVED';
CREATE INDEX "Interaction_expiring" ON "Interaction"("expiresAt") WHERE "state" = 'OPEN' AND "expiresAt" IS NOT NULL;
CREATE INDEX "Recovery_armed" ON "Recovery"("sessionId") WHERE "wakePending";
CREATE INDEX "Quarantine_open" ON "Quarantine"("sessionId") WHERE "resolvedAt" IS NULL;
-- One execution can be set aside once at a time.
CREATE UNIQUE INDEX "Quarantine_one_open" ON "Quarantine"("sessionId", "executionId", "kind") WHERE "resolvedAt" IS NULL;

-- ------------------------------------------------------------------- at most one terminal, held by the log itself
-- An append can be applied once only, also when its reply was lost and the request arrives late (design section 3, ambiguous commit).
CREATE UNIQUE INDEX "Event_append_once" ON "Event"("appendId") WHERE "ordinal" = 0;
CREATE UNIQUE INDEX "Event_step_terminal" ON "Event"("sessionId", (payload->>'messageId')) WHERE "type" IN ('step.ended', 'step.failed', 'step.interrupted');
CREATE UNIQUE INDEX "Event_tool_terminal" ON "Event"("sessionId", (payload->>'messageId'), (payload->>'callId')) WHERE "type" IN ('tool.succeeded', 'tool.failed');
CREATE UNIQUE INDEX "Event_execution_end" ON "Event"("sessionId", (payload->>'executionId')) WHERE "type" IN ('execution.settled', 'step.recovered');
-- Which executions were interrupted (interruptSession with an executionId, repeated).
CREATE INDEX "Event_interrupted" ON "Event"("sessionId", (payload->>'interruptedExecutionId')) WHERE "type" = 'interrupt.requested';
CREATE UNIQUE INDEX "Event_promoted" ON "Event"("sessionId", (payload->>'messageId')) WHERE "type" = 'prompt.promoted';

CREATE FUNCTION holdfast_event_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'events are immutable: % on "Event" is refused', TG_OP USING ERRCODE = 'HF010';
END $$;
CREATE TRIGGER "Event_immutable" BEFORE UPDATE OR DELETE ON "Event" FOR EACH ROW EXECUTE FUNCTION holdfast_event_is_immutable();
CREATE TRIGGER "Event_not_truncated" BEFORE TRUNCATE ON "Event" FOR EACH STATEMENT EXECUTE FUNCTION holdfast_event_is_immutable();

-- The database's clock. Leases, expiries and event times are judged by it alone; tests shift it by replacing this function.
CREATE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;

-- ----------------------------------------------------------------------------------------- the one door into history
-- holdfast_append(p): a group of appends, at most one per session, in one transaction (design section 3, "Grouped appends").
--
--   p.members[]  { i, s: session, a: append id, ev: [{t, p}], es: expected seq, create,
--                  fx/fo/fp/fl/fe/fd: fence (execution, owner, phases, must be live, exact expiry, must be expired),
--                  ids: ids that must be new, ss/sa: Session columns to set / to add,
--                  c: claim move, acquire|move|remove; co: owner, ct: phase, cm: message id, ck: change the message id, cl: lease in ms }
--   p.rounds[]   projected changes in order; within one round a row is touched once:
--                  eachInput, eachRecovery, eachInteraction (all live rows of a session), <Table>Ins, <Table>Upd
--   p.continued  [{ m, message }] steps of earlier appends that get a part or a tool call: each must still run
--   p.ended      [{ m, message, index }] whose live text goes
--   p.wait       wait for locked sessions instead of passing over them (a lone append)
--   p.origin     who rings the doorbell
--
-- Statement one locks the sessions in id order; statement two reads fences on a fresh snapshot, so an owner that was replaced while
-- this call waited is seen as replaced. A sequence number below zero and the time -infinity are placeholders, relative to this append.
-- Returns { now, r: [{ i, o: ok|locked|missing|exists|fenced|claimed|stale|conflict, seq }] }, or { error, message, constraint } when
-- a rule was violated: then nothing of the group is written.
CREATE FUNCTION holdfast_append(p jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET lock_timeout = '5s'
AS $$
DECLARE
  v_members jsonb := p->'members';
  v_wait boolean := COALESCE((p->>'wait')::boolean, false);
  v_locked text[];
  v_now timestamptz(3);
  v_result jsonb;
  v_i int[]; v_s text[]; v_base int[]; v_n int[];
  v_round jsonb;
  v_expected int; v_count int;
  v_state text; v_message text; v_constraint text;
BEGIN
  IF v_wait THEN
    SELECT array_agg(l.id) INTO v_locked FROM (
      SELECT s.id FROM "Session" s
      WHERE s.id = ANY (ARRAY(SELECT m.s FROM jsonb_to_recordset(v_members) AS m(s text)))
      ORDER BY s.id FOR NO KEY UPDATE) l;
  ELSE
    SELECT array_agg(l.id) INTO v_locked FROM (
      SELECT s.id FROM "Session" s
      WHERE s.id = ANY (ARRAY(SELECT m.s FROM jsonb_to_recordset(v_members) AS m(s text)))
      ORDER BY s.id FOR NO KEY UPDATE SKIP LOCKED) l;
  END IF;
  v_now := holdfast_now();

  SELECT jsonb_agg(jsonb_build_object('i', o.i, 'o', o.outcome, 'seq', o.seq) ORDER BY o.i),
         array_agg(o.i) FILTER (WHERE o.outcome = 'ok'),
         array_agg(o.s) FILTER (WHERE o.outcome = 'ok'),
         array_agg(o.seq) FILTER (WHERE o.outcome = 'ok'),
         array_agg(o.n) FILTER (WHERE o.outcome = 'ok')
    INTO v_result, v_i, v_s, v_base, v_n
    FROM (
      SELECT m.i, m.s, COALESCE(s.seq, 0) AS seq, jsonb_array_length(m.ev) AS n,
        CASE
          WHEN m."create" AND s.id IS NOT NULL THEN 'exists'
          WHEN m."create" AND EXISTS (SELECT 1 FROM unnest(v_locked) k WHERE k = m.s) THEN 'exists'
          WHEN m."create" THEN 'ok'
          WHEN s.id IS NULL THEN 'missing'
          WHEN v_locked IS NULL OR NOT m.s = ANY (v_locked) THEN 'locked'
          WHEN m.fx IS NOT NULL AND NOT COALESCE(
            c."executionId" = m.fx
            AND (m.fo IS NULL OR c.owner = m.fo)
            AND (m.fp IS NULL OR c.phase = ANY (m.fp))
            AND (NOT COALESCE(m.fl, false) OR c."expiresAt" > v_now)
            AND (m.fe IS NULL OR c."expiresAt" = m.fe)
            AND (NOT COALESCE(m.fd, false) OR c."expiresAt" <= v_now), false) THEN 'fenced'
          WHEN m.c = 'acquire' AND c."sessionId" IS NOT NULL THEN 'claimed'
          WHEN COALESCE(m.fn, false) AND c."sessionId" IS NOT NULL THEN 'claimed'
          WHEN m.es IS NOT NULL AND m.es <> s.seq THEN 'stale'
          WHEN m.ids IS NOT NULL AND (
            EXISTS (SELECT 1 FROM "Input" x WHERE x.id = ANY (m.ids))
            OR EXISTS (SELECT 1 FROM "Message" x WHERE x.id = ANY (m.ids))) THEN 'conflict'
          ELSE 'ok'
        END AS outcome
      FROM jsonb_to_recordset(v_members) AS m(i int, s text, ev jsonb, es int, "create" boolean, fx text, fo text, fp text[], fl boolean,
                                               fe timestamptz, fd boolean, fn boolean, ids text[], c text)
      LEFT JOIN "Session" s ON s.id = m.s
      LEFT JOIN "Claim" c ON c."sessionId" = m.s
    ) o;

  IF v_i IS NULL THEN
    RETURN jsonb_build_object('now', v_now, 'r', v_result);
  END IF;

  -- New sessions first: their events refer to them.
  IF p ? 'SessionIns' THEN
    INSERT INTO "Session" (id, tenant, title, instructions, model, seq, "createdAt", "updatedAt")
    SELECT r.id, r.tenant, r.title, r.instructions, r.model, o.n, v_now, v_now
      FROM jsonb_to_recordset(p->'SessionIns') AS c(m int, row jsonb)
      JOIN unnest(v_i, v_n) AS o(i, n) ON o.i = c.m
      CROSS JOIN LATERAL jsonb_populate_record(NULL::"Session", c.row) r
      ORDER BY r.id;
  END IF;

  INSERT INTO "Event" ("sessionId", seq, type, payload, at, "appendId", ordinal)
  SELECT m.s, o.base + e.ordinality, e.value->>'t', e.value->'p', v_now, m.a, e.ordinality - 1
    FROM jsonb_to_recordset(v_members) AS m(i int, s text, a uuid, ev jsonb)
    JOIN unnest(v_i, v_base) AS o(i, base) ON o.i = m.i
    CROSS JOIN LATERAL jsonb_array_elements(m.ev) WITH ORDINALITY AS e(value, ordinality);

  -- Session columns: the watermark, what is set, what is added.
  UPDATE "Session" t
     SET seq = u.base + u.n, "updatedAt" = v_now,
         (title, instructions, model, "stepOwed", "retryAt", recoveries, compactions, "parkedReason", "archivedAt") =
           (SELECT r.title, r.instructions, r.model, r."stepOwed", r."retryAt",
                   r.recoveries + COALESCE((u.sa->>'recoveries')::int, 0), r.compactions + COALESCE((u.sa->>'compactions')::int, 0),
                   r."parkedReason", CASE WHEN r."archivedAt" = '-infinity' THEN v_now ELSE r."archivedAt" END
              FROM jsonb_populate_record(t, COALESCE(u.ss, '{}')) r),
         "inputTokens" = t."inputTokens" + COALESCE((u.sa->>'inputTokens')::bigint, 0),
         "outputTokens" = t."outputTokens" + COALESCE((u.sa->>'outputTokens')::bigint, 0),
         "reasoningTokens" = t."reasoningTokens" + COALESCE((u.sa->>'reasoningTokens')::bigint, 0),
         "cachedInputTokens" = t."cachedInputTokens" + COALESCE((u.sa->>'cachedInputTokens')::bigint, 0)
    FROM (SELECT m.s, m.ss, m.sa, o.base, o.n
            FROM jsonb_to_recordset(v_members) AS m(i int, s text, ss jsonb, sa jsonb)
            JOIN unnest(v_i, v_base, v_n) AS o(i, base, n) ON o.i = m.i AND o.n > 0 OFFSET 0) u
   WHERE t.id = u.s;

  -- Claim moves. The counts close the race with a renewal that found its claim expired.
  SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_members) AS m(i int, c text) WHERE m.c IS NOT NULL AND m.i = ANY (v_i);
  IF v_expected > 0 THEN
    -- Locked in id order, as renewals and chunks do it: the moves below go through the members as they come, and would close a circle.
    PERFORM 1 FROM "Claim" c WHERE c."sessionId" = ANY (v_s) ORDER BY c."sessionId" FOR UPDATE;
    INSERT INTO "Claim" ("sessionId", "executionId", owner, phase, "startedAt", "expiresAt")
    SELECT m.s, m.cx, m.co, 'READY', v_now, v_now + make_interval(secs => m.cl / 1000.0)
      FROM jsonb_to_recordset(v_members) AS m(i int, s text, c text, cx text, co text, cl float8)
     WHERE m.c = 'acquire' AND m.i = ANY (v_i);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_expected := v_expected - v_count;
    UPDATE "Claim" t
       SET phase = u.ct, "messageId" = CASE WHEN u.ck THEN u.cm ELSE t."messageId" END
      FROM (SELECT m.s, m.fx, m.fp, m.ct, m.cm, m.ck
              FROM jsonb_to_recordset(v_members) AS m(i int, s text, c text, fx text, fp text[], ct text, cm text, ck boolean)
             WHERE m.c = 'move' AND m.i = ANY (v_i) OFFSET 0) u
     WHERE t."sessionId" = u.s AND t."executionId" = u.fx AND t.phase = ANY (u.fp);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_expected := v_expected - v_count;
    DELETE FROM "Claim" t
     USING (SELECT m.s, m.fx, m.fe, m.fp
              FROM jsonb_to_recordset(v_members) AS m(i int, s text, c text, fx text, fe timestamptz, fp text[])
             WHERE m.c = 'remove' AND m.i = ANY (v_i) OFFSET 0) u
     WHERE t."sessionId" = u.s AND t."executionId" = u.fx AND (u.fe IS NULL OR t."expiresAt" = u.fe) AND (u.fp IS NULL OR t.phase = ANY (u.fp));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_expected <> v_count THEN
      RAISE EXCEPTION 'a claim moved under its fence' USING ERRCODE = 'HF003';
    END IF;
  END IF;

  -- No part and no tool call enters a settled step. Asked before the rounds: the same append may end the step afterwards. A step that
  -- is not there at all fails its reference.
  IF p ? 'continued' AND EXISTS (
    SELECT 1 FROM (SELECT o.s, c.message FROM jsonb_to_recordset(p->'continued') AS c(m int, message text)
                     JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
     CROSS JOIN LATERAL (SELECT t.kind, t.status FROM "Message" t WHERE t."sessionId" = u.s AND t.id = u.message OFFSET 0) t
     WHERE t.kind <> 'ASSISTANT' OR t.status <> 'RUNNING') THEN
    RAISE EXCEPTION 'a part or a tool call cannot enter a step that does not run' USING ERRCODE = 'HF001', CONSTRAINT = 'step_running';
  END IF;

  FOR v_round IN SELECT value FROM jsonb_array_elements(COALESCE(p->'rounds', '[]')) LOOP
    IF v_round ? 'eachInput' THEN
      UPDATE "Input" t
         SET "wakePending" = COALESCE((u.set->>'wakePending')::boolean, t."wakePending"), state = COALESCE(u.set->>'state', t.state)
        FROM (SELECT o.s, c.set, c."where"->>'kind' AS kind
                FROM jsonb_to_recordset(v_round->'eachInput') AS c(m int, "set" jsonb, "where" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t.state = 'PENDING' AND (u.kind IS NULL OR t.kind = u.kind);
    END IF;
    IF v_round ? 'eachRecovery' THEN
      UPDATE "Recovery" t
         SET "wakePending" = false
        FROM (SELECT o.s, c."where"->>'continuationMessageId' AS continuation
                FROM jsonb_to_recordset(v_round->'eachRecovery') AS c(m int, "where" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t."wakePending" AND (u.continuation IS NULL OR t."continuationMessageId" = u.continuation);
    END IF;
    IF v_round ? 'eachInteraction' THEN
      UPDATE "Interaction" t
         SET "wakePending" = false
        FROM (SELECT o.s, c."where"->>'messageId' AS message, c."where"->>'callId' AS call
                FROM jsonb_to_recordset(v_round->'eachInteraction') AS c(m int, "where" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t."wakePending"
         AND (u.message IS NULL OR t."messageId" = u.message) AND (u.call IS NULL OR t."callId" = u.call);
    END IF;

    IF v_round ? 'InputIns' THEN
      INSERT INTO "Input" (id, "sessionId", kind, text, attachments, "requestedDelivery", delivery, state, "wakePending", "executionRequested",
                           "admittedSeq", "promotedSeq", "createdAt")
      SELECT r.id, o.s, r.kind, r.text, r.attachments, r."requestedDelivery", r.delivery, r.state, r."wakePending", r."executionRequested",
             o.base - r."admittedSeq", CASE WHEN r."promotedSeq" < 0 THEN o.base - r."promotedSeq" ELSE r."promotedSeq" END, v_now
        FROM jsonb_to_recordset(v_round->'InputIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s, v_base) AS o(i, s, base) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Input", c.row) r;
    END IF;
    IF v_round ? 'MessageIns' THEN
      INSERT INTO "Message" (id, "sessionId", kind, seq, "createdAt", text, attachments, hidden, model, "executionId", status, streamed, attempt,
                             finish, "errorCode", "errorMessage", "inputTokens", "outputTokens", "reasoningTokens", "cachedInputTokens",
                             "settledAt", automatic, summary, "tailSeq")
      SELECT r.id, o.s, r.kind, o.base - r.seq, v_now, r.text, r.attachments, r.hidden, r.model, r."executionId", r.status, r.streamed, r.attempt,
             r.finish, r."errorCode", r."errorMessage", r."inputTokens", r."outputTokens", r."reasoningTokens", r."cachedInputTokens",
             CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END, r.automatic, r.summary, r."tailSeq"
        FROM jsonb_to_recordset(v_round->'MessageIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s, v_base) AS o(i, s, base) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Message", c.row) r;
    END IF;
    IF v_round ? 'PartIns' THEN
      INSERT INTO "Part" ("sessionId", "messageId", index, kind, text, complete, state)
      SELECT o.s, r."messageId", r.index, r.kind, r.text, r.complete, r.state
        FROM jsonb_to_recordset(v_round->'PartIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Part", c.row) r;
    END IF;
    IF v_round ? 'ToolCallIns' THEN
      INSERT INTO "ToolCall" ("sessionId", "messageId", "callId", index, name, status, "providerExecuted", input, output, "errorCode",
                              "errorMessage", state, "startedAt", "settledAt")
      SELECT o.s, r."messageId", r."callId", r.index, r.name, r.status, r."providerExecuted", r.input, r.output, r."errorCode",
             r."errorMessage", r.state, CASE WHEN r."startedAt" = '-infinity' THEN v_now ELSE r."startedAt" END,
             CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END
        FROM jsonb_to_recordset(v_round->'ToolCallIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"ToolCall", c.row) r;
    END IF;
    IF v_round ? 'InteractionIns' THEN
      INSERT INTO "Interaction" (id, "sessionId", "messageId", "callId", kind, state, "toolName", "toolInput", prompt, options, answer, feedback,
                                 "editedInput", remember, stops, definition, "wakePending", "expiresAt", "createdAt", "settledAt")
      SELECT r.id, o.s, r."messageId", r."callId", r.kind, r.state, r."toolName", r."toolInput", r.prompt, r.options, r.answer, r.feedback,
             r."editedInput", r.remember, r.stops, r.definition, r."wakePending", r."expiresAt", v_now, CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END
        FROM jsonb_to_recordset(v_round->'InteractionIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Interaction", c.row) r;
    END IF;
    IF v_round ? 'RecoveryIns' THEN
      INSERT INTO "Recovery" (id, "sessionId", "executionId", phase, "assistantMessageId", "continuationMessageId", "wakePending", error, "createdAt")
      SELECT r.id, o.s, r."executionId", r.phase, r."assistantMessageId", r."continuationMessageId", r."wakePending", r.error, v_now
        FROM jsonb_to_recordset(v_round->'RecoveryIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Recovery", c.row) r;
    END IF;
    IF v_round ? 'QuarantineIns' THEN
      INSERT INTO "Quarantine" (id, "sessionId", kind, "executionId", reason, action, "quarantinedAt", "resolvedAt")
      SELECT r.id, o.s, r.kind, r."executionId", r.reason, r.action, v_now, CASE WHEN r."resolvedAt" = '-infinity' THEN v_now ELSE r."resolvedAt" END
        FROM jsonb_to_recordset(v_round->'QuarantineIns') AS c(m int, row jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
        CROSS JOIN LATERAL jsonb_populate_record(NULL::"Quarantine", c.row) r;
    END IF;

    -- Updates touch open rows only; a count that does not match means that a row was missing, foreign or already settled.
    IF v_round ? 'InputUpd' THEN
      UPDATE "Input" t
         SET (delivery, state, "wakePending", "executionRequested", "promotedSeq") =
               (SELECT r.delivery, r.state, r."wakePending", r."executionRequested",
                       CASE WHEN r."promotedSeq" < 0 THEN u.base - r."promotedSeq" ELSE r."promotedSeq" END
                  FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, o.base, c.key->>'id' AS id, c.set
                FROM jsonb_to_recordset(v_round->'InputUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s, v_base) AS o(i, s, base) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t.id = u.id AND t.state = 'PENDING';
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'InputUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'an input is not pending in its session' USING ERRCODE = 'HF001', CONSTRAINT = 'input_pending';
      END IF;
    END IF;
    IF v_round ? 'MessageUpd' THEN
      UPDATE "Message" t
         SET (status, streamed, attempt, finish, "errorCode", "errorMessage", "inputTokens", "outputTokens", "reasoningTokens",
              "cachedInputTokens", "settledAt", summary, "tailSeq") =
               (SELECT r.status, r.streamed, r.attempt, r.finish, r."errorCode", r."errorMessage", r."inputTokens", r."outputTokens",
                       r."reasoningTokens", r."cachedInputTokens", CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END,
                       r.summary, r."tailSeq"
                  FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, c.key->>'id' AS id, c.set
                FROM jsonb_to_recordset(v_round->'MessageUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t.id = u.id AND t.status = 'RUNNING';
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'MessageUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'a message is not running in its session' USING ERRCODE = 'HF001', CONSTRAINT = 'message_running';
      END IF;
    END IF;
    IF v_round ? 'PartUpd' THEN
      UPDATE "Part" t
         SET (text, complete, state) = (SELECT r.text, r.complete, r.state FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, c.key->>'messageId' AS message, (c.key->>'index')::int AS index, c.set
                FROM jsonb_to_recordset(v_round->'PartUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t."messageId" = u.message AND t.index = u.index AND NOT t.complete;
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'PartUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'a part is not open in its message' USING ERRCODE = 'HF001', CONSTRAINT = 'part_open';
      END IF;
    END IF;
    IF v_round ? 'ToolCallUpd' THEN
      UPDATE "ToolCall" t
         SET (status, input, output, "errorCode", "errorMessage", state, "startedAt", "settledAt") =
               (SELECT r.status, r.input, r.output, r."errorCode", r."errorMessage", r.state,
                       CASE WHEN r."startedAt" = '-infinity' THEN v_now ELSE r."startedAt" END,
                       CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END
                  FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, c.key->>'messageId' AS message, c.key->>'callId' AS call, c.set
                FROM jsonb_to_recordset(v_round->'ToolCallUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t."messageId" = u.message AND t."callId" = u.call AND t."settledAt" IS NULL
         AND (NOT u.set ? 'startedAt' OR t."startedAt" IS NULL);
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'ToolCallUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'a tool call is not open in its message' USING ERRCODE = 'HF001', CONSTRAINT = 'tool_call_open';
      END IF;
    END IF;
    IF v_round ? 'InteractionUpd' THEN
      UPDATE "Interaction" t
         SET (state, answer, feedback, "editedInput", remember, stops, "wakePending", "settledAt") =
               (SELECT r.state, r.answer, r.feedback, r."editedInput", r.remember, r.stops, r."wakePending",
                       CASE WHEN r."settledAt" = '-infinity' THEN v_now ELSE r."settledAt" END
                  FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, c.key->>'id' AS id, c.set
                FROM jsonb_to_recordset(v_round->'InteractionUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t.id = u.id AND t.state = 'OPEN';
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'InteractionUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'an interaction is not open in its session' USING ERRCODE = 'HF001', CONSTRAINT = 'interaction_open';
      END IF;
    END IF;
    IF v_round ? 'QuarantineUpd' THEN
      UPDATE "Quarantine" t
         SET (action, "resolvedAt") =
               (SELECT r.action, CASE WHEN r."resolvedAt" = '-infinity' THEN v_now ELSE r."resolvedAt" END FROM jsonb_populate_record(t, u.set) r)
        FROM (SELECT o.s, c.key->>'id' AS id, c.set
                FROM jsonb_to_recordset(v_round->'QuarantineUpd') AS c(m int, key jsonb, "set" jsonb)
                JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
       WHERE t."sessionId" = u.s AND t.id = u.id AND t."resolvedAt" IS NULL;
      GET DIAGNOSTICS v_count = ROW_COUNT;
      SELECT count(*) INTO v_expected FROM jsonb_to_recordset(v_round->'QuarantineUpd') AS c(m int) WHERE c.m = ANY (v_i);
      IF v_count <> v_expected THEN
        RAISE EXCEPTION 'a quarantine entry is not open in its session' USING ERRCODE = 'HF001', CONSTRAINT = 'quarantine_open';
      END IF;
    END IF;

    -- No tool and no part stays open behind a settled step, in the round that settles it.
    IF v_round ? 'MessageUpd' AND EXISTS (
      SELECT 1 FROM jsonb_to_recordset(v_round->'MessageUpd') AS c(m int, key jsonb, "set" jsonb)
        JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m
       WHERE c.set ? 'settledAt' AND (
         EXISTS (SELECT 1 FROM "ToolCall" t WHERE t."sessionId" = o.s AND t."messageId" = c.key->>'id' AND t."settledAt" IS NULL)
         OR EXISTS (SELECT 1 FROM "Part" t WHERE t."sessionId" = o.s AND t."messageId" = c.key->>'id' AND NOT t.complete))) THEN
      RAISE EXCEPTION 'a step cannot settle while a tool call or a part of it is open' USING ERRCODE = 'HF001', CONSTRAINT = 'step_tools_settled';
    END IF;
  END LOOP;

  -- Live text ends with its part; a step's end removes what is left of it.
  IF p ? 'ended' THEN
    DELETE FROM "Chunk" t
     USING (SELECT o.s, c.message, c.index FROM jsonb_to_recordset(p->'ended') AS c(m int, message text, index int)
              JOIN unnest(v_i, v_s) AS o(i, s) ON o.i = c.m OFFSET 0) u
     WHERE t."sessionId" = u.s AND t."messageId" = u.message AND (u.index IS NULL OR t.index = u.index);
  END IF;

  -- The doorbell, inside the commit: short ids, below the 8000 bytes that NOTIFY takes.
  PERFORM pg_notify('holdfast', COALESCE(p->>'origin', '') || '|' || string_agg(k.s, ',' ORDER BY k.s))
     FROM unnest(v_s) WITH ORDINALITY AS k(s, n) GROUP BY (k.n - 1) / 64;
  RETURN jsonb_build_object('now', v_now, 'r', v_result);
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT, v_constraint = CONSTRAINT_NAME;
  RETURN jsonb_build_object('error', v_state, 'message', v_message, 'constraint', v_constraint);
END $$;

-- Live text of open parts, for all sessions of a process in one statement: [{ s, x: execution, o: owner, m: message, i: index, f: offset, t: text }].
-- The claims are locked first, so a takeover waits for these few milliseconds and then removes what was written; the second statement's
-- snapshot sees a part that ended before. Returns the ordinals that were written.
CREATE FUNCTION holdfast_write_chunks(p jsonb) RETURNS int[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET lock_timeout = '5s'
AS $$
DECLARE
  v_now timestamptz := holdfast_now();
  v_held text[];
  v_written int[];
BEGIN
  SELECT array_agg(l."sessionId") INTO v_held FROM (
    SELECT c."sessionId" FROM "Claim" c
      JOIN (SELECT DISTINCT r.s, r.x, r.o FROM jsonb_to_recordset(p) AS r(s text, x text, o text) OFFSET 0) r
        ON c."sessionId" = r.s AND c."executionId" = r.x AND c.owner = r.o
     WHERE c.phase = 'UNKNOWN' AND c."expiresAt" > v_now
     ORDER BY c."sessionId" FOR UPDATE OF c) l;
  IF v_held IS NULL THEN
    RETURN '{}';
  END IF;
  WITH live AS (
    SELECT r.s, r.m, r.i, r.f, r.t, r.n
      FROM ROWS FROM (jsonb_to_recordset(p) AS (s text, m text, i int, f int, t text)) WITH ORDINALITY AS r(s, m, i, f, t, n)
     WHERE r.s = ANY (v_held)
       AND (EXISTS (SELECT 1 FROM "Part" q WHERE q."sessionId" = r.s AND q."messageId" = r.m AND q.index = r.i AND NOT q.complete)
         OR EXISTS (SELECT 1 FROM "ToolCall" q WHERE q."sessionId" = r.s AND q."messageId" = r.m AND q.index = r.i AND q.status = 'STREAMING'))
  ), written AS (
    INSERT INTO "Chunk" ("sessionId", "messageId", index, "offset", text) SELECT s, m, i, f, t FROM live ON CONFLICT DO NOTHING
  )
  SELECT COALESCE(array_agg(n::int - 1 ORDER BY n), '{}') INTO v_written FROM live;
  PERFORM pg_notify('holdfast_chunk', COALESCE(p->0->>'o', '') || '|' || string_agg(k.s, ',' ORDER BY k.s))
     FROM (SELECT d.s, row_number() OVER (ORDER BY d.s) AS n FROM unnest(v_held) AS d(s)) k GROUP BY (k.n - 1) / 64;
  RETURN v_written;
END $$;

-- Renews the named claims of one owner in id order, in one statement; an expired one is not renewed. The row locks are taken first, so
-- that expiry is judged after every wait.
CREATE FUNCTION holdfast_renew(p_owner text, p_executions text[], p_lease_ms float8)
RETURNS TABLE ("sessionId" text, "executionId" text, phase text, "expiresAt" timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
BEGIN
  PERFORM 1 FROM "Claim" c WHERE c."executionId" = ANY (p_executions) AND c.owner = p_owner ORDER BY c."sessionId" FOR NO KEY UPDATE;
  v_now := holdfast_now();
  RETURN QUERY
    UPDATE "Claim" c SET "expiresAt" = v_now + make_interval(secs => p_lease_ms / 1000.0)
     WHERE c."executionId" = ANY (p_executions) AND c.owner = p_owner AND c."expiresAt" > v_now
    RETURNING c."sessionId", c."executionId", c.phase, c."expiresAt"::timestamptz;
END $$;
