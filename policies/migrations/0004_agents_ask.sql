-- An agent may ask for one act: that its version of a procedure be promoted. A person decides, and not one who answers
-- for that agent.

-- Whoever registered an agent, or was handed one of its keys, could speak through it: what it asks for is theirs too.
CREATE FUNCTION answers_for_agent(p_tenant uuid, p_agent uuid, p_person uuid) RETURNS boolean LANGUAGE sql STABLE
  RETURN EXISTS (SELECT FROM tenants_historicalagent h
                 WHERE h.tenant_id = p_tenant AND h.id = p_agent AND h.history_user_id = p_person)
    OR EXISTS (SELECT FROM tenants_agentkey k JOIN tenants_auditevent e ON e.chain = k.tenant_id AND e.target_id = k.id
               WHERE k.tenant_id = p_tenant AND k.agent_id = p_agent AND e.actor_id = p_person
                 AND e.action IN ('key.issued', 'key.rotated'));
-- A role of one's own, or one that was handed on and stands.
CREATE FUNCTION holds_role(p_tenant uuid, p_person uuid, p_role text) RETURNS boolean LANGUAGE sql STABLE
  RETURN EXISTS (SELECT FROM tenants_membership m
                 WHERE m.tenant_id = p_tenant AND m.user_id = p_person AND m.role = p_role)
    OR EXISTS (SELECT FROM policies_delegation g
               WHERE g.tenant_id = p_tenant AND g.given_to_id = p_person AND g.role = p_role AND g.ended_at IS NULL
                 AND g.starts_at <= clock_timestamp() AND clock_timestamp() < g.ends_at
                 AND EXISTS (SELECT FROM tenants_membership m
                             WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_by AND m.role = g.role)
                 AND EXISTS (SELECT FROM tenants_membership m
                             WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_to_id));
REVOKE ALL ON FUNCTION answers_for_agent(uuid, uuid, uuid), holds_role(uuid, uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION answers_for_agent(uuid, uuid, uuid), holds_role(uuid, uuid, text) TO muniment_staff;

CREATE OR REPLACE FUNCTION decisionrequest_by_a_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.requested_by
                 AND m.role <> 'auditor')
     AND NOT (NEW.act = 'procedure.promote' AND EXISTS (SELECT FROM tenants_agent a
       JOIN tenants_agentkey k ON k.tenant_id = a.tenant_id AND k.agent_id = a.id
       WHERE a.tenant_id = NEW.tenant_id AND a.id = NEW.requested_by AND a.state = 'active' AND 'propose' = ANY (k.scopes)
         AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()))) THEN
    RAISE EXCEPTION 'muniment: a member of the tenant asks for an approval' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION decision_filled() RETURNS trigger LANGUAGE plpgsql AS $$
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
    -- A role that was handed on does not come back to whoever asks: what the requester handed on does not count, nor what
    -- somebody did who answers for the agent that asks.
    SELECT g.id INTO NEW.delegation_id FROM policies_delegation g
    WHERE g.tenant_id = NEW.tenant_id AND g.given_to_id = NEW.decided_by AND g.role = needed AND g.ended_at IS NULL
      AND g.given_by <> NEW.requested_by AND NOT answers_for_agent(NEW.tenant_id, NEW.requested_by, g.given_by)
      AND g.starts_at <= clock_timestamp() AND clock_timestamp() < g.ends_at
      AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_by AND m.role = g.role)
      AND EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = g.tenant_id AND m.user_id = g.given_to_id)
    ORDER BY g.id LIMIT 1;
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION decision_not_for_oneself() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF answers_for_agent(NEW.tenant_id, NEW.requested_by, NEW.decided_by) THEN
    RAISE EXCEPTION 'muniment: whoever answers for an agent does not decide on what it asks for'
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER decision_not_for_oneself AFTER INSERT ON policies_decision
  FOR EACH ROW EXECUTE FUNCTION decision_not_for_oneself();
