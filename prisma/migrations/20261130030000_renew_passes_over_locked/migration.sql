-- A renewal waits for nobody: one claim that a transaction holds which stands still must not cost all others of its owner their leases.
-- A claim that is locked is passed over, so it is not in the answer; its owner looks whether it is still there, and asks again soon.
-- Nothing else here waits for long either: a lock of the whole table is somebody's maintenance.
CREATE OR REPLACE FUNCTION holdfast_renew(p_owner text, p_executions text[], p_lease_ms float8)
RETURNS TABLE ("sessionId" text, "executionId" text, phase text, "expiresAt" timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_free text[];
BEGIN
  SELECT array_agg(l."sessionId") INTO v_free FROM (
    SELECT c."sessionId" FROM "Claim" c
     WHERE c."executionId" = ANY (p_executions) AND c.owner = p_owner
       FOR NO KEY UPDATE SKIP LOCKED) l;
  v_now := holdfast_now();
  RETURN QUERY
    UPDATE "Claim" c SET "expiresAt" = v_now + make_interval(secs => p_lease_ms / 1000.0)
     WHERE c."sessionId" = ANY (v_free)
       AND c."executionId" = ANY (p_executions) AND c.owner = p_owner AND c."expiresAt" > v_now
    RETURNING c."sessionId", c."executionId", c.phase, c."expiresAt"::timestamptz;
END $$;
