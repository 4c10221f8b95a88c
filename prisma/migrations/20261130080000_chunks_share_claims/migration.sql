-- As before (20261130020000_chunks_and_counts), but a flush shares the claims with their renewal. It holds them until its commit, many times a
-- second, and a renewal passes over what is locked: where commits are slow, an owner's own flushes would cost it its leases.
-- FOR KEY SHARE lets pass what leaves the keys alone: a renewal. It waits for whoever holds the row FOR UPDATE, and they for it. All that moves
-- or removes a claim has to lock it so before: holdfast_append does before all of its moves, and a DELETE by itself. A move that only updated
-- the phase would go past a flush, and text would be written behind an interrupt.
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
     ORDER BY c."sessionId" FOR KEY SHARE OF c) l;
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
