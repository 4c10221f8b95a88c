-- Search. Both sides are folded in the same way: compatibility forms and composed letters (NFKC), lower case, ß as ss, final sigma as sigma. Where pg_trgm is there, or may be made,
-- an index finds the words; where not, what a tenant has is gone through. Either way a read has its time limit.

-- Lower case is that of the database where it knows more than ASCII, else of a collation that does.
DO $$
DECLARE v_collation text := '';
BEGIN
  IF lower('ÄΣ') <> 'äσ' THEN
    SELECT format(' COLLATE %I.%I', n.nspname, c.collname) INTO v_collation
      FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
     WHERE c.collname IN ('pg_c_utf8', 'C.utf8', 'und-x-icu') AND c.collencoding IN (-1, (SELECT encoding FROM pg_database WHERE datname = current_database()))
     ORDER BY array_position(ARRAY['pg_c_utf8', 'C.utf8', 'und-x-icu']::name[], c.collname) LIMIT 1;
  END IF;
  -- plpgsql, as it is never inlined: an expression of an index and that of a query stay the same.
  EXECUTE format($f$
    CREATE FUNCTION holdfast_folded(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000
    AS $body$ BEGIN
      RETURN replace(replace(lower(normalize(p_text, NFKC)%s), 'ß', 'ss'), 'ς', 'σ');
    END $body$ $f$, COALESCE(v_collation, ''));
END $$;

-- What of a prompt is in the index. Trigrams of megabytes would make an append of them slow. With the schema's name, as an index is built and
-- analysed without the search path of whoever asks (PostgreSQL 17).
DO $$ BEGIN
  EXECUTE format($f$
    CREATE FUNCTION holdfast_search_head(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000
    AS $body$ BEGIN RETURN %I.holdfast_folded(left(p_text, 1000)); END $body$ $f$, current_schema());
END $$;

-- A word as what LIKE looks for, wherever it stands.
CREATE FUNCTION holdfast_search_pattern(p_word text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$ BEGIN RETURN '%' || regexp_replace(holdfast_folded(p_word), '([\\%_])', '\\\1', 'g') || '%'; END $$;

-- Prompts with more than that are gone through by themselves; a length in bytes is known without reading the text.
CREATE INDEX "Input_long_prompt_idx" ON "Input" ("sessionId") WHERE kind = 'PROMPT' AND octet_length(text) > 1000;

DO $$
DECLARE v_schema text;
BEGIN
  BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
  EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported OR invalid_schema_name THEN
    RAISE NOTICE 'pg_trgm cannot be made here: search goes without an index';
  END;
  SELECT n.nspname INTO v_schema FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm';
  IF v_schema IS NOT NULL THEN
    EXECUTE format('CREATE INDEX "Input_search_idx" ON "Input" USING gin (holdfast_search_head(text) %I.gin_trgm_ops) WHERE kind = ''PROMPT''', v_schema);
    EXECUTE format('CREATE INDEX "Session_search_idx" ON "Session" USING gin (holdfast_folded(title) %I.gin_trgm_ops)', v_schema);
  END IF;
END $$;
