-- Restriction of processing: keys, row-level security, one way to move; and the writer's right to mark the rows.

ALTER TABLE retention_restriction DROP CONSTRAINT retention_restriction_pkey;
ALTER TABLE retention_restriction
  ADD CONSTRAINT retention_restriction_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT restriction_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT restriction_kind_known CHECK (target_kind IN ('subject', 'fact', 'episode')),
  ADD CONSTRAINT restriction_ground_known
    CHECK (ground IN ('accuracy_contested', 'unlawful', 'needed_for_claims', 'objection_pending', 'other')),
  ADD CONSTRAINT restriction_state_known CHECK (state IN ('active', 'lifted')),
  ADD CONSTRAINT restriction_lifted_known
    CHECK (lifted_because IN ('accuracy_settled', 'consented', 'claims_settled', 'objection_settled', 'in_error', 'other')),
  ADD CONSTRAINT restriction_lifted CHECK ((state = 'lifted') = (lifted_at IS NOT NULL)
    AND (lifted_at IS NULL) = (lifted_by IS NULL) AND (lifted_at IS NULL) = (lifted_because IS NULL)),
  -- Whoever asked for it is told before it is lifted.
  ADD CONSTRAINT restriction_told_first CHECK (state = 'active' OR request_id IS NULL OR told_at IS NOT NULL),
  ALTER state SET DEFAULT 'active';
CREATE UNIQUE INDEX restriction_once ON retention_restriction (tenant_id, target_id) WHERE state = 'active';

ALTER TABLE retention_restriction ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_restriction FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_restriction TO muniment_staff
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_restriction TO muniment_staff;
GRANT UPDATE (state, lifted_because, told_at) ON retention_restriction TO muniment_staff;

CREATE FUNCTION restriction_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := coalesce(nullif(current_setting('muniment.actor', true), ''), '00000000-0000-0000-0000-000000000000')::uuid;
BEGIN
  IF TG_OP = 'INSERT' THEN
    NEW.state := 'active';
    NEW.restricted_by := who;
    NEW.restricted_at := clock_timestamp();
    NEW.lifted_by := NULL;
    NEW.lifted_at := NULL;
    NEW.lifted_because := NULL;
    NEW.told_at := NULL;
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' OR (OLD.state, NEW.state) <> ('active', 'lifted')
     OR to_jsonb(NEW) - '{state,lifted_by,lifted_at,lifted_because,told_at}'::text[]
       IS DISTINCT FROM to_jsonb(OLD) - '{state,lifted_by,lifted_at,lifted_because,told_at}'::text[] THEN
    RAISE EXCEPTION 'muniment: a restriction changes only by being lifted' USING ERRCODE = 'restrict_violation';
  END IF;
  NEW.lifted_by := who;
  NEW.lifted_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE TRIGGER restriction_moves BEFORE INSERT OR UPDATE OR DELETE ON retention_restriction
  FOR EACH ROW EXECUTE FUNCTION restriction_moves();

-- Who may restrict a subject may lock it.
REVOKE UPDATE (lock_no) ON memory_subject FROM muniment_writer;
GRANT UPDATE (restricted) ON memory_subject, memory_fact, memory_evidence, memory_episode, memory_candidate, memory_payload
  TO muniment_writer;
