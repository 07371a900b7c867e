-- Composite keys, row-level security and grants of the `policies` app.
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['policies_attribute', 'policies_attributeversion', 'policies_policy', 'policies_policyversion',
      'policies_consent'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 10) || '_tenant');
  END LOOP;
  FOREACH t IN ARRAY ARRAY['policies_attribute', 'policies_attributeversion', 'policies_policy', 'policies_policyversion',
      'policies_consent', 'policies_historicalattribute', 'policies_historicalpolicy'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO %s'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t,
                   CASE WHEN t LIKE '%historical%' THEN 'muniment_staff'
                        WHEN t = 'policies_consent' THEN 'muniment_agent, muniment_writer, muniment_worker'
                        WHEN t = 'policies_attribute' THEN 'muniment_agent, muniment_writer, muniment_staff, muniment_worker'
                        ELSE 'muniment_agent, muniment_writer, muniment_staff' END);
  END LOOP;
END $$;

ALTER TABLE policies_attribute
  ADD CONSTRAINT attribute_name_once UNIQUE (tenant_id, name),
  ADD CONSTRAINT attribute_name_shape CHECK (name ~ '^[A-Za-z][A-Za-z0-9_./-]{0,199}$'),
  ADD CONSTRAINT attribute_cardinality_known CHECK (cardinality IN ('single', 'multi'));

ALTER TABLE policies_attributeversion
  ADD CONSTRAINT attributeversion_attribute FOREIGN KEY (tenant_id, attribute_id) REFERENCES policies_attribute (tenant_id, id),
  ADD CONSTRAINT attributeversion_number_once UNIQUE (tenant_id, attribute_id, number),
  ADD CONSTRAINT attributeversion_state_known CHECK (state IN ('draft', 'active', 'retired'));
CREATE UNIQUE INDEX attributeversion_one_active ON policies_attributeversion (tenant_id, attribute_id) WHERE state = 'active';

ALTER TABLE policies_policy ADD CONSTRAINT policy_name_once UNIQUE (tenant_id, name);
ALTER TABLE policies_policyversion
  ADD CONSTRAINT policyversion_policy FOREIGN KEY (tenant_id, policy_id) REFERENCES policies_policy (tenant_id, id),
  ADD CONSTRAINT policyversion_number_once UNIQUE (tenant_id, policy_id, number),
  ADD CONSTRAINT policyversion_state_known CHECK (state IN ('draft', 'active', 'retired'));
-- One write policy is in force in a tenant.
CREATE UNIQUE INDEX policyversion_one_active ON policies_policyversion (tenant_id) WHERE state = 'active';

ALTER TABLE policies_consent
  ADD CONSTRAINT consent_ref_once UNIQUE (tenant_id, ref),
  ADD CONSTRAINT consent_ref_bounded CHECK (char_length(ref) BETWEEN 1 AND 200),
  ADD CONSTRAINT consent_ends_after_it_began CHECK (withdrawn_at >= granted_at),
  ADD CONSTRAINT consent_lock_inert CHECK (lock_no = 0);
CREATE INDEX consent_by_subject ON policies_consent (tenant_id, subject_id);
ALTER TABLE policies_consent ALTER lock_no SET DEFAULT 0;

-- A published version never changes; only its state moves on.
CREATE FUNCTION version_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - 'state' IS DISTINCT FROM to_jsonb(OLD) - 'state'
     OR (OLD.state, NEW.state) NOT IN (('draft', 'active'), ('active', 'retired'), ('draft', 'retired'), ('active', 'active')) THEN
    RAISE EXCEPTION 'muniment: a published version of % does not change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER attributeversion_frozen BEFORE UPDATE OR DELETE ON policies_attributeversion
  FOR EACH ROW EXECUTE FUNCTION version_frozen();
CREATE TRIGGER policyversion_frozen BEFORE UPDATE OR DELETE ON policies_policyversion
  FOR EACH ROW EXECUTE FUNCTION version_frozen();

-- A withdrawal is for good: the person consents anew, under another reference.
CREATE FUNCTION consent_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.withdrawn_at IS NOT NULL OR to_jsonb(NEW) - 'withdrawn_at' IS DISTINCT FROM to_jsonb(OLD) - 'withdrawn_at' THEN
    RAISE EXCEPTION 'muniment: a consent changes only by its withdrawal' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER consent_frozen BEFORE UPDATE ON policies_consent FOR EACH ROW EXECUTE FUNCTION consent_frozen();

GRANT SELECT ON policies_attribute, policies_attributeversion, policies_policy, policies_policyversion
  TO muniment_agent, muniment_writer, muniment_staff;
GRANT SELECT ON policies_attribute TO muniment_worker;
GRANT SELECT ON policies_consent TO muniment_agent, muniment_writer, muniment_worker;
GRANT INSERT ON policies_attribute, policies_attributeversion, policies_policy, policies_policyversion TO muniment_staff;
GRANT UPDATE (state) ON policies_attributeversion, policies_policyversion TO muniment_staff;
GRANT SELECT, INSERT ON policies_historicalattribute, policies_historicalpolicy TO muniment_staff;
GRANT INSERT, UPDATE (lock_no) ON policies_consent TO muniment_writer;
GRANT UPDATE (withdrawn_at) ON policies_consent TO muniment_worker;
