-- Derived text: isolation, links, and what may be thrown away.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_derived', 'memory_derivedsource'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_writer'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

-- A text goes with its payload, and what it rests on with the text.
ALTER TABLE memory_derived
  ADD CONSTRAINT derived_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT derived_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id) ON DELETE CASCADE,
  ADD CONSTRAINT derived_once UNIQUE (tenant_id, subject_id, kind, clearance),
  ADD CONSTRAINT derived_kind_known CHECK (kind = 'profile'),
  ADD CONSTRAINT derived_state_known CHECK (state IN ('wanted', 'built')),
  ADD CONSTRAINT derived_clearance_known CHECK (clearance BETWEEN 0 AND 3),
  -- What is made for readers of a clearance holds nothing above it.
  ADD CONSTRAINT derived_class_known CHECK (sensitivity BETWEEN 0 AND clearance),
  ADD CONSTRAINT derived_whole CHECK ((payload_id IS NULL) = (sensitivity IS NULL) AND (payload_id IS NULL) = (basis IS NULL)
    AND (payload_id IS NULL) = (built_at IS NULL) AND (payload_id IS NULL) = (sources = 0)),
  ADD CONSTRAINT derived_expiry_by_basis CHECK ((expires_at IS NULL) = (coalesce(basis, 'indefinite') = 'indefinite')),
  ALTER state SET DEFAULT 'wanted', ALTER sources SET DEFAULT 0;
CREATE INDEX derived_by_payload ON memory_derived (tenant_id, payload_id) WHERE payload_id IS NOT NULL;
CREATE INDEX derived_by_age ON memory_derived (tenant_id, built_at) WHERE payload_id IS NOT NULL;

ALTER TABLE memory_derivedsource
  ADD CONSTRAINT derivedsource_derived FOREIGN KEY (tenant_id, derived_id) REFERENCES memory_derived (tenant_id, id)
    ON DELETE CASCADE,
  ADD CONSTRAINT derivedsource_fact FOREIGN KEY (tenant_id, fact_id) REFERENCES memory_fact (tenant_id, id) ON DELETE CASCADE,
  -- No more than a pointer: a stretch that is taken out again takes it along, and the text with it is not served.
  ADD CONSTRAINT derivedsource_belief FOREIGN KEY (tenant_id, belief_id) REFERENCES memory_belief (tenant_id, id)
    ON DELETE CASCADE,
  ADD CONSTRAINT derivedsource_once UNIQUE (tenant_id, derived_id, fact_id);
CREATE INDEX derivedsource_by_fact ON memory_derivedsource (tenant_id, fact_id);
CREATE INDEX derivedsource_by_belief ON memory_derivedsource (tenant_id, belief_id);

ALTER TABLE memory_payload
  DROP CONSTRAINT payload_purpose_known,
  ADD CONSTRAINT payload_purpose_known
    CHECK (purpose IN ('subject', 'alias', 'episode', 'value', 'quote', 'candidate', 'derived')) NOT VALID;
ALTER TABLE memory_payload VALIDATE CONSTRAINT payload_purpose_known;

-- What was said is not deleted; what was made of it may be, at any time.
CREATE FUNCTION payload_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: only what is derived is thrown away' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER payload_kept BEFORE DELETE ON memory_payload FOR EACH ROW WHEN (OLD.purpose <> 'derived')
  EXECUTE FUNCTION payload_kept();

GRANT SELECT, INSERT ON memory_derived TO muniment_writer;
GRANT UPDATE (state, asked_at, payload_id, sensitivity, basis, expires_at, origin, sources, builder, built_at)
  ON memory_derived TO muniment_writer;
GRANT SELECT, INSERT, DELETE ON memory_derivedsource TO muniment_writer;
GRANT DELETE ON memory_payload TO muniment_writer;

-- A reader finds what was made for its own clearance, nothing made for another.
CREATE POLICY agent_reads ON memory_derived FOR SELECT TO muniment_agent
  USING (tenant_id = muniment_tenant() AND clearance = muniment_clearance());
CREATE POLICY agent_reads ON memory_derivedsource FOR SELECT TO muniment_agent USING (tenant_id = muniment_tenant());
GRANT SELECT ON memory_derived, memory_derivedsource TO muniment_agent;
