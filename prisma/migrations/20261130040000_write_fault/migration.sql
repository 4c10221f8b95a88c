-- Can this database take writes now? Asked by /readyz. Null: it can; else the SQLSTATE of what keeps it from that.
--
-- A standby and a read-only server say so by themselves. Room on the disk is asked for with a temporary file of a megabyte, which lies
-- where the tables lie, unless temp_tablespaces says otherwise, and leaves nothing behind. With p_try, after an append has failed, the
-- append function itself writes a session of 64 kB, which is then undone: whatever refused that append refuses this one.
CREATE FUNCTION holdfast_write_fault(p_try boolean) RETURNS text
LANGUAGE plpgsql
SET work_mem = '64kB'
SET lock_timeout = '2s'
AS $$
DECLARE
  v_id text := 'ses_.' || replace(gen_random_uuid()::text, '-', '');
  v_answer jsonb;
BEGIN
  IF pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean THEN
    RETURN '25006';
  END IF;
  BEGIN
    WITH room AS MATERIALIZED (SELECT repeat('x', 8000) || n AS t FROM generate_series(1, 128) n)
    SELECT to_jsonb(sum(length(room.t))) INTO v_answer FROM room;
  EXCEPTION
    -- A limit on temporary files says nothing about tables.
    WHEN configuration_limit_exceeded THEN NULL;
  END;
  IF NOT p_try THEN
    RETURN NULL;
  END IF;
  BEGIN
    v_answer := holdfast_append(jsonb_build_object(
      'members', jsonb_build_array(jsonb_build_object('i', 0, 's', v_id, 'a', gen_random_uuid(), 'create', true, 'ev', jsonb_build_array(
        jsonb_build_object('t', 'session.created', 'p', (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 2048)))))),
      'SessionIns', jsonb_build_array(jsonb_build_object('m', 0, 'row', jsonb_build_object('id', v_id, 'tenant', '', 'model', ''))),
      'wait', true));
    RAISE EXCEPTION 'undone' USING ERRCODE = 'HF099';
  EXCEPTION WHEN SQLSTATE 'HF099' THEN
    RETURN v_answer->>'error';
  END;
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;
