-- What questions to a model may cost and have cost: counts, and nothing of what was asked.
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_modelbudget', 'memory_modelspending'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_worker'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

ALTER TABLE memory_modelbudget
  ADD CONSTRAINT modelbudget_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  -- One row a tenant: whoever sets tokens aside waits for it, so that no two spend the same ones.
  ADD CONSTRAINT modelbudget_once UNIQUE (tenant_id),
  ADD CONSTRAINT modelbudget_not_below_nothing CHECK (day_tokens >= 0 AND month_tokens >= 0),
  ADD CONSTRAINT modelbudget_month_begins CHECK (extract(day FROM month) = 1);

ALTER TABLE memory_modelspending
  ADD CONSTRAINT modelspending_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT modelspending_once UNIQUE (tenant_id, day, model, outcome),
  ADD CONSTRAINT modelspending_outcome_shape CHECK (outcome ~ '^[a-z_]{1,40}$'),
  ADD CONSTRAINT modelspending_model_bounded CHECK (octet_length(model) BETWEEN 1 AND 300),
  ADD CONSTRAINT modelspending_counts
    CHECK (calls > 0 AND tokens_in >= 0 AND tokens_out >= 0 AND milliseconds >= 0 AND cost >= 0);
CREATE INDEX modelspending_by_day ON memory_modelspending (day);
-- What operators' tools ask, over all tenants.
CREATE POLICY before_any_tenant ON memory_modelspending FOR SELECT TO muniment_front USING (true);

GRANT SELECT, INSERT ON memory_modelbudget, memory_modelspending TO muniment_worker;
GRANT UPDATE (day, day_tokens, month, month_tokens) ON memory_modelbudget TO muniment_worker;
GRANT UPDATE (calls, tokens_in, tokens_out, milliseconds, cost) ON memory_modelspending TO muniment_worker;
GRANT SELECT ON memory_modelspending TO muniment_front;
