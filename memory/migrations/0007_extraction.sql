-- What became of drawing facts from episodes.

ALTER TABLE memory_extraction
  DROP CONSTRAINT memory_extraction_pkey,
  ADD CONSTRAINT memory_extraction_pkey PRIMARY KEY (tenant_id, id),
  ADD CONSTRAINT extraction_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT extraction_episode FOREIGN KEY (tenant_id, episode_id) REFERENCES memory_episode (tenant_id, id),
  ADD CONSTRAINT extraction_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  -- An episode is drawn from once: whoever draws from it holds this row.
  ADD CONSTRAINT extraction_once UNIQUE (tenant_id, episode_id),
  ADD CONSTRAINT extraction_state_known CHECK (state IN ('pending', 'done', 'failed', 'skipped')),
  ADD CONSTRAINT extraction_finished CHECK ((finished_at IS NULL) = (state = 'pending')),
  ADD CONSTRAINT extraction_says_why CHECK (state NOT IN ('failed', 'skipped') OR code IS NOT NULL),
  ADD CONSTRAINT extraction_code_shape CHECK (code ~ '^[a-z][a-z0-9_]{0,59}$'),
  ADD CONSTRAINT extraction_results_listed CHECK (jsonb_typeof(results) = 'array'),
  ALTER attempts SET DEFAULT 0, ALTER extractors SET DEFAULT '{}', ALTER results SET DEFAULT '[]', ALTER purposes SET DEFAULT '{}';
CREATE INDEX extraction_waiting ON memory_extraction (tenant_id, subject_id) WHERE state = 'pending';

ALTER TABLE memory_extraction ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_extraction FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON memory_extraction TO muniment_writer
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
CREATE POLICY agent_reads ON memory_extraction FOR SELECT TO muniment_agent USING (tenant_id = muniment_tenant());
CREATE POLICY staff_reads ON memory_extraction FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
GRANT SELECT, INSERT ON memory_extraction TO muniment_writer;
GRANT UPDATE (state, code, attempts, extractors, results, finished_at) ON memory_extraction TO muniment_writer;
GRANT SELECT ON memory_extraction TO muniment_agent, muniment_staff;

-- What was served to whom, so that it is known when it comes back.
GRANT SELECT ON memory_receipt TO muniment_writer;
