-- Composite keys, row-level security, grants and the guards of the ledger.

-- keys and links ---------------------------------------------------------------------------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_subject', 'memory_subjectidentifier', 'memory_episode', 'memory_factkey',
      'memory_fact', 'memory_evidence', 'memory_belief', 'memory_candidate', 'memory_candidatesaying', 'memory_receipt',
      'memory_idempotencyrecord', 'memory_outboxentry'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO %s'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t,
                   -- Of content, names and proposals the background work sees nothing.
                   CASE WHEN t IN ('memory_payload', 'memory_subjectidentifier', 'memory_episode', 'memory_candidate',
                                   'memory_candidatesaying')
                        THEN 'muniment_writer' ELSE 'muniment_writer, muniment_worker' END);
  END LOOP;
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_episode', 'memory_fact', 'memory_evidence', 'memory_candidate'] LOOP
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (sensitivity BETWEEN 0 AND 3)', t, substr(t, 8) || '_class_known');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (basis IN (''session'', ''consent'', ''contract'', ''indefinite''))',
                   t, substr(t, 8) || '_basis_known');
    -- A row without an expiry is one that may stay: nothing is kept for ever because a date was forgotten.
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK ((expires_at IS NULL) = (basis = ''indefinite''))',
                   t, substr(t, 8) || '_expiry_by_basis');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (redaction_state IN (''none'', ''required'', ''applied''))',
                   t, substr(t, 8) || '_redaction_known');
    EXECUTE format('ALTER TABLE %I ALTER redaction_state SET DEFAULT ''none'', ALTER redaction_fields SET DEFAULT ''{}'','
                   ' ALTER restricted SET DEFAULT false', t);
  END LOOP;
END $$;

ALTER TABLE memory_payload
  ADD CONSTRAINT payload_key FOREIGN KEY (tenant_id, key_id) REFERENCES tenants_subjectkey (tenant_id, id),
  ADD CONSTRAINT payload_one_form CHECK (clear IS NULL OR sealed IS NULL),
  ADD CONSTRAINT payload_content_until_it_ends CHECK (redaction_state = 'applied' OR clear IS NOT NULL OR sealed IS NOT NULL),
  ADD CONSTRAINT payload_sealed_by_a_key CHECK (sealed IS NULL OR key_id IS NOT NULL),
  -- What is personal or restricted is never stored in clear.
  ADD CONSTRAINT payload_personal_is_sealed CHECK (clear IS NULL OR sensitivity <= 1),
  ADD CONSTRAINT payload_purpose_known CHECK (purpose IN ('subject', 'alias', 'episode', 'value', 'quote', 'candidate'));
-- Statistics would keep samples of content.
ALTER TABLE memory_payload ALTER clear SET STATISTICS 0, ALTER sealed SET STATISTICS 0;

ALTER TABLE memory_subject
  ADD CONSTRAINT subject_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT subject_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT subject_key FOREIGN KEY (tenant_id, key_id) REFERENCES tenants_subjectkey (tenant_id, id),
  ADD CONSTRAINT subject_kind_shape CHECK (kind ~ '^[a-z][a-z0-9_]{0,39}$'),
  ADD CONSTRAINT subject_lock_inert CHECK (lock_no = 0),
  ALTER lock_no SET DEFAULT 0, ALTER restricted SET DEFAULT false, ALTER kind SET DEFAULT 'entity';

ALTER TABLE memory_subjectidentifier
  -- Checked at the commit: a name is claimed before the subject that it names is made.
  ADD CONSTRAINT subjectidentifier_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id)
    DEFERRABLE INITIALLY DEFERRED,
  ADD CONSTRAINT subjectidentifier_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id)
    DEFERRABLE INITIALLY DEFERRED,
  ADD CONSTRAINT subjectidentifier_once UNIQUE (tenant_id, digest);
CREATE UNIQUE INDEX subjectidentifier_one_key ON memory_subjectidentifier (tenant_id, subject_id) WHERE is_key;
CREATE INDEX subjectidentifier_by_subject ON memory_subjectidentifier (tenant_id, subject_id);

ALTER TABLE policies_consent
  ADD CONSTRAINT consent_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id);

ALTER TABLE memory_episode
  ADD CONSTRAINT episode_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT episode_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT episode_consent FOREIGN KEY (tenant_id, consent_id) REFERENCES policies_consent (tenant_id, id),
  ADD CONSTRAINT episode_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT episode_policy FOREIGN KEY (tenant_id, policy_version_id) REFERENCES policies_policyversion (tenant_id, id),
  ADD CONSTRAINT episode_kind_known CHECK (kind IN ('message', 'tool_result', 'event')),
  ADD CONSTRAINT episode_role_known CHECK (role IN ('user', 'assistant', 'system', 'tool')),
  ADD CONSTRAINT episode_tool_call CHECK (kind <> 'tool_result' OR tool_call_id IS NOT NULL),
  ADD CONSTRAINT episode_consent_named CHECK (basis <> 'consent' OR consent_id IS NOT NULL),
  ALTER extraction SET DEFAULT 'none';
-- One source is one episode: a source sent again is found, not stored again.
CREATE UNIQUE INDEX episode_source_once ON memory_episode
  (tenant_id, writer_id, session_id, turn_id, subject_id, tool_call_id, kind) NULLS NOT DISTINCT;
CREATE INDEX episode_by_subject ON memory_episode (tenant_id, subject_id, id);
CREATE INDEX episode_by_consent ON memory_episode (tenant_id, consent_id) WHERE consent_id IS NOT NULL;

CREATE SEQUENCE memory_chain_no AS bigint;
ALTER SEQUENCE memory_chain_no OWNED BY memory_factkey.chain_no;
ALTER TABLE memory_factkey
  ADD CONSTRAINT factkey_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT factkey_attribute FOREIGN KEY (tenant_id, attribute_id) REFERENCES policies_attribute (tenant_id, id),
  ADD CONSTRAINT factkey_once UNIQUE (tenant_id, subject_id, attribute_id),
  ALTER chain_no SET DEFAULT nextval('memory_chain_no'), ALTER act_no SET DEFAULT 0, ALTER checked_act_no SET DEFAULT 0;
CREATE INDEX factkey_by_subject ON memory_factkey (tenant_id, subject_id, id);

ALTER TABLE memory_fact
  ADD CONSTRAINT fact_key FOREIGN KEY (tenant_id, key_id) REFERENCES memory_factkey (tenant_id, id),
  ADD CONSTRAINT fact_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT fact_version FOREIGN KEY (tenant_id, attribute_version_id) REFERENCES policies_attributeversion (tenant_id, id),
  ADD CONSTRAINT fact_confidence_share CHECK (confidence BETWEEN 0 AND 1),
  ADD CONSTRAINT fact_end_has_a_cause CHECK ((ended_at IS NULL) = (ended_by IS NULL)),
  ADD CONSTRAINT fact_end_known CHECK (ended_by IN ('expired', 'consent_withdrawn', 'redacted', 'erased')),
  ALTER confirmed SET DEFAULT false, ALTER evidence_count SET DEFAULT 0;
-- Among facts that have not ended a value stands once in a key (a multi-valued key has one chain a value).
CREATE UNIQUE INDEX fact_value_once ON memory_fact (tenant_id, key_id, value_digest) WHERE ended_at IS NULL;
CREATE INDEX fact_overdue ON memory_fact (tenant_id, key_id, expires_at) WHERE ended_at IS NULL;
CREATE INDEX fact_expiry ON memory_fact (tenant_id, expires_at) WHERE ended_at IS NULL;
CREATE INDEX fact_class ON memory_fact (tenant_id, key_id, sensitivity) WHERE ended_at IS NULL;
CREATE INDEX fact_consented ON memory_fact (tenant_id, key_id) WHERE ended_at IS NULL AND consent_ids IS NOT NULL;
CREATE INDEX fact_by_subject ON memory_fact (tenant_id, subject_id, id);
CREATE INDEX fact_by_consent ON memory_fact USING gin (consent_ids) WHERE consent_ids IS NOT NULL AND ended_at IS NULL;

ALTER TABLE memory_evidence
  ADD CONSTRAINT evidence_key FOREIGN KEY (tenant_id, key_id) REFERENCES memory_factkey (tenant_id, id),
  ADD CONSTRAINT evidence_fact FOREIGN KEY (tenant_id, fact_id) REFERENCES memory_fact (tenant_id, id),
  ADD CONSTRAINT evidence_episode FOREIGN KEY (tenant_id, episode_id) REFERENCES memory_episode (tenant_id, id),
  ADD CONSTRAINT evidence_quote FOREIGN KEY (tenant_id, quote_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT evidence_consent FOREIGN KEY (tenant_id, consent_id) REFERENCES policies_consent (tenant_id, id),
  ADD CONSTRAINT evidence_corrects FOREIGN KEY (tenant_id, corrects_id) REFERENCES memory_evidence (tenant_id, id),
  ADD CONSTRAINT evidence_says_something CHECK (fact_id IS NOT NULL OR is_end),
  ADD CONSTRAINT evidence_holds_a_while CHECK (stated_to > valid_from),
  ADD CONSTRAINT evidence_consent_named CHECK (basis <> 'consent' OR consent_id IS NOT NULL),
  ADD CONSTRAINT evidence_source_known
    CHECK (source IN ('quote', 'tool_result', 'file', 'ticket', 'confirmation', 'statement')),
  ADD CONSTRAINT evidence_tool_call CHECK (source <> 'tool_result' OR tool_call_id IS NOT NULL),
  ADD CONSTRAINT evidence_retraction_has_a_reason
    CHECK ((retracted_at IS NULL) = (retraction_reason IS NULL) AND (retracted_at IS NULL) = (retracted_by IS NULL)),
  ADD CONSTRAINT evidence_retraction_reason_known
    CHECK (retraction_reason IN ('recorded_wrongly', 'duplicate', 'source_withdrawn', 'corrected', 'other')),
  ADD CONSTRAINT evidence_act_once UNIQUE (tenant_id, key_id, act_no),
  ALTER confirmed SET DEFAULT false, ALTER imported SET DEFAULT false, ALTER is_end SET DEFAULT false;
CREATE INDEX evidence_standing ON memory_evidence (tenant_id, key_id, valid_from) WHERE retracted_at IS NULL;
CREATE INDEX evidence_by_fact ON memory_evidence (tenant_id, fact_id, id);
CREATE INDEX evidence_by_episode ON memory_evidence (tenant_id, episode_id) WHERE episode_id IS NOT NULL;
CREATE INDEX evidence_by_consent ON memory_evidence (tenant_id, consent_id) WHERE consent_id IS NOT NULL;

ALTER TABLE memory_belief
  ADD CONSTRAINT belief_key FOREIGN KEY (tenant_id, key_id) REFERENCES memory_factkey (tenant_id, id),
  ADD CONSTRAINT belief_evidence FOREIGN KEY (tenant_id, evidence_id) REFERENCES memory_evidence (tenant_id, id),
  ADD CONSTRAINT belief_fact FOREIGN KEY (tenant_id, fact_id) REFERENCES memory_fact (tenant_id, id),
  ADD CONSTRAINT belief_valid_a_while CHECK (valid_to > valid_from),
  ADD CONSTRAINT belief_believed_a_while CHECK (believed_to > believed_from),
  -- One value at every instant, as believed at every instant.
  ADD CONSTRAINT belief_one_value EXCLUDE USING gist (
    int8range(chain_no, chain_no, '[]') WITH &&,
    tstzrange(valid_from, valid_to) WITH &&,
    tstzrange(believed_from, believed_to) WITH &&);
CREATE INDEX belief_now ON memory_belief (tenant_id, key_id, coalesce(valid_to, 'infinity'::timestamptz), valid_from)
  WHERE believed_to IS NULL;
CREATE INDEX belief_then ON memory_belief (tenant_id, key_id, valid_from);
CREATE INDEX belief_by_fact ON memory_belief (tenant_id, fact_id) WHERE fact_id IS NOT NULL;

ALTER TABLE memory_candidate
  ADD CONSTRAINT candidate_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT candidate_attribute FOREIGN KEY (tenant_id, attribute_id) REFERENCES policies_attribute (tenant_id, id),
  ADD CONSTRAINT candidate_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT candidate_state_known
    CHECK (state IN ('asked', 'buffered', 'accepted', 'promoted', 'rejected', 'expired')),
  ADD CONSTRAINT candidate_act_known CHECK (act IN ('fact', 'correction', 'retraction')),
  ADD CONSTRAINT candidate_decided CHECK ((decided_at IS NULL) = (state IN ('asked', 'buffered'))),
  ALTER occurrences SET DEFAULT 1, ALTER is_end SET DEFAULT false;
-- A proposal equal to a pending one joins it.
CREATE UNIQUE INDEX candidate_pending_once ON memory_candidate
  (tenant_id, subject_id, attribute_id, act, is_end, value_digest, target_id) NULLS NOT DISTINCT
  WHERE state IN ('asked', 'buffered');
CREATE INDEX candidate_by_state ON memory_candidate (tenant_id, state, id);

ALTER TABLE memory_candidatesaying
  ADD CONSTRAINT candidatesaying_candidate FOREIGN KEY (tenant_id, candidate_id) REFERENCES memory_candidate (tenant_id, id),
  ADD CONSTRAINT candidatesaying_quote FOREIGN KEY (tenant_id, quote_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT candidatesaying_episode FOREIGN KEY (tenant_id, episode_id) REFERENCES memory_episode (tenant_id, id);
CREATE INDEX candidatesaying_by_candidate ON memory_candidatesaying (tenant_id, candidate_id, id);

ALTER TABLE memory_receipt
  ADD CONSTRAINT receipt_act_known CHECK (act ~ '^[a-z_]+\.[a-z_]+$'),
  ADD CONSTRAINT receipt_withheld_counts
    CHECK (jsonb_typeof(withheld) = 'object' AND NOT jsonb_path_exists(withheld, '$.* ? (@.type() != "number")')),
  ALTER subject_ids SET DEFAULT '{}', ALTER attribute_ids SET DEFAULT '{}', ALTER fact_ids SET DEFAULT '{}',
  ALTER withheld SET DEFAULT '{}', ALTER reasons SET DEFAULT '{}';
CREATE INDEX receipt_by_fact ON memory_receipt USING gin (fact_ids);
CREATE INDEX receipt_unsealed ON memory_receipt (tenant_id, id) WHERE sealed_seq IS NULL;

ALTER TABLE memory_idempotencyrecord
  ADD CONSTRAINT idempotencyrecord_once UNIQUE (tenant_id, agent_id, key_digest);
CREATE INDEX idempotencyrecord_by_age ON memory_idempotencyrecord (tenant_id, created_at);

ALTER TABLE memory_outboxentry
  ADD CONSTRAINT outboxentry_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT outboxentry_state_known CHECK (state IN ('pending', 'done', 'failed')),
  ADD CONSTRAINT outboxentry_topic_shape CHECK (topic ~ '^[a-z_]+\.[a-z_]+$'),
  ALTER state SET DEFAULT 'pending', ALTER attempts SET DEFAULT 0;
CREATE INDEX outboxentry_due ON memory_outboxentry (tenant_id, due_at) WHERE state = 'pending';
CREATE INDEX outboxentry_failed ON memory_outboxentry (tenant_id, id) WHERE state = 'failed';
CREATE INDEX outboxentry_done ON memory_outboxentry (tenant_id, done_at) WHERE state = 'done';
CREATE POLICY dispatch ON memory_outboxentry FOR SELECT TO muniment_front USING (state <> 'done');

-- what never changes -----------------------------------------------------------------------------------------------
CREATE FUNCTION evidence_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.retracted_at IS NOT NULL AND (NEW.retracted_at, NEW.retracted_by, NEW.retraction_reason)
       IS DISTINCT FROM (OLD.retracted_at, OLD.retracted_by, OLD.retraction_reason) THEN
    RAISE EXCEPTION 'muniment: evidence is retracted once' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.tenant_id, NEW.id, NEW.key_id, NEW.fact_id, NEW.is_end, NEW.valid_from, NEW.stated_to, NEW.recorded_at, NEW.act_no,
      NEW.rank, NEW.confirmed, NEW.source, NEW.turn_id, NEW.tool_call_id, NEW.writer_kind, NEW.writer_id, NEW.written_at,
      NEW.episode_id, NEW.corrects_id, NEW.imported)
     IS DISTINCT FROM
     (OLD.tenant_id, OLD.id, OLD.key_id, OLD.fact_id, OLD.is_end, OLD.valid_from, OLD.stated_to, OLD.recorded_at, OLD.act_no,
      OLD.rank, OLD.confirmed, OLD.source, OLD.turn_id, OLD.tool_call_id, OLD.writer_kind, OLD.writer_id, OLD.written_at,
      OLD.episode_id, OLD.corrects_id, OLD.imported) THEN
    RAISE EXCEPTION 'muniment: what was said never changes' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER evidence_frozen BEFORE UPDATE ON memory_evidence FOR EACH ROW EXECUTE FUNCTION evidence_frozen();

CREATE FUNCTION belief_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.believed_to IS NOT NULL OR to_jsonb(NEW) - 'believed_to' IS DISTINCT FROM to_jsonb(OLD) - 'believed_to' THEN
    RAISE EXCEPTION 'muniment: what was believed never changes' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
-- Only what was opened by the key's very newest act may be taken out: an act of the same instant undoes it unseen.
CREATE FUNCTION belief_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM memory_factkey k WHERE k.tenant_id = OLD.tenant_id AND k.id = OLD.key_id
                 AND k.newest_at = OLD.believed_from) THEN
    RAISE EXCEPTION 'muniment: what was believed is not removed' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER belief_kept BEFORE DELETE ON memory_belief FOR EACH ROW EXECUTE FUNCTION belief_kept();
CREATE TRIGGER belief_frozen BEFORE UPDATE ON memory_belief FOR EACH ROW EXECUTE FUNCTION belief_frozen();

-- what an agent may read -------------------------------------------------------------------------------------------
CREATE FUNCTION consent_stands(ids uuid[]) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
  RETURN (SELECT bool_or(c.withdrawn_at IS NULL) FROM policies_consent c
          WHERE c.tenant_id = muniment_tenant() AND c.id = ANY (ids));
REVOKE ALL ON FUNCTION consent_stands(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION consent_stands(uuid[]) TO muniment_agent, muniment_writer, muniment_worker, muniment_counter;

DO $$
DECLARE
  t text;
  governed text := 'tenant_id = muniment_tenant() AND sensitivity <= muniment_clearance()'
    ' AND (expires_at IS NULL OR expires_at > statement_timestamp()) AND NOT restricted';
BEGIN
  -- Names and structure, free of content.
  FOREACH t IN ARRAY ARRAY['memory_subject', 'memory_subjectidentifier', 'memory_factkey', 'memory_belief'] LOOP
    EXECUTE format('CREATE POLICY agent_reads ON %I FOR SELECT TO muniment_agent USING (tenant_id = muniment_tenant())', t);
  END LOOP;
  -- A redacted fact shows as a tombstone once applied; until then it is not there.
  EXECUTE 'CREATE POLICY agent_reads ON memory_fact FOR SELECT TO muniment_agent USING (' || governed ||
    ' AND redaction_state <> ''required'' AND (ended_at IS NULL OR redaction_state = ''applied'')'
    ' AND (consent_ids IS NULL OR consent_stands(consent_ids)))';
  EXECUTE 'CREATE POLICY agent_reads ON memory_payload FOR SELECT TO muniment_agent USING (' || governed ||
    ' AND redaction_state = ''none'' AND (consent_ids IS NULL OR consent_stands(consent_ids)))';
  EXECUTE 'CREATE POLICY agent_reads ON memory_evidence FOR SELECT TO muniment_agent USING (' || governed ||
    ' AND redaction_state <> ''required'' AND (consent_id IS NULL OR consent_stands(ARRAY[consent_id])))';
  EXECUTE 'CREATE POLICY agent_reads ON memory_episode FOR SELECT TO muniment_agent USING (' || governed ||
    ' AND redaction_state <> ''required'' AND (consent_id IS NULL OR consent_stands(ARRAY[consent_id])))';
  EXECUTE 'CREATE POLICY agent_reads ON memory_candidate FOR SELECT TO muniment_agent USING (' || governed ||
    ' AND redaction_state <> ''required'')';
END $$;
CREATE POLICY agent_leaves ON memory_receipt FOR INSERT TO muniment_agent WITH CHECK (tenant_id = muniment_tenant());

GRANT SELECT ON memory_payload, memory_subject, memory_subjectidentifier, memory_episode, memory_factkey, memory_fact,
  memory_evidence, memory_belief, memory_candidate TO muniment_agent;
GRANT INSERT ON memory_receipt TO muniment_agent;

GRANT SELECT ON memory_payload, memory_subject, memory_subjectidentifier, memory_episode, memory_factkey, memory_fact,
  memory_evidence, memory_belief, memory_candidate, memory_candidatesaying TO muniment_writer;
GRANT SELECT ON memory_subject, memory_factkey, memory_fact, memory_evidence, memory_belief, memory_receipt, memory_outboxentry
  TO muniment_worker;
GRANT INSERT ON memory_payload, memory_subject, memory_subjectidentifier, memory_episode, memory_factkey, memory_fact,
  memory_evidence, memory_belief, memory_candidate, memory_candidatesaying, memory_receipt, memory_outboxentry
  TO muniment_writer;
GRANT SELECT, INSERT ON memory_idempotencyrecord TO muniment_writer;
GRANT USAGE ON SEQUENCE memory_chain_no TO muniment_writer;
GRANT UPDATE (lock_no) ON memory_subject TO muniment_writer, muniment_worker;
GRANT UPDATE (act_no, newest_at) ON memory_factkey TO muniment_writer;
GRANT UPDATE (sensitivity, basis, expires_at, confirmed, confidence, evidence_count, consent_ids, review_at, ended_at, ended_by)
  ON memory_fact TO muniment_writer;
GRANT UPDATE (sensitivity, basis, expires_at, consent_ids, key_id, clear, sealed) ON memory_payload TO muniment_writer;
GRANT UPDATE (retracted_at, retracted_by, retraction_reason) ON memory_evidence TO muniment_writer;
GRANT UPDATE (believed_to), DELETE ON memory_belief TO muniment_writer;
GRANT UPDATE (state, occurrences, sensitivity, decided_at, decided_by, decision_reason, evidence_id)
  ON memory_candidate TO muniment_writer;
GRANT INSERT ON memory_outboxentry TO muniment_worker;
GRANT UPDATE (sealed_seq) ON memory_receipt TO muniment_worker;
GRANT UPDATE (state, attempts, due_at, done_at, failure) ON memory_outboxentry TO muniment_worker;
GRANT DELETE ON memory_outboxentry TO muniment_worker;
GRANT SELECT, DELETE ON memory_idempotencyrecord TO muniment_worker;
GRANT UPDATE (checked_act_no) ON memory_factkey TO muniment_worker;
-- The worker marks what ended; it does not touch what was said.
GRANT UPDATE (ended_at, ended_by) ON memory_fact TO muniment_worker;
GRANT SELECT ON memory_outboxentry TO muniment_front;

-- what members see in the admin: what every row says of itself, and no content ------------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_subject', 'memory_episode', 'memory_factkey', 'memory_fact', 'memory_evidence', 'memory_belief',
      'memory_candidate', 'memory_candidatesaying', 'memory_receipt', 'memory_outboxentry', 'policies_consent'] LOOP
    EXECUTE format('CREATE POLICY staff_reads ON %I FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;
GRANT SELECT ON memory_subject, memory_episode, memory_factkey, memory_fact, memory_evidence, memory_belief, memory_candidate,
  memory_candidatesaying, memory_receipt, memory_outboxentry, policies_consent TO muniment_staff;

-- why a row is withheld --------------------------------------------------------------------------------------------
-- One bucket a reason; every class above clearance is one bucket. Speaks only of the transaction's own tenant.
CREATE FUNCTION withheld_reason(p_fact uuid) RETURNS text
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT CASE
    WHEN f.sensitivity > public.muniment_clearance() THEN 'above_clearance'
    WHEN f.redaction_state = 'required' THEN 'redaction'
    WHEN f.restricted THEN 'restricted_processing'
    WHEN f.consent_ids IS NOT NULL AND NOT coalesce(public.consent_stands(f.consent_ids), false) THEN 'consent'
    WHEN f.expires_at <= statement_timestamp() OR f.ended_by = 'expired' THEN 'expired'
    ELSE 'ended' END
  FROM public.memory_fact f WHERE f.tenant_id = public.muniment_tenant() AND f.id = p_fact
$$;
REVOKE ALL ON FUNCTION withheld_reason(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION withheld_reason(uuid) TO muniment_agent;
CREATE POLICY counts ON memory_fact FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
CREATE POLICY counts ON policies_consent FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT ON memory_fact, policies_consent TO muniment_counter;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION withheld_reason(uuid) OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;

-- hot tables are analysed by what changes in them, not by a share of a growing whole -------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_factkey', 'memory_fact', 'memory_evidence', 'memory_belief',
      'memory_receipt', 'memory_outboxentry', 'memory_subject', 'memory_subjectidentifier', 'memory_idempotencyrecord'] LOOP
    EXECUTE format('ALTER TABLE %I SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.02)', t);
  END LOOP;
  FOREACH t IN ARRAY ARRAY['memory_factkey', 'memory_fact', 'memory_belief', 'memory_outboxentry'] LOOP
    EXECUTE format('ALTER TABLE %I SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)', t);
  END LOOP;
END $$;
