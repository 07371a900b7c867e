-- Redaction: keys, row-level security, who asks and who decides, and that nothing hidden shows while somebody is asked.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_redactionrequest', 'retention_redactionitem'] LOOP
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

ALTER TABLE retention_redactionrequest
  ADD CONSTRAINT redactionrequest_cause FOREIGN KEY (tenant_id, cause_id) REFERENCES retention_redactionrequest (tenant_id, id),
  ADD CONSTRAINT redactionrequest_state_known CHECK (state IN ('required', 'applied', 'refused', 'withdrawn')),
  ADD CONSTRAINT redactionrequest_reason_known CHECK (reason IN ('not_to_be_kept', 'third_party', 'excessive', 'wrong_subject',
    'subject_request', 'credential', 'quote_fell', 'other')),
  ADD CONSTRAINT redactionrequest_requester_known CHECK (requester_kind IN ('person', 'agent')),
  ADD CONSTRAINT redactionrequest_decided CHECK ((state = 'required') = (decided_at IS NULL)
    AND (decided_at IS NULL) = (decided_by IS NULL) AND (decided_at IS NULL) = (decision_reason IS NULL)),
  ADD CONSTRAINT redactionrequest_decision_reason CHECK (decision_reason ~ '^[a-z0-9_]{1,60}$'),
  -- Nobody takes out what they asked to be taken out, nor puts off what they asked for but by taking it back.
  ADD CONSTRAINT redactionrequest_by_another CHECK ((state = 'withdrawn') = (decided_by = requested_by)),
  ADD CONSTRAINT redactionrequest_bound CHECK ((state = 'applied') = (digest IS NOT NULL) AND octet_length(digest) = 32),
  ADD CONSTRAINT redactionrequest_counts
    CHECK (jsonb_typeof(counts) = 'object' AND NOT jsonb_path_exists(counts, '$.* ? (@.type() != "number")')),
  ALTER state SET DEFAULT 'required', ALTER counts SET DEFAULT '{}';
CREATE INDEX redactionrequest_waiting ON retention_redactionrequest (tenant_id, id) WHERE state = 'required';

ALTER TABLE retention_redactionitem
  ADD CONSTRAINT redactionitem_request FOREIGN KEY (tenant_id, request_id) REFERENCES retention_redactionrequest (tenant_id, id),
  ADD CONSTRAINT redactionitem_kind_known CHECK (kind IN ('fact', 'evidence', 'episode', 'candidate', 'saying')),
  ADD CONSTRAINT redactionitem_strategy_known CHECK (strategy IN ('null', 'mask', 'mask_tail', 'generalise', 'pseudonym')),
  ADD CONSTRAINT redactionitem_once UNIQUE (tenant_id, request_id, kind, target_id),
  ADD CONSTRAINT redactionitem_spans CHECK (cardinality(spans) % 2 = 0 AND (spans = '{}' OR kind = 'episode')),
  ADD CONSTRAINT redactionitem_fields CHECK (fields = '{}' OR kind = 'fact'),
  ALTER strategy SET DEFAULT 'null', ALTER fields SET DEFAULT '{}', ALTER spans SET DEFAULT '{}';
CREATE INDEX redactionitem_by_target ON retention_redactionitem (tenant_id, target_id);
CREATE INDEX redactionitem_by_payload ON retention_redactionitem (tenant_id, payload_id) WHERE payload_id IS NOT NULL;
CREATE TRIGGER redactionitem_frozen BEFORE UPDATE OR DELETE ON retention_redactionitem
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- who asks ---------------------------------------------------------------------------------------------------------
CREATE FUNCTION redactionrequest_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.state := 'required';
  NEW.decided_by := NULL;
  NEW.decided_at := NULL;
  NEW.decision_reason := NULL;
  NEW.digest := NULL;
  NEW.counts := '{}';
  NEW.requested_at := clock_timestamp();
  NEW.requested_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.requester_kind := CASE WHEN EXISTS (SELECT FROM tenants_agent a WHERE a.tenant_id = NEW.tenant_id AND a.id = NEW.requested_by)
    THEN 'agent' ELSE 'person' END;
  -- What follows from a redaction is asked in the name of whoever asked for that one.
  IF NEW.cause_id IS NOT NULL THEN
    SELECT r.requested_by, r.requester_kind INTO NEW.requested_by, NEW.requester_kind FROM retention_redactionrequest r
      WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.cause_id AND r.state = 'applied';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER redactionrequest_filled BEFORE INSERT ON retention_redactionrequest
  FOR EACH ROW EXECUTE FUNCTION redactionrequest_filled();

CREATE FUNCTION redactionrequest_allowed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.cause_id IS NULL AND NEW.requester_kind = 'person' AND NOT EXISTS (SELECT FROM tenants_membership m
      WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.requested_by AND m.role IN ('reviewer', 'privacy_officer')) THEN
    RAISE EXCEPTION 'muniment: a reviewer of the tenant proposes a redaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER redactionrequest_allowed AFTER INSERT ON retention_redactionrequest
  FOR EACH ROW EXECUTE FUNCTION redactionrequest_allowed();

CREATE FUNCTION redactionitem_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- While it waits, or in the very transaction that applies it, what has come since is added to what goes along.
  PERFORM FROM retention_redactionrequest r WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.request_id AND r.state = 'required';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'muniment: what was decided on does not grow' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER redactionitem_asked AFTER INSERT ON retention_redactionitem FOR EACH ROW EXECUTE FUNCTION redactionitem_asked();

-- who decides ------------------------------------------------------------------------------------------------------
CREATE FUNCTION redactionrequest_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := nullif(current_setting('muniment.actor', true), '')::uuid;
  decided constant text[] := '{state,decided_by,decided_at,decision_reason,digest,counts,run_id,certificate_id}';
BEGIN
  IF TG_OP = 'DELETE' OR OLD.state <> 'required' OR NEW.state = 'required'
     OR to_jsonb(NEW) - decided IS DISTINCT FROM to_jsonb(OLD) - decided THEN
    RAISE EXCEPTION 'muniment: a redaction is decided once' USING ERRCODE = 'restrict_violation';
  END IF;
  NEW.decided_by := who;
  NEW.decided_at := clock_timestamp();
  IF NEW.state = 'withdrawn' THEN
    IF who IS DISTINCT FROM OLD.requested_by THEN
      RAISE EXCEPTION 'muniment: whoever asked takes it back' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
  END IF;
  IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = OLD.tenant_id AND m.user_id = who
        AND m.role = 'privacy_officer')
     -- A role that was handed on does not come back to whoever asks.
     AND NOT EXISTS (SELECT FROM policies_delegation g WHERE g.tenant_id = OLD.tenant_id AND g.given_to_id = who
        AND g.role = 'privacy_officer' AND g.ended_at IS NULL AND g.given_by <> OLD.requested_by
        AND g.starts_at <= clock_timestamp() AND clock_timestamp() < g.ends_at
        AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_by AND m.role = g.role)
        AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_to_id)) THEN
    RAISE EXCEPTION 'muniment: a privacy officer of the tenant decides on a redaction' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER redactionrequest_moves BEFORE UPDATE OR DELETE ON retention_redactionrequest
  FOR EACH ROW EXECUTE FUNCTION redactionrequest_moves();

-- what is hidden ---------------------------------------------------------------------------------------------------
-- Hidden is what somebody asked for, and it shows again when nobody asks any more. That its content ends in the meantime
-- stands in nobody's way.
CREATE FUNCTION redaction_asked() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  asked boolean;
  has_content boolean := false;
BEGIN
  asked := EXISTS (SELECT FROM retention_redactionitem i
    CROSS JOIN LATERAL (SELECT FROM retention_redactionrequest r
      WHERE r.tenant_id = i.tenant_id AND r.id = i.request_id AND r.state = 'required' OFFSET 0) r
    WHERE i.tenant_id = NEW.tenant_id AND (i.target_id = NEW.id OR i.payload_id = NEW.id));
  IF TG_TABLE_NAME = 'memory_payload' THEN
    has_content := NEW.clear IS NOT NULL OR NEW.sealed IS NOT NULL;
  END IF;
  IF asked AND (NEW.redaction_state = 'none' OR has_content) THEN
    RAISE EXCEPTION 'muniment: what waits for a decision stays hidden' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_episode', 'memory_fact', 'memory_candidate'] LOOP
    EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE ON %I FOR EACH ROW WHEN (OLD.redaction_state = ''required'''
                   ' AND NEW.redaction_state <> ''required'')'
                   ' EXECUTE FUNCTION redaction_asked()', substr(t, 8) || '_redaction_asked', t);
  END LOOP;
END $$;

GRANT SELECT, INSERT ON retention_redactionrequest, retention_redactionitem TO muniment_staff;
GRANT UPDATE (state, decision_reason, digest, counts, run_id, certificate_id) ON retention_redactionrequest TO muniment_staff;
GRANT SELECT ON retention_redactionrequest, retention_redactionitem TO muniment_worker;
