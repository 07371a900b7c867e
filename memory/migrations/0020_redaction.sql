-- Redaction: what may be hidden and taken out, what a reader still learns of it, and that it never comes back.

-- Of which type a redacted value was: the schema's format, else its type.
CREATE FUNCTION value_type(definition jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN coalesce(definition->'schema'->>'format',
    CASE WHEN jsonb_typeof(definition->'schema'->'type') = 'string' THEN definition->'schema'->>'type' END, 'any');
REVOKE ALL ON FUNCTION value_type(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION value_type(jsonb) TO muniment_agent;

-- What was redacted stays so, whoever asks. Only in the way of `required` may it be hidden again, for more to be taken out.
CREATE FUNCTION redaction_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT OLD.redaction_fields <@ NEW.redaction_fields OR NEW.redaction_state = 'none'
     AND (OLD.redaction_state = 'applied' OR cardinality(OLD.redaction_fields) > 0) THEN
    RAISE EXCEPTION 'muniment: what was redacted stays so' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_episode', 'memory_fact', 'memory_evidence', 'memory_candidate'] LOOP
    EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE ON %I FOR EACH ROW WHEN (OLD.redaction_state <> ''none'') EXECUTE FUNCTION'
                   ' redaction_stays()', substr(t, 8) || '_redaction_stays', t);
    EXECUTE format('GRANT UPDATE (redaction_state) ON %I TO muniment_worker', t);
  END LOOP;
END $$;
GRANT UPDATE (redaction_fields) ON memory_episode, memory_fact, memory_evidence, memory_candidate TO muniment_worker;

-- A fact that was redacted has ended, for good.
CREATE FUNCTION fact_redacted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: what was redacted does not hold again' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER fact_redacted BEFORE UPDATE ON memory_fact FOR EACH ROW
  WHEN (OLD.redaction_state <> 'none' AND OLD.ended_by = 'redacted' AND NEW.ended_at IS NULL) EXECUTE FUNCTION fact_redacted();

-- What is left of content is content of its own; it stands in the place of what was taken out, and digests go with that.
GRANT UPDATE (payload_id, value_digest) ON memory_fact TO muniment_worker;
GRANT UPDATE (payload_id, content_digest) ON memory_episode TO muniment_worker;
GRANT UPDATE (value_digest) ON memory_candidate TO muniment_worker;
-- What is hidden is not found either: an entry follows its payload.
GRANT UPDATE (sensitivity, expires_at, restricted, redaction_state, consent_ids) ON memory_searchentry TO muniment_worker;
