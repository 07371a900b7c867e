-- Four eyes: keys, row-level security, grants, and what the database refuses whoever asks.

-- drafts -----------------------------------------------------------------------------------------------------------
ALTER TABLE policies_attributeversion
  ADD CONSTRAINT attributeversion_base FOREIGN KEY (tenant_id, base_id) REFERENCES policies_attributeversion (tenant_id, id),
  DROP CONSTRAINT attributeversion_state_known,
  ADD CONSTRAINT attributeversion_state_known CHECK (state IN ('draft', 'active', 'retired', 'discarded'));
ALTER TABLE policies_policyversion
  ADD CONSTRAINT policyversion_base FOREIGN KEY (tenant_id, base_id) REFERENCES policies_policyversion (tenant_id, id),
  DROP CONSTRAINT policyversion_state_known,
  ADD CONSTRAINT policyversion_state_known CHECK (state IN ('draft', 'active', 'retired', 'discarded'));

-- A version never changes, a draft neither: what is to be changed is drafted anew.
CREATE OR REPLACE FUNCTION version_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - 'state' IS DISTINCT FROM to_jsonb(OLD) - 'state'
     OR (OLD.state, NEW.state) NOT IN (('draft', 'active'), ('active', 'retired'), ('draft', 'discarded'), ('active', 'active')) THEN
    RAISE EXCEPTION 'muniment: a published version of % does not change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;

-- What an attribute's stored facts mean depends on its cardinality; before there can be any, a draft may choose anew.
CREATE FUNCTION attribute_cardinality_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_jsonb(NEW) - 'cardinality' IS DISTINCT FROM to_jsonb(OLD) - 'cardinality'
     OR NEW.cardinality <> OLD.cardinality AND EXISTS (SELECT FROM policies_attributeversion v
       WHERE v.tenant_id = OLD.tenant_id AND v.attribute_id = OLD.id AND v.state IN ('active', 'retired')) THEN
    RAISE EXCEPTION 'muniment: a published attribute does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER attribute_cardinality_fixed BEFORE UPDATE ON policies_attribute
  FOR EACH ROW EXECUTE FUNCTION attribute_cardinality_fixed();

-- keys and shapes --------------------------------------------------------------------------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['policies_decisionrequest', 'policies_delegation', 'policies_decision'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 10) || '_tenant');
  END LOOP;
  FOREACH t IN ARRAY ARRAY['policies_decisionrequest', 'policies_delegation', 'policies_decision',
      'policies_historicaldecisionrequest'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_staff'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

ALTER TABLE policies_decisionrequest
  ADD CONSTRAINT decisionrequest_act_known CHECK (act IN ('attribute.publish', 'policy.publish', 'procedure.promote',
    'class.lower', 'lifetime.extend', 'hold.release', 'subject.erase')),
  ADD CONSTRAINT decisionrequest_state_known
    CHECK (state IN ('pending', 'approved', 'refused', 'returned', 'withdrawn', 'expired', 'done')),
  ADD CONSTRAINT decisionrequest_words CHECK (target_kind ~ '^[a-z_]{1,40}$' AND reason ~ '^[a-z0-9_]{1,60}$'),
  ADD CONSTRAINT decisionrequest_digest_length CHECK (octet_length(digest) = 32),
  -- Nothing waits for ever to be approved.
  ADD CONSTRAINT decisionrequest_ends CHECK (expires_at > requested_at AND expires_at <= requested_at + interval '31 days'),
  ADD CONSTRAINT decisionrequest_done
    CHECK ((state = 'done') = (carried_out_at IS NOT NULL) AND (carried_out_at IS NULL) = (carried_out_by IS NULL)),
  -- What a decision is bound to: it names all of this.
  ADD CONSTRAINT decisionrequest_bound UNIQUE (tenant_id, id, requested_by, digest),
  ALTER state SET DEFAULT 'pending';
-- One open question about one thing.
CREATE UNIQUE INDEX decisionrequest_open_once ON policies_decisionrequest (tenant_id, act, target_id)
  WHERE state IN ('pending', 'approved');
CREATE INDEX decisionrequest_by_target ON policies_decisionrequest (tenant_id, target_id);

ALTER TABLE policies_delegation
  ADD CONSTRAINT delegation_given_to FOREIGN KEY (given_to_id) REFERENCES tenants_user (id),
  ADD CONSTRAINT delegation_to_another CHECK (given_by <> given_to_id),
  ADD CONSTRAINT delegation_role_known CHECK (role IN ('approver', 'privacy_officer')),
  ADD CONSTRAINT delegation_bounded CHECK (ends_at > starts_at AND ends_at <= starts_at + interval '31 days');
CREATE INDEX delegation_by_receiver ON policies_delegation (tenant_id, given_to_id) WHERE ended_at IS NULL;

ALTER TABLE policies_decision
  ADD CONSTRAINT decision_bound FOREIGN KEY (tenant_id, request_id, requested_by, digest)
    REFERENCES policies_decisionrequest (tenant_id, id, requested_by, digest),
  ADD CONSTRAINT decision_delegation FOREIGN KEY (tenant_id, delegation_id) REFERENCES policies_delegation (tenant_id, id),
  -- Nobody decides on their own request.
  ADD CONSTRAINT decision_by_another CHECK (decided_by <> requested_by),
  -- One decision closes a request, however many decide at once.
  ADD CONSTRAINT decision_once UNIQUE (tenant_id, request_id),
  ADD CONSTRAINT decision_verdict_known CHECK (verdict IN ('approve', 'refuse', 'return')),
  ADD CONSTRAINT decision_reason_shape CHECK (reason ~ '^[a-z0-9_]{1,60}$');

-- who asks ---------------------------------------------------------------------------------------------------------
-- Persons and times are the transaction's own, whatever the row says. What is wrong is refused after the row's policy
-- has been asked, so that a row of another tenant is refused as such.
CREATE FUNCTION decisionrequest_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.requested_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.requested_at := clock_timestamp();
  NEW.state := 'pending';
  NEW.carried_out_by := NULL;
  NEW.carried_out_at := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER decisionrequest_filled BEFORE INSERT ON policies_decisionrequest
  FOR EACH ROW EXECUTE FUNCTION decisionrequest_filled();

CREATE FUNCTION decisionrequest_by_a_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.requested_by
                 AND m.role <> 'auditor') THEN
    RAISE EXCEPTION 'muniment: a member of the tenant asks for an approval' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER decisionrequest_by_a_member AFTER INSERT ON policies_decisionrequest
  FOR EACH ROW EXECUTE FUNCTION decisionrequest_by_a_member();

-- A request moves one way, and by what its state says: a decision, its requester, the clock, or the act itself.
CREATE FUNCTION decisionrequest_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := nullif(current_setting('muniment.actor', true), '')::uuid;
  decided text;
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - '{state,carried_out_by,carried_out_at}'::text[]
     IS DISTINCT FROM to_jsonb(OLD) - '{state,carried_out_by,carried_out_at}'::text[] THEN
    RAISE EXCEPTION 'muniment: a request does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.state = OLD.state THEN
    NEW.carried_out_by := OLD.carried_out_by;
    NEW.carried_out_at := OLD.carried_out_at;
    RETURN NEW;
  END IF;
  SELECT d.verdict INTO decided FROM policies_decision d WHERE d.tenant_id = OLD.tenant_id AND d.request_id = OLD.id;
  IF OLD.state = 'pending' AND (NEW.state, decided) IN (('approved', 'approve'), ('refused', 'refuse'), ('returned', 'return'))
     OR OLD.state = 'pending' AND NEW.state = 'withdrawn' AND who = OLD.requested_by
     OR OLD.state IN ('pending', 'approved') AND NEW.state = 'expired' AND clock_timestamp() >= OLD.expires_at THEN
    RETURN NEW;
  END IF;
  IF OLD.state = 'approved' AND NEW.state = 'done' AND decided = 'approve' AND clock_timestamp() < OLD.expires_at
     AND who IS NOT NULL THEN
    NEW.carried_out_by := who;
    NEW.carried_out_at := clock_timestamp();
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'muniment: a request moves one way, from % not to %', OLD.state, NEW.state USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER decisionrequest_moves BEFORE UPDATE OR DELETE ON policies_decisionrequest
  FOR EACH ROW EXECUTE FUNCTION decisionrequest_moves();

-- who decides ------------------------------------------------------------------------------------------------------
CREATE FUNCTION decision_filled() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  needed text;
  asker uuid;
BEGIN
  NEW.decided_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.decided_at := clock_timestamp();
  NEW.delegation_id := NULL;
  -- Locked: of two who decide at once the second waits here, and then finds the request decided.
  SELECT r.requested_by, CASE WHEN r.act IN ('attribute.publish', 'policy.publish', 'procedure.promote')
      THEN 'approver' ELSE 'privacy_officer' END
    INTO asker, needed
    FROM policies_decisionrequest r WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.request_id FOR UPDATE;
  -- Where there is no such request, the foreign key says so.
  NEW.requested_by := coalesce(asker, NEW.requested_by);
  IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.decided_by
                 AND m.role = needed) THEN
    -- A role that was handed on does not come back to whoever asks: what the requester handed on does not count.
    SELECT g.id INTO NEW.delegation_id FROM policies_delegation g
    WHERE g.tenant_id = NEW.tenant_id AND g.given_to_id = NEW.decided_by AND g.role = needed AND g.ended_at IS NULL
      AND g.given_by <> NEW.requested_by AND g.starts_at <= clock_timestamp() AND clock_timestamp() < g.ends_at
      AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_by AND m.role = g.role)
      AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_to_id)
    ORDER BY g.id LIMIT 1;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER decision_filled BEFORE INSERT ON policies_decision FOR EACH ROW EXECUTE FUNCTION decision_filled();

CREATE FUNCTION decision_allowed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  asked record;
BEGIN
  SELECT r.act, r.state, r.expires_at INTO asked
    FROM policies_decisionrequest r WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.request_id;
  IF NEW.delegation_id IS NULL AND NOT EXISTS (SELECT FROM tenants_membership m
      WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.decided_by AND m.role = CASE WHEN asked.act IN
        ('attribute.publish', 'policy.publish', 'procedure.promote') THEN 'approver' ELSE 'privacy_officer' END) THEN
    RAISE EXCEPTION 'muniment: whoever decides holds the role for it in the tenant' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF asked.state <> 'pending' OR clock_timestamp() >= asked.expires_at THEN
    RAISE EXCEPTION 'muniment: the request waits for no decision any more' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER decision_allowed AFTER INSERT ON policies_decision FOR EACH ROW EXECUTE FUNCTION decision_allowed();

-- At the commit a decision and its request say the same.
CREATE FUNCTION decision_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = NEW.tenant_id AND r.id = NEW.request_id
             AND r.state = 'pending') THEN
    RAISE EXCEPTION 'muniment: a decision moves its request' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER decision_told AFTER INSERT ON policies_decision DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION decision_told();
CREATE TRIGGER decision_frozen BEFORE UPDATE OR DELETE ON policies_decision FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- handing a role on ------------------------------------------------------------------------------------------------
CREATE FUNCTION delegation_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.given_by := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.created_at := clock_timestamp();
  NEW.ended_at := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER delegation_filled BEFORE INSERT ON policies_delegation FOR EACH ROW EXECUTE FUNCTION delegation_filled();

-- Only a role of one's own is handed on, and to a member: a delegation is not handed on in turn.
CREATE FUNCTION delegation_allowed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM tenants_membership m
                 WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.given_by AND m.role = NEW.role)
     OR NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.given_to_id) THEN
    RAISE EXCEPTION 'muniment: a role of one''s own is handed to a member' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF NEW.ends_at <= NEW.created_at OR NEW.starts_at > NEW.created_at + interval '92 days' THEN
    RAISE EXCEPTION 'muniment: a delegation lies ahead' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER delegation_allowed AFTER INSERT ON policies_delegation FOR EACH ROW EXECUTE FUNCTION delegation_allowed();

CREATE FUNCTION delegation_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR OLD.ended_at IS NOT NULL OR to_jsonb(NEW) - 'ended_at' IS DISTINCT FROM to_jsonb(OLD) - 'ended_at' THEN
    RAISE EXCEPTION 'muniment: a delegation changes only by its end' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.ended_at IS NOT NULL THEN
    NEW.ended_at := clock_timestamp();
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER delegation_frozen BEFORE UPDATE OR DELETE ON policies_delegation
  FOR EACH ROW EXECUTE FUNCTION delegation_frozen();

-- publishing -------------------------------------------------------------------------------------------------------
-- A person puts nothing in force without an approval of exactly this version on exactly this base. Without a person in
-- the transaction it is an operator's command, which is audited as such.
CREATE FUNCTION version_approved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  none constant uuid := '00000000-0000-0000-0000-000000000000';
  who uuid := coalesce(nullif(current_setting('muniment.actor', true), '')::uuid, none);
  base bytea;
BEGIN
  IF NEW.state <> 'active' OR TG_OP = 'UPDATE' AND OLD.state = 'active' OR who = none THEN
    RETURN NULL;
  END IF;
  EXECUTE format('SELECT b.digest FROM %I b WHERE b.tenant_id = $1 AND b.id = $2', TG_TABLE_NAME)
    INTO base USING NEW.tenant_id, NEW.base_id;
  IF NOT EXISTS (SELECT FROM policies_decisionrequest r WHERE r.tenant_id = NEW.tenant_id AND r.target_id = NEW.id
      AND r.act = TG_ARGV[0] AND r.state = 'approved' AND clock_timestamp() < r.expires_at
      AND r.digest = sha256(NEW.digest || coalesce(base, ''))) THEN
    RAISE EXCEPTION 'muniment: a version is put in force when somebody else approved it' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER attributeversion_approved AFTER INSERT OR UPDATE ON policies_attributeversion
  FOR EACH ROW EXECUTE FUNCTION version_approved('attribute.publish');
CREATE TRIGGER policyversion_approved AFTER INSERT OR UPDATE ON policies_policyversion
  FOR EACH ROW EXECUTE FUNCTION version_approved('policy.publish');

GRANT UPDATE (cardinality) ON policies_attribute TO muniment_staff;
GRANT SELECT, INSERT ON policies_decisionrequest, policies_decision, policies_delegation, policies_historicaldecisionrequest
  TO muniment_staff;
GRANT UPDATE (state) ON policies_decisionrequest TO muniment_staff;
GRANT UPDATE (ended_at) ON policies_delegation TO muniment_staff;
