-- Procedures: isolation, links, the way of a version, and what agents may read of it.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_procedure', 'memory_procedureversion', 'memory_procedureevidence'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
  END LOOP;
  FOREACH t IN ARRAY ARRAY['memory_procedure', 'memory_procedureversion', 'memory_procedureevidence',
      'memory_historicalprocedureversion'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO %s'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t,
                   CASE t WHEN 'memory_procedureversion' THEN 'muniment_staff, muniment_writer, muniment_worker'
                          WHEN 'memory_procedure' THEN 'muniment_staff, muniment_writer' ELSE 'muniment_staff' END);
  END LOOP;
END $$;

ALTER TABLE memory_procedure
  ADD CONSTRAINT procedure_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT procedure_name_once UNIQUE (tenant_id, name),
  ADD CONSTRAINT procedure_name_shape CHECK (name ~ '^[a-z][a-z0-9_-]{0,79}$'),
  ADD CONSTRAINT procedure_lock_inert CHECK (lock_no = 0),
  ALTER lock_no SET DEFAULT 0;

ALTER TABLE memory_procedureversion
  ADD CONSTRAINT procedureversion_procedure FOREIGN KEY (tenant_id, procedure_id) REFERENCES memory_procedure (tenant_id, id),
  ADD CONSTRAINT procedureversion_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id),
  ADD CONSTRAINT procedureversion_agent FOREIGN KEY (tenant_id, agent_id) REFERENCES tenants_agent (tenant_id, id),
  ADD CONSTRAINT procedureversion_number_once UNIQUE (tenant_id, procedure_id, number),
  -- What a version replaces or gives way to is of the same procedure and scope.
  ADD CONSTRAINT procedureversion_of_a_scope UNIQUE (tenant_id, id, procedure_id, scope),
  ADD CONSTRAINT procedureversion_base FOREIGN KEY (tenant_id, base_id, procedure_id, scope)
    REFERENCES memory_procedureversion (tenant_id, id, procedure_id, scope),
  ADD CONSTRAINT procedureversion_rollback FOREIGN KEY (tenant_id, rollback_id, procedure_id, scope)
    REFERENCES memory_procedureversion (tenant_id, id, procedure_id, scope),
  -- There is always a way back: to a version, and for a first one to none.
  ADD CONSTRAINT procedureversion_way_back CHECK ((base_id IS NULL) = (rollback_id IS NULL)),
  ADD CONSTRAINT procedureversion_scope_known CHECK (
    scope = 'tenant' AND scope_rank = 0 AND agent_id IS NULL
    OR scope ~ '^purpose:[a-z][a-z0-9_.-]{0,59}$' AND scope_rank = 1 AND agent_id IS NULL
    OR scope ~ '^agent:.{1,100}$' AND scope_rank = 2 AND agent_id IS NOT NULL),
  ADD CONSTRAINT procedureversion_digest_length CHECK (octet_length(digest) = 32 AND octet_length(body_digest) = 32),
  -- A procedure tells agents what to do; it is no place for what is restricted.
  ADD CONSTRAINT procedureversion_class_known CHECK (sensitivity BETWEEN 0 AND 2),
  ADD CONSTRAINT procedureversion_basis_known CHECK (basis IN ('session', 'consent', 'contract', 'indefinite')),
  ADD CONSTRAINT procedureversion_expiry_by_basis CHECK ((expires_at IS NULL) = (basis = 'indefinite')),
  ADD CONSTRAINT procedureversion_redaction_known CHECK (redaction_state IN ('none', 'required', 'applied')),
  ADD CONSTRAINT procedureversion_proposer_known CHECK (proposed_by_kind IN ('agent', 'person')),
  ADD CONSTRAINT procedureversion_state_known
    CHECK (state IN ('draft', 'proposed', 'approved', 'active', 'retired', 'refused')),
  ADD CONSTRAINT procedureversion_test_whole CHECK (
    (test_reference IS NULL) = (test_result IS NULL) AND (test_reference IS NULL) = (test_kind IS NULL)
    AND test_kind IN ('test', 'evaluation') AND test_result IN ('passed', 'failed')
    AND (test_cases IS NULL) = (test_passed IS NULL) AND (test_reference IS NOT NULL OR test_cases IS NULL)
    AND test_passed BETWEEN 0 AND test_cases),
  ADD CONSTRAINT procedureversion_tested CHECK (state = 'draft' OR test_reference IS NOT NULL),
  ADD CONSTRAINT procedureversion_passed CHECK (state NOT IN ('approved', 'active', 'retired') OR test_result = 'passed'),
  ADD CONSTRAINT procedureversion_scheduled
    CHECK ((activate_at IS NULL) = (scheduled_by IS NULL) AND (activate_at IS NULL OR state = 'approved')),
  ADD CONSTRAINT procedureversion_activated CHECK ((activated_at IS NULL) = (activated_by IS NULL)
    AND (activated_at IS NOT NULL) = (state IN ('active', 'retired'))),
  ADD CONSTRAINT procedureversion_retired CHECK ((state = 'retired') = (retired_at IS NOT NULL)
    AND (retired_at IS NULL) = (retired_by IS NULL) AND (retired_at IS NULL) = (retired_because IS NULL)
    AND retired_because IN ('replaced', 'rolled_back', 'deactivated')),
  ALTER state SET DEFAULT 'draft', ALTER redaction_state SET DEFAULT 'none', ALTER redaction_fields SET DEFAULT '{}',
  ALTER restricted SET DEFAULT false, ALTER detected SET DEFAULT '{}';
-- Of one procedure one version is active in one scope.
CREATE UNIQUE INDEX procedureversion_one_active ON memory_procedureversion (tenant_id, procedure_id, scope)
  WHERE state = 'active';
CREATE INDEX procedureversion_by_state ON memory_procedureversion (tenant_id, state, id);
CREATE INDEX procedureversion_by_payload ON memory_procedureversion (tenant_id, payload_id);
CREATE INDEX receipt_by_procedure ON memory_receipt USING gin (procedure_ids) WHERE procedure_ids IS NOT NULL;
CREATE INDEX procedureversion_by_proposer ON memory_procedureversion (tenant_id, procedure_id, proposed_by);

ALTER TABLE memory_procedureevidence
  ADD CONSTRAINT procedureevidence_version FOREIGN KEY (tenant_id, version_id)
    REFERENCES memory_procedureversion (tenant_id, id),
  -- What was named goes with what it named.
  ADD CONSTRAINT procedureevidence_episode FOREIGN KEY (tenant_id, episode_id) REFERENCES memory_episode (tenant_id, id)
    ON DELETE CASCADE,
  ADD CONSTRAINT procedureevidence_fact FOREIGN KEY (tenant_id, fact_id) REFERENCES memory_fact (tenant_id, id)
    ON DELETE CASCADE,
  ADD CONSTRAINT procedureevidence_one_thing CHECK ((episode_id IS NULL) <> (fact_id IS NULL)),
  ADD CONSTRAINT procedureevidence_once UNIQUE NULLS NOT DISTINCT (tenant_id, version_id, episode_id, fact_id);
CREATE INDEX procedureevidence_by_episode ON memory_procedureevidence (tenant_id, episode_id) WHERE episode_id IS NOT NULL;
CREATE INDEX procedureevidence_by_fact ON memory_procedureevidence (tenant_id, fact_id) WHERE fact_id IS NOT NULL;

ALTER TABLE memory_payload
  DROP CONSTRAINT payload_purpose_known,
  ADD CONSTRAINT payload_purpose_known
    CHECK (purpose IN ('subject', 'alias', 'episode', 'value', 'quote', 'candidate', 'derived', 'procedure')) NOT VALID,
  -- A procedure's text is sealed whatever its class: its key is its own, and ends with it.
  ADD CONSTRAINT payload_procedure_is_sealed CHECK (purpose <> 'procedure' OR clear IS NULL) NOT VALID;
ALTER TABLE memory_payload VALIDATE CONSTRAINT payload_purpose_known;
ALTER TABLE memory_payload VALIDATE CONSTRAINT payload_procedure_is_sealed;

-- who proposes -----------------------------------------------------------------------------------------------------
-- Who and when are the transaction's own, whatever the row says.
CREATE FUNCTION procedureversion_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.state := 'draft';
  NEW.created_at := clock_timestamp();
  NEW.proposed_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.proposed_by_kind := CASE WHEN EXISTS (SELECT FROM tenants_agent a WHERE a.tenant_id = NEW.tenant_id
    AND a.id = NEW.proposed_by) THEN 'agent' ELSE 'person' END;
  RETURN NEW;
END $$;
CREATE TRIGGER procedureversion_filled BEFORE INSERT ON memory_procedureversion
  FOR EACH ROW EXECUTE FUNCTION procedureversion_filled();

CREATE FUNCTION procedureversion_by_somebody() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.proposed_by_kind <> 'agent' AND NOT EXISTS (SELECT FROM tenants_membership m
      WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.proposed_by AND m.role <> 'auditor') THEN
    RAISE EXCEPTION 'muniment: a member or an agent of the tenant proposes a version' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER procedureversion_by_somebody AFTER INSERT ON memory_procedureversion
  FOR EACH ROW EXECUTE FUNCTION procedureversion_by_somebody();

-- the way of a version ---------------------------------------------------------------------------------------------
-- Nothing of it changes but its state, one way, and each step by what carries it: a question that is open, a decision of
-- another person, an approval that is used up in this very transaction, an approver who takes it back.
CREATE FUNCTION procedureversion_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := nullif(current_setting('muniment.actor', true), '')::uuid;
  step text := OLD.state || ' ' || NEW.state;
  in_force uuid;
  allowed boolean := false;
  moving text[] := '{state,activate_at,scheduled_by,activated_at,activated_by,retired_at,retired_by,retired_because,redaction_state,redaction_fields,restricted}';
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - moving IS DISTINCT FROM to_jsonb(OLD) - moving THEN
    RAISE EXCEPTION 'muniment: a version of a procedure does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  IF current_user NOT IN ('muniment_staff') THEN
    -- The background work marks what became of the text, and moves nothing.
    IF to_jsonb(NEW) - '{redaction_state,redaction_fields,restricted}'::text[]
       IS DISTINCT FROM to_jsonb(OLD) - '{redaction_state,redaction_fields,restricted}'::text[] THEN
      RAISE EXCEPTION 'muniment: a version of a procedure is moved by a person' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
  END IF;
  NEW.activated_at := OLD.activated_at;
  NEW.activated_by := OLD.activated_by;
  NEW.retired_at := OLD.retired_at;
  NEW.retired_by := OLD.retired_by;
  IF NEW.state = OLD.state THEN
    NEW.retired_because := OLD.retired_because;
    IF NEW.activate_at IS DISTINCT FROM OLD.activate_at THEN
      -- Without an approver no time is set; a time that has come to nothing may be taken away by the work that found so.
      IF NOT holds_role(OLD.tenant_id, who, 'approver') AND NOT (NEW.activate_at IS NULL AND who = OLD.scheduled_by) THEN
        RAISE EXCEPTION 'muniment: an approver says when a version becomes active' USING ERRCODE = 'insufficient_privilege';
      END IF;
      NEW.scheduled_by := CASE WHEN NEW.activate_at IS NOT NULL THEN who END;
    ELSE
      NEW.scheduled_by := OLD.scheduled_by;
    END IF;
    RETURN NEW;
  END IF;
  IF NEW.state NOT IN ('proposed', 'refused', 'draft') AND step <> 'proposed approved'
     AND NOT holds_role(OLD.tenant_id, who, 'approver') THEN
    RAISE EXCEPTION 'muniment: an approver moves a version of a procedure' USING ERRCODE = 'insufficient_privilege';
  END IF;
  SELECT v.id INTO in_force FROM memory_procedureversion v WHERE v.tenant_id = OLD.tenant_id
    AND v.procedure_id = OLD.procedure_id AND v.scope = OLD.scope AND v.state = 'active';
  IF step IN ('draft proposed', 'proposed approved') THEN
    allowed := in_force IS NOT DISTINCT FROM OLD.base_id
      AND EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = OLD.tenant_id AND r.act = 'procedure.promote'
        AND r.target_id = OLD.id AND r.digest = OLD.digest AND clock_timestamp() < r.expires_at
        AND r.state = CASE NEW.state WHEN 'proposed' THEN 'pending' ELSE 'approved' END);
  ELSIF step = 'proposed refused' THEN
    allowed := EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = OLD.tenant_id
      AND r.act = 'procedure.promote' AND r.target_id = OLD.id AND r.digest = OLD.digest AND r.state = 'refused');
  ELSIF step IN ('proposed draft', 'approved draft') THEN
    -- Sent back, taken back, or never decided in time.
    allowed := NOT EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = OLD.tenant_id
      AND r.act = 'procedure.promote' AND r.target_id = OLD.id AND r.state IN ('pending', 'approved', 'refused', 'done'));
  ELSIF step = 'approved active' THEN
    -- What it replaces was active until this very transaction, and the approval is used up in it.
    allowed := in_force IS NULL
      AND (OLD.base_id IS NULL OR EXISTS (SELECT FROM memory_procedureversion b WHERE b.tenant_id = OLD.tenant_id
        AND b.id = OLD.base_id AND b.state = 'retired' AND b.retired_because = 'replaced'
        AND b.retired_at >= transaction_timestamp()))
      AND EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = OLD.tenant_id AND r.act = 'procedure.promote'
        AND r.target_id = OLD.id AND r.digest = OLD.digest AND r.state = 'done' AND r.carried_out_by = who
        AND r.carried_out_at >= transaction_timestamp());
  ELSIF step = 'active retired' THEN
    allowed := true;
  ELSIF step = 'retired active' THEN
    allowed := in_force IS NULL AND EXISTS (SELECT FROM memory_procedureversion v WHERE v.tenant_id = OLD.tenant_id
      AND v.rollback_id = OLD.id AND v.state = 'retired' AND v.retired_because = 'rolled_back'
      AND v.retired_at >= transaction_timestamp());
  END IF;
  IF NOT allowed THEN
    RAISE EXCEPTION 'muniment: a version of a procedure moves one way, from % not to %', OLD.state, NEW.state
      USING ERRCODE = 'restrict_violation';
  END IF;
  NEW.activate_at := NULL;
  NEW.scheduled_by := NULL;
  IF NEW.state = 'active' THEN
    NEW.activated_at := clock_timestamp();
    NEW.activated_by := who;
    NEW.retired_at := NULL;
    NEW.retired_by := NULL;
    NEW.retired_because := NULL;
  ELSIF NEW.state = 'retired' THEN
    NEW.retired_at := clock_timestamp();
    NEW.retired_by := who;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER procedureversion_moves BEFORE UPDATE OR DELETE ON memory_procedureversion
  FOR EACH ROW EXECUTE FUNCTION procedureversion_moves();

-- At the commit a version that was replaced has its successor, and one that was rolled back what it gave way to; what was
-- approved is no longer said to wait.
CREATE FUNCTION procedureversion_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  found record;
BEGIN
  SELECT v.* INTO found FROM memory_procedureversion v WHERE v.tenant_id = NEW.tenant_id AND v.id = NEW.id;
  IF found.state = 'retired' AND found.retired_at >= transaction_timestamp()
     AND (found.retired_because = 'replaced' AND NOT EXISTS (SELECT FROM memory_procedureversion v
            WHERE v.tenant_id = NEW.tenant_id AND v.base_id = NEW.id AND v.activated_at >= transaction_timestamp())
       OR found.retired_because = 'rolled_back' AND NOT EXISTS (SELECT FROM memory_procedureversion v
            WHERE v.tenant_id = NEW.tenant_id AND v.id = NEW.rollback_id AND v.activated_at >= transaction_timestamp()))
  THEN
    RAISE EXCEPTION 'muniment: what takes the place of a version comes in the same act' USING ERRCODE = 'restrict_violation';
  END IF;
  IF found.state = 'proposed' AND NOT EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = NEW.tenant_id
      AND r.act = 'procedure.promote' AND r.target_id = NEW.id AND r.digest = NEW.digest AND r.state = 'pending') THEN
    RAISE EXCEPTION 'muniment: a proposed version waits for a decision' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER procedureversion_told AFTER UPDATE OF state ON memory_procedureversion
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION procedureversion_told();

-- A version is made of a text that nobody else has.
CREATE TRIGGER procedureevidence_frozen BEFORE UPDATE ON memory_procedureevidence FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE FUNCTION procedureevidence_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.named_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.named_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE TRIGGER procedureevidence_filled BEFORE INSERT ON memory_procedureevidence
  FOR EACH ROW EXECUTE FUNCTION procedureevidence_filled();
CREATE TRIGGER procedure_frozen BEFORE UPDATE OR DELETE ON memory_procedure
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- what an agent may read -------------------------------------------------------------------------------------------
-- Of a version that is active the metadata, if it is for everybody, for a purpose or for this very agent; its text as far as
-- the text's own row allows. Nothing else has a row, under whatever name it is asked for.
CREATE POLICY agent_reads ON memory_procedureversion FOR SELECT TO muniment_agent
  USING (tenant_id = muniment_tenant() AND state = 'active'
    AND (agent_id IS NULL OR agent_id = nullif(current_setting('muniment.actor', true), '')::uuid));
CREATE POLICY agent_reads ON memory_procedure FOR SELECT TO muniment_agent
  USING (tenant_id = muniment_tenant() AND EXISTS (SELECT FROM memory_procedureversion v
    WHERE v.tenant_id = memory_procedure.tenant_id AND v.procedure_id = memory_procedure.id));
DO $$
DECLARE
  using_now text;
BEGIN
  SELECT qual INTO using_now FROM pg_policies WHERE schemaname = 'public' AND tablename = 'memory_payload'
    AND policyname = 'agent_reads';
  EXECUTE format('ALTER POLICY agent_reads ON memory_payload USING (%s AND (purpose <> ''procedure'' OR EXISTS ('
    'SELECT FROM memory_procedureversion v WHERE v.tenant_id = memory_payload.tenant_id AND v.payload_id = memory_payload.id)))',
    using_now);
END $$;

GRANT SELECT ON memory_procedure, memory_procedureversion TO muniment_agent;
GRANT SELECT ON memory_procedure TO muniment_writer;
GRANT SELECT ON memory_procedureversion TO muniment_writer, muniment_worker;
GRANT UPDATE (redaction_state, redaction_fields) ON memory_procedureversion TO muniment_worker;
GRANT SELECT, INSERT ON memory_procedure, memory_procedureversion, memory_procedureevidence TO muniment_staff;
GRANT SELECT, INSERT ON memory_historicalprocedureversion TO muniment_staff;
GRANT UPDATE (lock_no) ON memory_procedure TO muniment_staff;
GRANT UPDATE (state, activate_at, retired_because) ON memory_procedureversion TO muniment_staff;
