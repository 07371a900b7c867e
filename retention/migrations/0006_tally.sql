-- What was done, counted by day. No row of it says more than the chain does.
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_tally', 'retention_tallystate'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 11) || '_tenant');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_worker'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
    EXECUTE format('CREATE POLICY staff_reads ON %I FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant())', t);
    EXECUTE format('GRANT SELECT ON %I TO muniment_staff, muniment_worker', t);
  END LOOP;
END $$;

ALTER TABLE retention_tally
  ADD CONSTRAINT tally_once UNIQUE (tenant_id, day, action, actor_kind, actor_id),
  ADD CONSTRAINT tally_number_grows CHECK (number > 0);
ALTER TABLE retention_tallystate
  ADD CONSTRAINT tallystate_one_a_tenant CHECK (id = tenant_id),
  ALTER counted_to SET DEFAULT 0;
GRANT INSERT ON retention_tally, retention_tallystate TO muniment_worker;
GRANT UPDATE (number) ON retention_tally TO muniment_worker;
GRANT UPDATE (counted_to) ON retention_tallystate TO muniment_worker;
