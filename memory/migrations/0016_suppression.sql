-- Suppression: isolation, links, and how one may change.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_suppression', 'memory_preventedreturn'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 8) || '_tenant');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO %s'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t,
                   CASE t WHEN 'memory_suppression' THEN 'muniment_writer, muniment_worker, muniment_staff'
                          ELSE 'muniment_writer, muniment_staff' END);
  END LOOP;
END $$;

ALTER TABLE memory_suppression
  ADD CONSTRAINT suppression_attribute FOREIGN KEY (tenant_id, attribute_id) REFERENCES policies_attribute (tenant_id, id),
  ADD CONSTRAINT suppression_key_known CHECK (key IN ('source', 'text', 'saying', 'subject')),
  ADD CONSTRAINT suppression_cause_known CHECK (cause IN ('rejected', 'redacted', 'erased')),
  ADD CONSTRAINT suppression_digest_length CHECK (octet_length(digest) = 32),
  ADD CONSTRAINT suppression_target_shape CHECK (target_kind ~ '^[a-z_]{1,40}$'),
  ADD CONSTRAINT suppression_lifted
    CHECK ((lifted_at IS NULL) = (lifted_by IS NULL) AND (lifted_at IS NULL) = (lift_reason IS NULL)),
  ADD CONSTRAINT suppression_lift_shape CHECK (lift_reason ~ '^[a-z0-9_]{1,60}$');
-- One stands at a time; the look-up of the write door is this index alone.
CREATE UNIQUE INDEX suppression_stands_once ON memory_suppression (tenant_id, digest) INCLUDE (decided_at)
  WHERE lifted_at IS NULL;
CREATE INDEX suppression_by_target ON memory_suppression (tenant_id, target_id);

ALTER TABLE memory_preventedreturn
  ADD CONSTRAINT preventedreturn_once UNIQUE (tenant_id, day),
  ALTER refused SET DEFAULT 0, ALTER asked SET DEFAULT 0;

-- A suppression is renewed by a later decision of the same, and lifted once, by a person of the tenant.
CREATE FUNCTION suppression_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR OLD.lifted_at IS NOT NULL OR NEW.decided_at < OLD.decided_at
     OR to_jsonb(NEW) - '{decided_at,cause,target_kind,target_id,lifted_at,lifted_by,lift_reason}'::text[]
        IS DISTINCT FROM
        to_jsonb(OLD) - '{decided_at,cause,target_kind,target_id,lifted_at,lifted_by,lift_reason}'::text[] THEN
    RAISE EXCEPTION 'muniment: a suppression is renewed or lifted, and stays' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.lifted_at IS NOT NULL THEN
    NEW.lifted_at := clock_timestamp();
    NEW.lifted_by := nullif(current_setting('muniment.actor', true), '')::uuid;
    IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.lifted_by
                   AND m.role = 'privacy_officer') THEN
      RAISE EXCEPTION 'muniment: a privacy officer of the tenant lifts a suppression' USING ERRCODE = 'insufficient_privilege';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER suppression_moves BEFORE UPDATE OR DELETE ON memory_suppression
  FOR EACH ROW EXECUTE FUNCTION suppression_moves();

GRANT SELECT, INSERT ON memory_suppression TO muniment_writer, muniment_worker;
GRANT UPDATE (decided_at, cause, target_kind, target_id) ON memory_suppression TO muniment_writer, muniment_worker;
GRANT SELECT, INSERT ON memory_preventedreturn TO muniment_writer;
GRANT UPDATE (refused, asked) ON memory_preventedreturn TO muniment_writer;
GRANT SELECT ON memory_suppression, memory_preventedreturn TO muniment_staff;
GRANT UPDATE (lifted_at, lifted_by, lift_reason) ON memory_suppression TO muniment_staff;
