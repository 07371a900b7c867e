-- How content is removed: by the worker's role, only what has ended, and nothing that still tells when a value ceased to hold.

-- content that is removed ------------------------------------------------------------------------------------------
ALTER TABLE memory_payload
  ADD CONSTRAINT payload_ended_is_empty CHECK ((ended_at IS NULL) = (clear IS NOT NULL OR sealed IS NOT NULL)) NOT VALID;
UPDATE memory_payload SET ended_at = clock_timestamp() WHERE clear IS NULL AND sealed IS NULL;
ALTER TABLE memory_payload VALIDATE CONSTRAINT payload_ended_is_empty;

-- What was said is deleted only once it is empty; what was made of it at any time.
DROP TRIGGER payload_kept ON memory_payload;
CREATE OR REPLACE FUNCTION payload_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: only what is derived, or empty, is thrown away' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER payload_kept BEFORE DELETE ON memory_payload FOR EACH ROW
  WHEN (OLD.purpose <> 'derived' AND (OLD.ended_at IS NULL OR current_user <> 'muniment_worker'))
  EXECUTE FUNCTION payload_kept();
-- Whoever removes content writes none.
CREATE FUNCTION payload_only_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: endings empty content, they write none' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER payload_only_emptied BEFORE UPDATE OF clear, sealed ON memory_payload FOR EACH ROW
  WHEN (current_user = 'muniment_worker' AND (NEW.clear IS NOT NULL OR NEW.sealed IS NOT NULL))
  EXECUTE FUNCTION payload_only_emptied();
-- Content does not come back.
CREATE FUNCTION payload_ended_for_good() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: content that was removed does not come back' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER payload_ended_for_good BEFORE UPDATE ON memory_payload FOR EACH ROW
  WHEN (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at)
  EXECUTE FUNCTION payload_ended_for_good();

-- rows that are removed --------------------------------------------------------------------------------------------
CREATE FUNCTION fact_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: a fact that has not ended is not removed' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER fact_kept BEFORE DELETE ON memory_fact FOR EACH ROW WHEN (OLD.ended_at IS NULL) EXECUTE FUNCTION fact_kept();

-- A saying goes with its fact; an end that names no value goes once its own life is over.
CREATE FUNCTION evidence_over(p_tenant uuid, p_fact uuid, p_evidence uuid) RETURNS boolean LANGUAGE sql STABLE
  RETURN CASE WHEN p_fact IS NOT NULL
    THEN EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = p_tenant AND f.id = p_fact AND f.ended_at IS NOT NULL)
    ELSE EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = p_tenant AND e.id = p_evidence
      AND CASE WHEN e.fact_id IS NULL THEN e.expires_at <= clock_timestamp() OR e.redaction_state = 'applied'
        ELSE EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = p_tenant AND f.id = e.fact_id AND f.ended_at IS NOT NULL)
        END) END;
REVOKE ALL ON FUNCTION evidence_over(uuid, uuid, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION evidence_over(uuid, uuid, uuid) TO muniment_worker;
CREATE FUNCTION evidence_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT evidence_over(OLD.tenant_id, OLD.fact_id, OLD.id) THEN
    RAISE EXCEPTION 'muniment: evidence of what has not ended is not removed' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER evidence_kept BEFORE DELETE ON memory_evidence FOR EACH ROW EXECUTE FUNCTION evidence_kept();

-- What was opened by the key's very newest act may be taken out by a writer; what shows nothing any more, by an ending.
CREATE OR REPLACE FUNCTION belief_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_user = 'muniment_worker' THEN
    IF evidence_over(OLD.tenant_id, OLD.fact_id, OLD.evidence_id) THEN
      RETURN OLD;
    END IF;
  ELSIF EXISTS (SELECT FROM memory_factkey k WHERE k.tenant_id = OLD.tenant_id AND k.id = OLD.key_id
                AND k.newest_at = OLD.believed_from) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'muniment: what was believed is not removed' USING ERRCODE = 'restrict_violation';
END $$;

CREATE FUNCTION content_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = OLD.tenant_id AND p.id = OLD.payload_id AND p.ended_at IS NULL) THEN
    RAISE EXCEPTION 'muniment: % whose content stands is not removed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER episode_kept BEFORE DELETE ON memory_episode FOR EACH ROW EXECUTE FUNCTION content_kept();
CREATE TRIGGER candidate_kept BEFORE DELETE ON memory_candidate FOR EACH ROW EXECUTE FUNCTION content_kept();
CREATE TRIGGER subject_kept BEFORE DELETE ON memory_subject FOR EACH ROW EXECUTE FUNCTION content_kept();
CREATE TRIGGER subjectidentifier_kept BEFORE DELETE ON memory_subjectidentifier FOR EACH ROW EXECUTE FUNCTION content_kept();

-- What a saying corrected may end before it: the pointer goes then, and nothing else of the saying changes.
ALTER TABLE memory_evidence DROP CONSTRAINT evidence_corrects,
  ADD CONSTRAINT evidence_corrects FOREIGN KEY (tenant_id, corrects_id) REFERENCES memory_evidence (tenant_id, id)
    ON DELETE SET NULL (corrects_id) NOT VALID;
ALTER TABLE memory_evidence VALIDATE CONSTRAINT evidence_corrects;
CREATE OR REPLACE FUNCTION evidence_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.retracted_at IS NOT NULL AND (NEW.retracted_at, NEW.retracted_by, NEW.retraction_reason)
       IS DISTINCT FROM (OLD.retracted_at, OLD.retracted_by, OLD.retraction_reason) THEN
    RAISE EXCEPTION 'muniment: evidence is retracted once' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.tenant_id, NEW.id, NEW.key_id, NEW.fact_id, NEW.is_end, NEW.valid_from, NEW.stated_to, NEW.recorded_at, NEW.act_no,
      NEW.rank, NEW.confirmed, NEW.source, NEW.turn_id, NEW.tool_call_id, NEW.writer_kind, NEW.writer_id, NEW.written_at,
      NEW.episode_id, coalesce(NEW.corrects_id, OLD.corrects_id), NEW.imported)
     IS DISTINCT FROM
     (OLD.tenant_id, OLD.id, OLD.key_id, OLD.fact_id, OLD.is_end, OLD.valid_from, OLD.stated_to, OLD.recorded_at, OLD.act_no,
      OLD.rank, OLD.confirmed, OLD.source, OLD.turn_id, OLD.tool_call_id, OLD.writer_kind, OLD.writer_id, OLD.written_at,
      OLD.episode_id, OLD.corrects_id, OLD.imported)
     OR NEW.quote_id IS DISTINCT FROM OLD.quote_id AND NEW.quote_id IS NOT NULL THEN
    RAISE EXCEPTION 'muniment: what was said never changes' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;

-- who may ----------------------------------------------------------------------------------------------------------
-- Of content the worker sees that it is there and of which kind, never what it says.
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_subjectidentifier', 'memory_extraction', 'memory_derived', 'memory_derivedsource'] LOOP
    EXECUTE format('CREATE POLICY worker_ends ON %I TO muniment_worker'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;
GRANT SELECT (tenant_id, id, purpose, key_id, written_at, ended_at, sensitivity, expires_at, redaction_state, redaction_fields)
  ON memory_payload TO muniment_worker;
GRANT SELECT ON memory_subjectidentifier, memory_extraction, memory_derived, memory_derivedsource TO muniment_worker;
GRANT UPDATE (clear, sealed, key_id, ended_at, redaction_state) ON memory_payload TO muniment_worker;
GRANT UPDATE (redaction_state) ON memory_fact, memory_episode TO muniment_worker;
GRANT UPDATE (quote_id) ON memory_evidence TO muniment_worker;
GRANT UPDATE (state, decided_at, decision_reason, redaction_state) ON memory_candidate TO muniment_worker;
GRANT UPDATE (quote_id) ON memory_candidatesaying TO muniment_worker;
GRANT DELETE ON memory_payload, memory_subject, memory_subjectidentifier, memory_episode, memory_extraction, memory_factkey,
  memory_fact, memory_evidence, memory_belief, memory_candidate, memory_candidatesaying, memory_searchentry, memory_derived,
  tenants_subjectkey TO muniment_worker;
