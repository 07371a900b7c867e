-- Erasures and notices: keys, row-level security, grants, and what never changes of them.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_erasure', 'retention_erasureitem', 'retention_noticeendpoint', 'retention_notice'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 11) || '_tenant');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_staff, muniment_worker'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

ALTER TABLE retention_erasure
  ADD CONSTRAINT erasure_question FOREIGN KEY (tenant_id, question_id) REFERENCES policies_decisionrequest (tenant_id, id),
  ADD CONSTRAINT erasure_run FOREIGN KEY (tenant_id, run_id) REFERENCES retention_run (tenant_id, id),
  ADD CONSTRAINT erasure_certificate FOREIGN KEY (tenant_id, certificate_id) REFERENCES retention_certificate (tenant_id, id),
  ADD CONSTRAINT erasure_state_known
    CHECK (state IN ('requested', 'asked', 'running', 'held', 'failed', 'done', 'refused', 'withdrawn')),
  ADD CONSTRAINT erasure_reason_known
    CHECK (reason IN ('subject_request', 'consent_withdrawn', 'no_longer_needed', 'unlawful', 'law', 'other')),
  ADD CONSTRAINT erasure_numbers CHECK (only_numbers(preview)),
  ADD CONSTRAINT erasure_digest_length CHECK (octet_length(digest) = 32),
  ADD CONSTRAINT erasure_approved CHECK ((approved_at IS NULL) = (approved_by IS NULL)
    AND (approved_at IS NOT NULL) = (state IN ('running', 'held', 'failed', 'done'))),
  ALTER state SET DEFAULT 'requested', ALTER preview SET DEFAULT '{}', ALTER name_ids SET DEFAULT '{}';
-- One at a time about one subject.
CREATE UNIQUE INDEX erasure_open_once ON retention_erasure (tenant_id, subject_id)
  WHERE state IN ('requested', 'asked', 'running', 'held', 'failed');
CREATE INDEX erasure_by_question ON retention_erasure (tenant_id, question_id) WHERE question_id IS NOT NULL;

-- Nothing is carried out but on another's approval of exactly this, which is used up by it.
CREATE FUNCTION erasure_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR (NEW.tenant_id, NEW.id, NEW.subject_id, NEW.asked_kind, NEW.asked_by, NEW.asked_at)
       IS DISTINCT FROM (OLD.tenant_id, OLD.id, OLD.subject_id, OLD.asked_kind, OLD.asked_by, OLD.asked_at)
     OR OLD.state IN ('done', 'refused', 'withdrawn') AND (NEW.state <> OLD.state OR NEW.approved_at IS DISTINCT FROM OLD.approved_at)
     OR OLD.approved_at IS NOT NULL AND (NEW.approved_at, NEW.approved_by, NEW.digest, NEW.question_id)
       IS DISTINCT FROM (OLD.approved_at, OLD.approved_by, OLD.digest, OLD.question_id) THEN
    RAISE EXCEPTION 'muniment: an erasure goes on, to its end' USING ERRCODE = 'restrict_violation';
  END IF;
  IF OLD.approved_at IS NULL AND NEW.approved_at IS NOT NULL THEN
    NEW.approved_at := clock_timestamp();
    NEW.approved_by := nullif(current_setting('muniment.actor', true), '')::uuid;
    IF NOT EXISTS (SELECT FROM policies_decisionrequest r
        JOIN policies_decision d ON d.tenant_id = r.tenant_id AND d.request_id = r.id
        WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.question_id AND r.act = 'subject.erase' AND r.target_id = NEW.subject_id
          AND r.digest = NEW.digest AND r.state = 'done' AND d.verdict = 'approve' AND d.decided_by = NEW.approved_by) THEN
      RAISE EXCEPTION 'muniment: a subject is erased on the approval of a second person' USING ERRCODE = 'insufficient_privilege';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER erasure_moves BEFORE UPDATE OR DELETE ON retention_erasure FOR EACH ROW EXECUTE FUNCTION erasure_moves();
CREATE FUNCTION erasure_begins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state NOT IN ('requested', 'asked') THEN
    RAISE EXCEPTION 'muniment: an erasure begins with a question' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER erasure_begins BEFORE INSERT ON retention_erasure FOR EACH ROW EXECUTE FUNCTION erasure_begins();

ALTER TABLE retention_erasureitem
  ADD CONSTRAINT erasureitem_erasure FOREIGN KEY (tenant_id, erasure_id) REFERENCES retention_erasure (tenant_id, id),
  ADD CONSTRAINT erasureitem_once UNIQUE (tenant_id, erasure_id, kind, target_id),
  ADD CONSTRAINT erasureitem_kind_known CHECK (kind IN ('mention', 'fact')),
  ADD CONSTRAINT erasureitem_state_known CHECK (state IN ('open', 'kept', 'ended')),
  ADD CONSTRAINT erasureitem_decided CHECK ((state = 'open') = (decided_at IS NULL) AND (decided_at IS NULL) = (decided_by IS NULL)
    AND (decided_at IS NULL) = (reason IS NULL)),
  ADD CONSTRAINT erasureitem_reason_shape CHECK (reason ~ '^[a-z0-9_]{1,60}$'),
  ALTER state SET DEFAULT 'open';
CREATE INDEX erasureitem_open ON retention_erasureitem (tenant_id, id) WHERE state = 'open';

ALTER TABLE retention_noticeendpoint
  ADD CONSTRAINT noticeendpoint_agent FOREIGN KEY (tenant_id, agent_id) REFERENCES tenants_agent (tenant_id, id),
  ADD CONSTRAINT noticeendpoint_key FOREIGN KEY (tenant_id, key_id) REFERENCES tenants_subjectkey (tenant_id, id),
  ADD CONSTRAINT noticeendpoint_url_shape CHECK (url ~ '^https?://[^/@?#[:space:]]+(/[^?#[:space:]]*)?$' AND length(url) <= 500);
CREATE UNIQUE INDEX noticeendpoint_one ON retention_noticeendpoint (tenant_id, agent_id) WHERE ended_at IS NULL;

ALTER TABLE retention_notice
  ADD CONSTRAINT notice_erasure FOREIGN KEY (tenant_id, erasure_id) REFERENCES retention_erasure (tenant_id, id),
  ADD CONSTRAINT notice_state_known CHECK (state IN ('waiting', 'sent', 'failed', 'nobody')),
  ADD CONSTRAINT notice_code_shape CHECK (code ~ '^[a-z0-9_]{1,60}$'),
  ADD CONSTRAINT notice_sent CHECK ((state = 'sent') = (sent_at IS NOT NULL)),
  ALTER state SET DEFAULT 'waiting', ALTER attempts SET DEFAULT 0;
CREATE INDEX notice_by_erasure ON retention_notice (tenant_id, erasure_id, id);

GRANT SELECT, INSERT ON retention_erasure TO muniment_staff;
GRANT UPDATE (state, digest, preview, question_id, approved_by, approved_at, name_ids, run_id) ON retention_erasure TO muniment_staff;
GRANT SELECT ON retention_erasure TO muniment_worker;
GRANT UPDATE (state, certificate_id, finished_at) ON retention_erasure TO muniment_worker;
GRANT SELECT ON retention_erasureitem TO muniment_staff, muniment_worker;
GRANT UPDATE (state, reason, decided_by, decided_at) ON retention_erasureitem TO muniment_staff;
GRANT INSERT ON retention_erasureitem TO muniment_worker;
GRANT SELECT, INSERT ON retention_noticeendpoint TO muniment_staff;
GRANT UPDATE (ended_at) ON retention_noticeendpoint TO muniment_staff;
GRANT SELECT ON retention_noticeendpoint TO muniment_worker;
GRANT SELECT ON retention_notice TO muniment_staff, muniment_worker;
GRANT INSERT, UPDATE (state, attempts, status, code, tried_at, sent_at) ON retention_notice TO muniment_worker;
GRANT EXECUTE ON FUNCTION only_numbers(jsonb) TO muniment_staff;
