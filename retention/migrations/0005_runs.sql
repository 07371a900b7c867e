-- Runs and certificates: keys, row-level security, grants, and what never changes of them.
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_run', 'retention_certificate'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_worker'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
    EXECUTE format('CREATE POLICY staff_reads ON %I FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant())', t);
    EXECUTE format('CREATE POLICY agent_reads ON %I FOR SELECT TO muniment_agent USING (tenant_id = muniment_tenant())', t);
    EXECUTE format('GRANT SELECT ON %I TO muniment_staff, muniment_agent', t);
    EXECUTE format('GRANT SELECT, INSERT ON %I TO muniment_worker', t);
  END LOOP;
END $$;

-- Numbers by codes, however deep nothing else.
CREATE FUNCTION only_numbers(counts jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN jsonb_typeof(counts) = 'object' AND NOT jsonb_path_exists(counts, '$.* ? (@.type() != "number")');
-- Ids, instants, digests in hex, codes, numbers: no string that could be a sentence.
CREATE FUNCTION only_codes(document jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN jsonb_typeof(document) = 'object'
    AND NOT jsonb_path_exists(document, '$.** ? (@.type() == "string" && !(@ like_regex "^[A-Za-z0-9_.:+-]{1,128}$"))');

REVOKE ALL ON FUNCTION only_numbers(jsonb), only_codes(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION only_numbers(jsonb), only_codes(jsonb) TO muniment_worker;

ALTER TABLE retention_run
  ADD CONSTRAINT run_kind_known CHECK (kind IN ('compaction', 'erasure', 'redaction', 'rotation', 'restore', 'backup', 'verification')),
  ADD CONSTRAINT run_state_known CHECK (state IN ('pending', 'running', 'done', 'failed', 'stopped')),
  ADD CONSTRAINT run_words CHECK (target_kind ~ '^[a-z_]{1,40}$' AND step ~ '^[a-z_]{1,40}$' AND code ~ '^[a-z0-9_]{1,60}$'),
  ADD CONSTRAINT run_finished CHECK ((finished_at IS NULL) = (state IN ('pending', 'running'))),
  ADD CONSTRAINT run_numbers CHECK (only_numbers(counts)),
  ADD CONSTRAINT run_cursor_codes CHECK (only_codes(cursor)),
  ADD CONSTRAINT run_refused CHECK (refused_by_hold >= 0),
  ALTER state SET DEFAULT 'pending', ALTER step SET DEFAULT 'begun', ALTER cursor SET DEFAULT '{}', ALTER counts SET DEFAULT '{}',
  ALTER refused_by_hold SET DEFAULT 0;
-- One at a time of a kind about one thing.
CREATE UNIQUE INDEX run_open_once ON retention_run (tenant_id, kind, target_id) NULLS NOT DISTINCT
  WHERE state IN ('pending', 'running');
CREATE INDEX run_by_kind ON retention_run (tenant_id, kind, id);

CREATE FUNCTION run_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR OLD.state IN ('done', 'failed', 'stopped')
     OR (NEW.tenant_id, NEW.id, NEW.kind, NEW.target_kind, NEW.target_id, NEW.requested_by, NEW.started_at)
       IS DISTINCT FROM (OLD.tenant_id, OLD.id, OLD.kind, OLD.target_kind, OLD.target_id, OLD.requested_by, OLD.started_at)
     OR NEW.refused_by_hold < OLD.refused_by_hold THEN
    RAISE EXCEPTION 'muniment: a run only goes on, to its end' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER run_moves BEFORE UPDATE OR DELETE ON retention_run FOR EACH ROW EXECUTE FUNCTION run_moves();
GRANT UPDATE (state, step, cursor, counts, refused_by_hold, advanced_at, finished_at, code) ON retention_run TO muniment_worker;

ALTER TABLE retention_certificate
  ADD CONSTRAINT certificate_run FOREIGN KEY (tenant_id, run_id) REFERENCES retention_run (tenant_id, id),
  ADD CONSTRAINT certificate_follows FOREIGN KEY (tenant_id, follows_id) REFERENCES retention_certificate (tenant_id, id),
  ADD CONSTRAINT certificate_kind_shape CHECK (kind ~ '^[a-z_]{1,40}$'),
  ADD CONSTRAINT certificate_codes CHECK (only_codes(document)),
  ADD CONSTRAINT certificate_signed CHECK (octet_length(signature) = 64 AND octet_length(digest) = 32
    AND octet_length(key_digest) = 32 AND octet_length(chain_hash) = 32);
CREATE INDEX certificate_by_run ON retention_certificate (tenant_id, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX certificate_by_former ON retention_certificate (tenant_id, follows_id) WHERE follows_id IS NOT NULL;
CREATE TRIGGER certificate_frozen BEFORE UPDATE OR DELETE ON retention_certificate FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER certificate_not_emptied BEFORE TRUNCATE ON retention_certificate EXECUTE FUNCTION refuse_change();
