-- Same session by construction, for every column that refers to something; what it refers to is of the right kind; at most one end of a
-- compaction.
--
-- A row that breaks one of these is named by the error that undoes this migration. Projected rows are brought to what the log says by
-- `npm run rebuild -- SESSION` of the version before; a claim's step that is not there is forgotten here.

-- ------------------------------------------------------------------------------------------- a reference has a kind
-- Null unless the row is of that kind: a key that only an assistant message, or only a continuation, has.
ALTER TABLE "Message" ADD COLUMN "assistantId" TEXT GENERATED ALWAYS AS (CASE WHEN "kind" = 'ASSISTANT' THEN "id" END) STORED;
ALTER TABLE "Input" ADD COLUMN "continuationId" TEXT GENERATED ALWAYS AS (CASE WHEN "kind" = 'CONTINUATION' THEN "id" END) STORED;
CREATE UNIQUE INDEX "Message_sessionId_assistantId_key" ON "Message"("sessionId", "assistantId");
CREATE UNIQUE INDEX "Input_sessionId_continuationId_key" ON "Input"("sessionId", "continuationId");

-- ---------------------------------------------------------------------------------- an execution belongs to one session
-- The log's execution.started names it first. Whoever else names one that nobody has named gives it to the session of that row.
CREATE TABLE "Execution" (
    "id" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    CONSTRAINT "Execution_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "Execution_sessionId_id_key" ON "Execution"("sessionId", "id");
INSERT INTO "Execution" ("id", "sessionId")
SELECT payload->>'executionId', "sessionId" FROM "Event" WHERE "type" = 'execution.started' AND payload->>'executionId' IS NOT NULL
ON CONFLICT DO NOTHING;
INSERT INTO "Execution" ("id", "sessionId")
SELECT "executionId", "sessionId" FROM "Claim" UNION SELECT "executionId", "sessionId" FROM "Recovery"
UNION SELECT "executionId", "sessionId" FROM "Quarantine" UNION SELECT "executionId", "sessionId" FROM "Message" WHERE "executionId" IS NOT NULL
ON CONFLICT DO NOTHING;
-- Looked at after the row's own reference to its session, which says it better.
ALTER TABLE "Execution" ADD CONSTRAINT "Execution_sessionId_fkey" FOREIGN KEY ("sessionId") REFERENCES "Session"("id")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION holdfast_execution_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO "Execution" ("id", "sessionId") VALUES (NEW."executionId", NEW."sessionId") ON CONFLICT DO NOTHING;
  RETURN NEW;
END $$;
CREATE TRIGGER "Claim_execution_named" BEFORE INSERT OR UPDATE OF "executionId" ON "Claim" FOR EACH ROW EXECUTE FUNCTION holdfast_execution_named();
CREATE TRIGGER "Recovery_execution_named" BEFORE INSERT OR UPDATE OF "executionId" ON "Recovery" FOR EACH ROW EXECUTE FUNCTION holdfast_execution_named();
CREATE TRIGGER "Quarantine_execution_named" BEFORE INSERT OR UPDATE OF "executionId" ON "Quarantine" FOR EACH ROW EXECUTE FUNCTION holdfast_execution_named();
CREATE TRIGGER "Message_execution_named" BEFORE INSERT OR UPDATE OF "executionId" ON "Message" FOR EACH ROW
    WHEN (NEW."executionId" IS NOT NULL) EXECUTE FUNCTION holdfast_execution_named();

CREATE FUNCTION holdfast_execution_started() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO "Execution" ("id", "sessionId") VALUES (NEW.payload->>'executionId', NEW."sessionId") ON CONFLICT DO NOTHING;
  IF NOT EXISTS (SELECT 1 FROM "Execution" x WHERE x.id = NEW.payload->>'executionId' AND x."sessionId" = NEW."sessionId") THEN
    RAISE EXCEPTION 'the execution % belongs to another session', NEW.payload->>'executionId'
      USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'Event_execution_fkey';
  END IF;
  RETURN NULL;
END $$;
-- At the commit: a second claim of an execution, in the same append, says better what is wrong.
CREATE CONSTRAINT TRIGGER "Event_execution_started" AFTER INSERT ON "Event" DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW."type" = 'execution.started') EXECUTE FUNCTION holdfast_execution_started();

-- -------------------------------------------------------------------------------------------------- the references
-- Deferrable, so that a rebuild can bring rows to what the log says in any order.
UPDATE "Claim" c SET "messageId" = NULL
 WHERE "messageId" IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "Message" m WHERE m."sessionId" = c."sessionId" AND m."id" = c."messageId");
ALTER TABLE "Claim" ADD CONSTRAINT "Claim_sessionId_executionId_fkey" FOREIGN KEY ("sessionId", "executionId") REFERENCES "Execution"("sessionId", "id")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_executionId_fkey" FOREIGN KEY ("sessionId", "executionId") REFERENCES "Execution"("sessionId", "id")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Quarantine" ADD CONSTRAINT "Quarantine_sessionId_executionId_fkey" FOREIGN KEY ("sessionId", "executionId") REFERENCES "Execution"("sessionId", "id")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Claim" ADD CONSTRAINT "Claim_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "id")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Recovery" DROP CONSTRAINT "Recovery_sessionId_assistantMessageId_fkey";
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_assistantMessageId_fkey" FOREIGN KEY ("sessionId", "assistantMessageId") REFERENCES "Message"("sessionId", "assistantId")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Recovery" DROP CONSTRAINT "Recovery_sessionId_continuationMessageId_fkey";
ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_continuationMessageId_fkey" FOREIGN KEY ("sessionId", "continuationMessageId") REFERENCES "Input"("sessionId", "continuationId")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Part" DROP CONSTRAINT "Part_sessionId_messageId_fkey";
ALTER TABLE "Part" ADD CONSTRAINT "Part_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "assistantId")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "ToolCall" DROP CONSTRAINT "ToolCall_sessionId_messageId_fkey";
ALTER TABLE "ToolCall" ADD CONSTRAINT "ToolCall_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "assistantId")
    ON DELETE NO ACTION ON UPDATE NO ACTION DEFERRABLE;
ALTER TABLE "Chunk" DROP CONSTRAINT "Chunk_sessionId_messageId_fkey";
ALTER TABLE "Chunk" ADD CONSTRAINT "Chunk_sessionId_messageId_fkey" FOREIGN KEY ("sessionId", "messageId") REFERENCES "Message"("sessionId", "assistantId")
    ON DELETE CASCADE ON UPDATE NO ACTION DEFERRABLE;

-- ----------------------------------------------------------------------------------------- at most one end, in the log
CREATE UNIQUE INDEX "Event_compaction_terminal" ON "Event"("sessionId", (payload->>'messageId')) WHERE "type" IN ('compaction.ended', 'compaction.failed');
-- An end says of what: null is equal to nothing, so that two ends of it would pass.
ALTER TABLE "Event" ADD CONSTRAINT "Event_terminal_check" CHECK (
    CASE
        WHEN "type" IN ('step.ended', 'step.failed', 'step.interrupted', 'compaction.ended', 'compaction.failed', 'prompt.promoted') THEN payload->>'messageId' IS NOT NULL
        WHEN "type" IN ('tool.succeeded', 'tool.failed') THEN payload->>'messageId' IS NOT NULL AND payload->>'callId' IS NOT NULL
        WHEN "type" IN ('execution.started', 'execution.settled', 'step.recovered') THEN payload->>'executionId' IS NOT NULL
        WHEN "type" = 'interaction.settled' THEN payload->>'interactionId' IS NOT NULL
        WHEN "type" = 'quarantine.resolved' THEN payload->>'quarantineId' IS NOT NULL
        ELSE true
    END);

-- ---------------------------------------------------------------------------------------------- the one door into history
-- The append function moves the claim before it inserts the step that the claim names, so that reference is looked at when both are done.
ALTER FUNCTION holdfast_append(jsonb) RENAME TO holdfast_append_rows;
CREATE FUNCTION holdfast_append(p jsonb) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
  v_answer jsonb;
  v_state text; v_message text; v_constraint text;
BEGIN
  SET CONSTRAINTS "Claim_sessionId_messageId_fkey" DEFERRED;
  v_answer := holdfast_append_rows(p);
  SET CONSTRAINTS "Claim_sessionId_messageId_fkey" IMMEDIATE;
  RETURN v_answer;
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT, v_constraint = CONSTRAINT_NAME;
  RETURN jsonb_build_object('error', v_state, 'message', v_message, 'constraint', v_constraint);
END $$;
