-- Changes of single lifetimes: isolation, shapes, and that evidence is kept longer by an approval alone.

ALTER TABLE retention_lifetimechange
  DROP CONSTRAINT retention_lifetimechange_pkey,
  ADD CONSTRAINT retention_lifetimechange_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT lifetimechange_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT lifetimechange_act_known CHECK (act IN ('shortened', 'extended', 'kept', 'ended')),
  ADD CONSTRAINT lifetimechange_reason_known
    CHECK (reason IN ('no_longer_needed', 'subject_request', 'policy_changed', 'law', 'still_needed', 'other')),
  ADD CONSTRAINT lifetimechange_asked
    CHECK ((act = 'extended') = (question_id IS NOT NULL) AND (act = 'extended' OR done_at IS NOT NULL)),
  -- Who keeps longer looks again before that.
  ADD CONSTRAINT lifetimechange_reviewed CHECK (act <> 'extended' OR review_at IS NOT NULL AND review_at <= until),
  ADD CONSTRAINT lifetimechange_actor_known CHECK (actor_kind IN ('agent', 'person', 'job', 'operator'));
CREATE INDEX lifetimechange_by_fact ON retention_lifetimechange (tenant_id, fact_id, id);

ALTER TABLE retention_lifetimechange ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_lifetimechange FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_lifetimechange TO muniment_staff
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_lifetimechange TO muniment_staff;
GRANT UPDATE (done_at) ON retention_lifetimechange TO muniment_staff;

CREATE INDEX fact_to_review ON memory_fact (tenant_id, review_at) WHERE review_at IS NOT NULL AND ended_at IS NULL;
GRANT UPDATE (review_at) ON memory_fact TO muniment_worker;

-- Nothing is kept longer in silence: evidence of a fact, while another person's approval of that stands, and nothing else.
CREATE FUNCTION evidence_kept_longer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.expires_at IS NULL OR NEW.expires_at > OLD.expires_at AND NOT EXISTS (SELECT FROM policies_decisionrequest r
      WHERE r.tenant_id = NEW.tenant_id AND r.act = 'lifetime.extend' AND r.target_id = NEW.fact_id AND r.state = 'approved'
        AND clock_timestamp() < r.expires_at) THEN
    RAISE EXCEPTION 'muniment: nothing is kept longer than was said' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
DROP TRIGGER evidence_expires_earlier ON memory_evidence;
CREATE TRIGGER evidence_expires_earlier BEFORE UPDATE OF expires_at ON memory_evidence
  FOR EACH ROW WHEN (OLD.expires_at IS NOT NULL AND (NEW.expires_at IS NULL OR NEW.expires_at > OLD.expires_at))
  EXECUTE FUNCTION evidence_kept_longer();
CREATE POLICY worker_checks ON policies_decisionrequest FOR SELECT TO muniment_worker USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, act, target_id, state, expires_at) ON policies_decisionrequest TO muniment_worker;
