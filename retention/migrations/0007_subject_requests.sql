-- Requests of data subjects: isolation, shapes, and that a request moves one way.

ALTER TABLE retention_subjectrequest
  DROP CONSTRAINT retention_subjectrequest_pkey,
  ADD CONSTRAINT retention_subjectrequest_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT subjectrequest_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT subjectrequest_kind_known
    CHECK (kind IN ('access', 'rectification', 'erasure', 'restriction', 'portability', 'objection')),
  ADD CONSTRAINT subjectrequest_state_known CHECK (state IN ('received', 'in_progress', 'completed', 'refused', 'withdrawn')),
  ADD CONSTRAINT subjectrequest_digest_length CHECK (octet_length(subject_digest) = 32),
  ADD CONSTRAINT subjectrequest_due CHECK (due_at > received_at),
  -- Two further months, and of those the subject is told within the first.
  ADD CONSTRAINT subjectrequest_extended CHECK (
    (extended_at IS NULL) = (extended_to IS NULL) AND (extended_at IS NULL) = (extension_reason IS NULL)
    AND (extended_at IS NULL OR extended_at < due_at AND extended_to > due_at AND extended_to <= due_at + interval '63 days')),
  ADD CONSTRAINT subjectrequest_extension_known CHECK (extension_reason IN ('complex', 'many_requests')),
  ADD CONSTRAINT subjectrequest_identity_known CHECK (identity IN ('unchecked', 'confirmed', 'failed')),
  ADD CONSTRAINT subjectrequest_identity_whole CHECK (
    (identity = 'unchecked') = (identity_method IS NULL) AND (identity_method IS NULL) = (identity_at IS NULL)
    AND (identity_at IS NULL) = (identity_by IS NULL)),
  ADD CONSTRAINT subjectrequest_method_known
    CHECK (identity_method IN ('account', 'known_contact', 'call_back', 'document_seen', 'in_person', 'representative')),
  -- Nothing is done for somebody who may be another.
  ADD CONSTRAINT subjectrequest_for_the_subject CHECK (state NOT IN ('in_progress', 'completed') OR identity = 'confirmed'),
  ADD CONSTRAINT subjectrequest_refused CHECK ((state = 'refused') = (refusal_ground IS NOT NULL)),
  ADD CONSTRAINT subjectrequest_ground_known CHECK (refusal_ground IN ('manifestly_unfounded', 'excessive',
    'identity_not_established', 'not_the_controller', 'exempt_by_law', 'rights_of_others', 'legal_claims', 'overriding_interest')),
  ADD CONSTRAINT subjectrequest_completed CHECK ((state = 'completed') = (outcome IS NOT NULL)),
  ADD CONSTRAINT subjectrequest_outcome_known CHECK (outcome IN ('done', 'done_in_part', 'nothing_held')),
  ADD CONSTRAINT subjectrequest_led_to CHECK ((led_to_kind IS NULL) = (led_to_id IS NULL)),
  ADD CONSTRAINT subjectrequest_led_to_known
    CHECK (led_to_kind IN ('access_export', 'run', 'restriction', 'evidence', 'decision_request')),
  ADD CONSTRAINT subjectrequest_closed CHECK (
    (state IN ('completed', 'refused', 'withdrawn')) = (closed_at IS NOT NULL) AND (closed_at IS NULL) = (closed_by IS NULL)),
  ADD CONSTRAINT subjectrequest_lodged_by_known CHECK (lodged_by_kind IN ('agent', 'person')),
  ALTER state SET DEFAULT 'received', ALTER identity SET DEFAULT 'unchecked', ALTER repeats SET DEFAULT 0;
-- Who asks the same again joins what is open.
CREATE UNIQUE INDEX subjectrequest_open_once ON retention_subjectrequest (tenant_id, subject_digest, kind)
  WHERE state IN ('received', 'in_progress');
CREATE INDEX subjectrequest_waiting ON retention_subjectrequest (tenant_id, (coalesce(extended_to, due_at)), id)
  WHERE state IN ('received', 'in_progress');
CREATE INDEX subjectrequest_by_subject ON retention_subjectrequest (tenant_id, subject_id) WHERE subject_id IS NOT NULL;

ALTER TABLE retention_subjectrequest ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_subjectrequest FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_subjectrequest TO muniment_staff
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_subjectrequest TO muniment_staff;
GRANT UPDATE (state, extended_at, extended_to, extension_reason, identity, identity_method, identity_at, identity_by, repeats,
  refusal_ground, outcome, led_to_kind, led_to_id, closed_at, closed_by) ON retention_subjectrequest TO muniment_staff;

-- A request begins as it was received, moves one way, and what is closed stays as it was closed.
CREATE FUNCTION subjectrequest_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'received' OR NEW.identity <> 'unchecked' OR NEW.extended_at IS NOT NULL OR NEW.led_to_id IS NOT NULL THEN
      RAISE EXCEPTION 'muniment: a request begins as it was received' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' OR OLD.closed_at IS NOT NULL THEN
    RAISE EXCEPTION 'muniment: a closed request does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.tenant_id, NEW.id, NEW.kind, NEW.subject_id, NEW.subject_digest, NEW.reference, NEW.received_at, NEW.due_at,
      NEW.lodged_by_kind, NEW.lodged_by_id, NEW.lodged_at) IS DISTINCT FROM
     (OLD.tenant_id, OLD.id, OLD.kind, OLD.subject_id, OLD.subject_digest, OLD.reference, OLD.received_at, OLD.due_at,
      OLD.lodged_by_kind, OLD.lodged_by_id, OLD.lodged_at)
     OR OLD.extended_at IS NOT NULL AND (NEW.extended_at, NEW.extended_to, NEW.extension_reason)
        IS DISTINCT FROM (OLD.extended_at, OLD.extended_to, OLD.extension_reason)
     OR OLD.identity = 'confirmed' AND (NEW.identity, NEW.identity_method, NEW.identity_at, NEW.identity_by)
        IS DISTINCT FROM (OLD.identity, OLD.identity_method, OLD.identity_at, OLD.identity_by)
     OR NEW.repeats < OLD.repeats THEN
    RAISE EXCEPTION 'muniment: what was asked and when it is due do not change' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (('received', 'in_progress'), ('received', 'refused'),
      ('received', 'withdrawn'), ('in_progress', 'completed'), ('in_progress', 'refused'), ('in_progress', 'withdrawn')) THEN
    RAISE EXCEPTION 'muniment: a request moves one way, from % not to %', OLD.state, NEW.state USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER subjectrequest_moves BEFORE INSERT OR UPDATE OR DELETE ON retention_subjectrequest
  FOR EACH ROW EXECUTE FUNCTION subjectrequest_moves();
