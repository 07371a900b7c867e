-- Access exports: isolation, shapes, and a further kind of payload.

ALTER TABLE retention_accessexport
  DROP CONSTRAINT retention_accessexport_pkey,
  ADD CONSTRAINT retention_accessexport_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT accessexport_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT accessexport_asked FOREIGN KEY (tenant_id, asked_id) REFERENCES retention_subjectrequest (tenant_id, id),
  ADD CONSTRAINT accessexport_kind_known CHECK (kind IN ('access', 'portability')),
  ADD CONSTRAINT accessexport_state_known CHECK (state IN ('pending', 'done', 'failed', 'ended')),
  -- What is there may be fetched until it ends, and nothing is there without an end.
  ADD CONSTRAINT accessexport_done CHECK ((state = 'done') = (payload_id IS NOT NULL)),
  ADD CONSTRAINT accessexport_ends CHECK (state <> 'done' OR expires_at IS NOT NULL AND expires_at <= made_at + interval '7 days'),
  ADD CONSTRAINT accessexport_downloads CHECK (downloads >= 0),
  ALTER state SET DEFAULT 'pending', ALTER downloads SET DEFAULT 0;
CREATE UNIQUE INDEX accessexport_pending_once ON retention_accessexport (tenant_id, asked_id) WHERE state = 'pending';
CREATE INDEX accessexport_by_asked ON retention_accessexport (tenant_id, asked_id, id);
CREATE INDEX accessexport_by_subject ON retention_accessexport (tenant_id, subject_id) WHERE state IN ('pending', 'done');
CREATE INDEX accessexport_ending ON retention_accessexport (tenant_id, expires_at) WHERE state = 'done';

ALTER TABLE retention_accessexport ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_accessexport FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_accessexport TO muniment_staff, muniment_writer, muniment_worker
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_accessexport TO muniment_staff;
GRANT UPDATE (downloads) ON retention_accessexport TO muniment_staff;
GRANT SELECT ON retention_accessexport TO muniment_writer, muniment_worker;
GRANT UPDATE (state, payload_id, made_at, expires_at, size, digest) ON retention_accessexport TO muniment_writer;
GRANT UPDATE (state, payload_id) ON retention_accessexport TO muniment_worker;

-- One more purpose of payloads, whatever the list holds by now.
DO $$
DECLARE
  former text;
BEGIN
  SELECT pg_get_constraintdef(oid) INTO STRICT former FROM pg_constraint
    WHERE conname = 'payload_purpose_known' AND conrelid = 'memory_payload'::regclass;
  EXECUTE 'ALTER TABLE memory_payload DROP CONSTRAINT payload_purpose_known';
  EXECUTE 'ALTER TABLE memory_payload ADD CONSTRAINT payload_purpose_known '
    || replace(replace(former, 'ARRAY[', 'ARRAY[''export''::text, '), ' NOT VALID', '') || ' NOT VALID';
  EXECUTE 'ALTER TABLE memory_payload VALIDATE CONSTRAINT payload_purpose_known';
END $$;

-- A request may lead to an erasure.
ALTER TABLE retention_subjectrequest DROP CONSTRAINT subjectrequest_led_to_known,
  ADD CONSTRAINT subjectrequest_led_to_known
    CHECK (led_to_kind IN ('access_export', 'erasure', 'run', 'restriction', 'evidence', 'decision_request'));
