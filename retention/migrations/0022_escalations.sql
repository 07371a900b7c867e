-- Escalations: keys, row-level security, told once a request, level and day, and never changed.
ALTER TABLE retention_escalation
  DROP CONSTRAINT retention_escalation_pkey,
  ADD CONSTRAINT retention_escalation_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT escalation_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT escalation_request FOREIGN KEY (tenant_id, request_id) REFERENCES retention_subjectrequest (tenant_id, id),
  ADD CONSTRAINT escalation_once UNIQUE (tenant_id, request_id, level, due_at),
  ADD CONSTRAINT escalation_level_and_role_known
    CHECK ((level, told) IN (('due_soon', 'privacy_officer'), ('overdue', 'tenant_admin'))),
  ADD CONSTRAINT escalation_overdue CHECK ((level = 'overdue') = (at >= due_at));
ALTER TABLE retention_escalation ENABLE ROW LEVEL SECURITY;
ALTER TABLE retention_escalation FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON retention_escalation TO muniment_staff
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON retention_escalation TO muniment_staff;
CREATE TRIGGER escalation_frozen BEFORE UPDATE OR DELETE ON retention_escalation FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- What a subject takes along is handed over, and of that there is a certificate. Those closed before stay as they are.
ALTER TABLE retention_subjectrequest DROP CONSTRAINT subjectrequest_led_to_known,
  ADD CONSTRAINT subjectrequest_led_to_known
    CHECK (led_to_kind IN ('access_export', 'erasure', 'run', 'restriction', 'evidence', 'decision_request', 'certificate')),
  ADD CONSTRAINT subjectrequest_handed_over CHECK (kind <> 'portability' OR outcome IS NULL OR outcome = 'nothing_held'
    OR coalesce(led_to_kind = 'certificate', false)) NOT VALID;
