-- Sessions that were closed and contracts that ended, what rests on them, and that a date only moves to an earlier one.

ALTER TABLE memory_term
  DROP CONSTRAINT memory_term_pkey,
  ADD CONSTRAINT memory_term_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT term_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT term_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT term_policy FOREIGN KEY (tenant_id, policy_version_id) REFERENCES policies_policyversion (tenant_id, id),
  ADD CONSTRAINT term_kind_known CHECK (kind IN ('session', 'contract')),
  -- A session is one agent's; a contract is the organisation's, whoever wrote on it.
  ADD CONSTRAINT term_whose CHECK ((kind = 'session') = (writer_id IS NOT NULL) AND (kind = 'session' OR subject_id IS NULL)),
  ADD CONSTRAINT term_a_date_a_class CHECK (cardinality(due_at) = 4),
  ADD CONSTRAINT term_ended_by_known CHECK (ended_by_kind IN ('agent', 'person', 'job', 'operator')),
  -- It is over once.
  ADD CONSTRAINT term_once UNIQUE NULLS NOT DISTINCT (tenant_id, ref, kind, writer_id, subject_id);

ALTER TABLE memory_term ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_term FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON memory_term TO muniment_writer, muniment_worker
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
CREATE POLICY staff_reads ON memory_term FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON memory_term TO muniment_writer;
GRANT SELECT ON memory_term TO muniment_worker, muniment_staff;

CREATE INDEX evidence_by_session ON memory_evidence (tenant_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX evidence_by_contract ON memory_evidence (tenant_id, contract_ref) WHERE contract_ref IS NOT NULL;
CREATE INDEX episode_by_contract ON memory_episode (tenant_id, contract_ref) WHERE contract_ref IS NOT NULL;
CREATE INDEX candidatesaying_by_session ON memory_candidatesaying (tenant_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX candidatesaying_by_contract ON memory_candidatesaying (tenant_id, contract_ref) WHERE contract_ref IS NOT NULL;
CREATE INDEX candidatesaying_by_consent ON memory_candidatesaying (tenant_id, consent_id) WHERE consent_id IS NOT NULL;

-- Nothing is kept longer in silence. A fact follows its evidence, and evidence is never given a later end.
CREATE FUNCTION expires_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.expires_at IS NULL OR NEW.expires_at > OLD.expires_at THEN
    RAISE EXCEPTION 'muniment: nothing is kept longer than was said' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER evidence_expires_earlier BEFORE UPDATE OF expires_at ON memory_evidence
  FOR EACH ROW WHEN (OLD.expires_at IS NOT NULL) EXECUTE FUNCTION expires_earlier();
CREATE TRIGGER episode_expires_earlier BEFORE UPDATE OF expires_at ON memory_episode
  FOR EACH ROW WHEN (OLD.expires_at IS NOT NULL) EXECUTE FUNCTION expires_earlier();
CREATE TRIGGER candidatesaying_expires_earlier BEFORE UPDATE OF expires_at ON memory_candidatesaying
  FOR EACH ROW WHEN (OLD.expires_at IS NOT NULL) EXECUTE FUNCTION expires_earlier();

-- The background work moves dates; it sees what rows say of themselves, and no content.
ALTER POLICY own_tenant ON memory_payload TO muniment_writer, muniment_worker;
ALTER POLICY own_tenant ON memory_episode TO muniment_writer, muniment_worker;
ALTER POLICY own_tenant ON memory_candidate TO muniment_writer, muniment_worker;
ALTER POLICY own_tenant ON memory_candidatesaying TO muniment_writer, muniment_worker;
ALTER POLICY own_tenant ON memory_searchentry TO muniment_writer, muniment_worker;
GRANT SELECT (tenant_id, id, expires_at) ON memory_payload TO muniment_worker;
GRANT SELECT ON memory_episode, memory_candidate, memory_candidatesaying TO muniment_worker;
GRANT SELECT (tenant_id, payload_id), UPDATE (sensitivity, expires_at, restricted, redaction_state, consent_ids)
  ON memory_searchentry TO muniment_worker;
GRANT UPDATE (expires_at) ON memory_evidence, memory_episode, memory_candidate, memory_candidatesaying TO muniment_worker;
GRANT UPDATE (expires_at, basis) ON memory_fact, memory_payload TO muniment_worker;
