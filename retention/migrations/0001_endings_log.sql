-- What is owed to the endings log: isolation, shapes, and that it changes once.

ALTER TABLE retention_owedending DROP CONSTRAINT retention_owedending_pkey;
ALTER TABLE retention_owedending
  ADD CONSTRAINT retention_owedending_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT owedending_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT owedending_kind_known CHECK (kind IN ('redaction', 'erasure', 'suppression', 'suppression_lifted',
    'consent_withdrawn', 'hold_placed', 'hold_released', 'restriction')),
  ADD CONSTRAINT owedending_record_bounded CHECK (jsonb_typeof(record) = 'object' AND octet_length(record::text) <= 100000),
  ADD CONSTRAINT owedending_settled_whole CHECK ((settled_at IS NULL) = (line IS NULL) AND line > 0);
CREATE INDEX owedending_open ON retention_owedending (tenant_id, owed_at) WHERE settled_at IS NULL;
CREATE INDEX owedending_by_line ON retention_owedending (tenant_id, line);

ALTER TABLE retention_owedending ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_owedending FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_owedending TO muniment_worker
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_owedending TO muniment_worker;
GRANT UPDATE (settled_at, line) ON retention_owedending TO muniment_worker;

-- What was owed stays as it was owed, and where it was told as well.
CREATE FUNCTION owedending_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR OLD.settled_at IS NOT NULL
     OR to_jsonb(NEW) - 'settled_at' - 'line' IS DISTINCT FROM to_jsonb(OLD) - 'settled_at' - 'line' THEN
    RAISE EXCEPTION 'muniment: what is owed to the endings log does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER owedending_frozen BEFORE UPDATE OR DELETE ON retention_owedending
  FOR EACH ROW EXECUTE FUNCTION owedending_frozen();
