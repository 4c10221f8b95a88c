-- Live text without holes, and token counts that every reader can show.

-- ------------------------------------------------------------------------------------------------- live text in one piece
-- As before (20261129000000_ground), for all sessions of a process in one statement:
-- [{ s, x: execution, o: owner, m: message, i: index, f: offset, t: text, p: offset of the chunk before it, none for the first }].
-- A flush whose reply was lost is sent again from the same offset, with what has come since: of two texts from one offset the longer one
-- holds the other, whichever arrives first. And a chunk is taken behind the one that its owner knows only, so that there is never a hole;
-- one that is refused is sent again from the beginning. Returns the ordinals that are there now.
CREATE OR REPLACE FUNCTION holdfast_write_chunks(p jsonb) RETURNS int[]
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
      FROM ROWS FROM (jsonb_to_recordset(p) AS (s text, m text, i int, f int, t text, p int)) WITH ORDINALITY AS r(s, m, i, f, t, p, n)
     WHERE r.s = ANY (v_held)
       AND (r.p IS NULL OR EXISTS (
         SELECT 1 FROM "Chunk" b WHERE b."sessionId" = r.s AND b."messageId" = r.m AND b.index = r.i AND b."offset" = r.p))
       AND (EXISTS (SELECT 1 FROM "Part" q WHERE q."sessionId" = r.s AND q."messageId" = r.m AND q.index = r.i AND NOT q.complete)
         OR EXISTS (SELECT 1 FROM "ToolCall" q WHERE q."sessionId" = r.s AND q."messageId" = r.m AND q.index = r.i AND q.status = 'STREAMING'))
  ), written AS (
    INSERT INTO "Chunk" AS c ("sessionId", "messageId", index, "offset", text) SELECT s, m, i, f, t FROM live
    ON CONFLICT ("sessionId", "messageId", index, "offset") DO UPDATE SET text = EXCLUDED.text
     WHERE length(EXCLUDED.text) > length(c.text)
  )
  SELECT COALESCE(array_agg(n::int - 1 ORDER BY n), '{}') INTO v_written FROM live;
  PERFORM pg_notify('holdfast_chunk', COALESCE(p->0->>'o', '') || '|' || string_agg(k.s, ',' ORDER BY k.s))
     FROM (SELECT d.s, row_number() OVER (ORDER BY d.s) AS n FROM unnest(v_held) AS d(s)) k GROUP BY (k.n - 1) / 64;
  RETURN v_written;
END $$;

-- --------------------------------------------------------------------------------------------------------- token counts
-- A count ends where a JSON number stops being exact, and a sum of counts stays there (src/tokens.ts does the same on replay). Above it
-- nothing is added, so a sum never leaves bigint either, which would refuse the end of the step that is added.
CREATE FUNCTION holdfast_tokens_end() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_max CONSTANT bigint := 9007199254740991;
BEGIN
  NEW."inputTokens" := least(NEW."inputTokens", v_max);
  NEW."outputTokens" := least(NEW."outputTokens", v_max);
  NEW."reasoningTokens" := least(NEW."reasoningTokens", v_max);
  NEW."cachedInputTokens" := least(NEW."cachedInputTokens", v_max);
  RETURN NEW;
END $$;
CREATE TRIGGER "Session_tokens_end" BEFORE UPDATE ON "Session" FOR EACH ROW
  WHEN (greatest(NEW."inputTokens", NEW."outputTokens", NEW."reasoningTokens", NEW."cachedInputTokens") > 9007199254740991)
  EXECUTE FUNCTION holdfast_tokens_end();

-- What earlier versions have let through: brought to what a replay gives now.
UPDATE "Session" SET "inputTokens" = "inputTokens"
 WHERE greatest("inputTokens", "outputTokens", "reasoningTokens", "cachedInputTokens") > 9007199254740991;
UPDATE "Message"
   SET "inputTokens" = least("inputTokens", 9007199254740991), "outputTokens" = least("outputTokens", 9007199254740991),
       "reasoningTokens" = least("reasoningTokens", 9007199254740991), "cachedInputTokens" = least("cachedInputTokens", 9007199254740991)
 WHERE greatest("inputTokens", "outputTokens", "reasoningTokens", "cachedInputTokens") > 9007199254740991;
