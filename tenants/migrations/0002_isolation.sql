-- Composite keys, row-level security, grants and the audit chain of the `tenants` app.
-- Roles come from tenants/bootstrap.sql. Settings read by the policies: muniment.tenant, muniment.clearance.

CREATE FUNCTION muniment_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(current_setting('muniment.tenant', true), '')::uuid;
CREATE FUNCTION muniment_clearance() RETURNS smallint LANGUAGE sql STABLE PARALLEL SAFE
  RETURN coalesce(nullif(current_setting('muniment.clearance', true), ''), '-1')::smallint;
REVOKE ALL ON FUNCTION muniment_tenant(), muniment_clearance() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION muniment_tenant() TO muniment_agent, muniment_writer, muniment_staff, muniment_worker, muniment_chain,
  muniment_counter;
GRANT EXECUTE ON FUNCTION muniment_clearance() TO muniment_agent, muniment_counter;

-- keys -------------------------------------------------------------------------------------------------------------
ALTER TABLE tenants_tenant ADD CONSTRAINT tenant_slug_shape CHECK (slug ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$');
ALTER TABLE tenants_tenant ADD CONSTRAINT tenant_state_known CHECK (state IN ('active', 'suspended'));

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['tenants_membership', 'tenants_agent', 'tenants_agentkey', 'tenants_subjectkey'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 9) || '_tenant');
  END LOOP;
END $$;

ALTER TABLE tenants_membership
  ADD CONSTRAINT membership_user FOREIGN KEY (user_id) REFERENCES tenants_user (id),
  ADD CONSTRAINT membership_once UNIQUE (tenant_id, user_id, role),
  ADD CONSTRAINT membership_role_known
    CHECK (role IN ('reviewer', 'privacy_officer', 'approver', 'tenant_admin', 'auditor'));
CREATE INDEX membership_by_user ON tenants_membership (user_id);

ALTER TABLE tenants_agent
  ADD CONSTRAINT agent_name_once UNIQUE (tenant_id, name),
  ADD CONSTRAINT agent_name_bounded CHECK (char_length(name) BETWEEN 1 AND 100),
  ADD CONSTRAINT agent_clearance_known CHECK (clearance BETWEEN 0 AND 3),
  ADD CONSTRAINT agent_trust_bounded CHECK (trust BETWEEN 0 AND 100),
  ADD CONSTRAINT agent_state_known CHECK (state IN ('active', 'suspended'));

ALTER TABLE tenants_agentkey
  ADD CONSTRAINT agentkey_agent FOREIGN KEY (tenant_id, agent_id) REFERENCES tenants_agent (tenant_id, id),
  ADD CONSTRAINT agentkey_prefix_once UNIQUE (prefix),
  ADD CONSTRAINT agentkey_digest_length CHECK (octet_length(digest) = 64);
CREATE INDEX agentkey_by_agent ON tenants_agentkey (tenant_id, agent_id);

ALTER TABLE tenants_subjectkey ADD CONSTRAINT subjectkey_wrapped_bounded CHECK (octet_length(wrapped) BETWEEN 1 AND 256);

-- row-level security -----------------------------------------------------------------------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['tenants_tenant', 'tenants_membership', 'tenants_agent', 'tenants_agentkey', 'tenants_subjectkey',
      'tenants_historicaltenant', 'tenants_historicalmembership', 'tenants_historicalagent'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
  END LOOP;
  FOREACH t IN ARRAY ARRAY['tenants_membership', 'tenants_agent', 'tenants_agentkey', 'tenants_historicalmembership',
      'tenants_historicalagent'] LOOP
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_staff'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
  -- The front comes before any tenant: it finds keys by prefix, memberships by person, tenants by slug.
  FOREACH t IN ARRAY ARRAY['tenants_tenant', 'tenants_historicaltenant', 'tenants_membership', 'tenants_agent',
      'tenants_agentkey', 'tenants_historicalmembership', 'tenants_historicalagent'] LOOP
    EXECUTE format('CREATE POLICY before_any_tenant ON %I TO muniment_front USING (true) WITH CHECK (true)', t);
  END LOOP;
END $$;

CREATE POLICY own_tenant ON tenants_subjectkey TO muniment_agent, muniment_writer
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
CREATE POLICY own_tenant ON tenants_tenant TO muniment_agent, muniment_writer, muniment_staff
  USING (id = muniment_tenant()) WITH CHECK (id = muniment_tenant());
CREATE POLICY own_tenant ON tenants_historicaltenant TO muniment_staff
  USING (id = muniment_tenant()) WITH CHECK (id = muniment_tenant());

-- grants: only what some door or page does today; a test takes each away in turn and must notice ---------------------
GRANT SELECT ON tenants_tenant TO muniment_agent, muniment_writer, muniment_staff, muniment_front;
GRANT SELECT ON tenants_agent TO muniment_staff, muniment_front;
GRANT UPDATE (catalogue_no) ON tenants_tenant TO muniment_staff;
GRANT SELECT ON tenants_membership TO muniment_staff, muniment_front;
GRANT SELECT ON tenants_agentkey TO muniment_front, muniment_staff;
GRANT UPDATE (last_used_at) ON tenants_agentkey TO muniment_front;
GRANT SELECT, INSERT ON tenants_subjectkey TO muniment_writer;
GRANT SELECT ON tenants_subjectkey TO muniment_agent;
-- Setting up tenants, agents, keys and members is the operator's: a command takes the front role, and audits.
GRANT INSERT ON tenants_tenant, tenants_membership, tenants_agent, tenants_agentkey TO muniment_front;
-- The admin registers agents and keys of its own tenant by the same doors.
GRANT INSERT ON tenants_agent, tenants_agentkey TO muniment_staff;
GRANT UPDATE (revoked_at, expires_at) ON tenants_agentkey TO muniment_front, muniment_staff;
GRANT SELECT, INSERT ON tenants_historicaltenant, tenants_historicalmembership, tenants_historicalagent TO muniment_front;
GRANT SELECT ON tenants_historicaltenant, tenants_historicalmembership TO muniment_staff;
GRANT SELECT, INSERT ON tenants_historicalagent TO muniment_staff;

GRANT SELECT ON tenants_user, django_content_type TO muniment_front, muniment_staff;
GRANT UPDATE (last_login) ON tenants_user TO muniment_front;
GRANT UPDATE (password) ON tenants_user TO muniment_front, muniment_staff;
GRANT INSERT ON tenants_user TO muniment_front;
GRANT SELECT, INSERT, UPDATE, DELETE ON django_session TO muniment_front, muniment_staff;
GRANT SELECT ON django_migrations TO muniment_front;

-- the audit chain --------------------------------------------------------------------------------------------------
ALTER TABLE tenants_auditevent
  DROP CONSTRAINT tenants_auditevent_pkey,
  ADD CONSTRAINT tenants_auditevent_pkey PRIMARY KEY (chain, seq),
  ADD CONSTRAINT auditevent_follows_once UNIQUE (chain, prev),
  ADD CONSTRAINT auditevent_hash_length CHECK (octet_length(hash) = 32 AND octet_length(prev) = 32),
  ADD CONSTRAINT auditevent_words CHECK (
    actor_kind IN ('agent', 'person', 'job', 'operator') AND action ~ '^[a-z_]+(\.[a-z_]+)+$'
    AND target_kind ~ '^[a-z_]{1,40}$' AND reason ~ '^[a-z0-9_.-]{1,60}$'),
  -- An entry holds numbers about what was done, never words of it.
  ADD CONSTRAINT auditevent_numbers_only CHECK (
    jsonb_typeof(numbers) = 'object'
    AND NOT jsonb_path_exists(numbers, '$.* ? (@.type() != "number" && @.type() != "boolean")')),
  ADD CONSTRAINT auditevent_numbers_bounded CHECK (octet_length(numbers::text) <= 600);
CREATE INDEX auditevent_by_target ON tenants_auditevent (chain, target_id);

ALTER TABLE tenants_auditevent ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_auditevent FORCE ROW LEVEL SECURITY;
ALTER TABLE tenants_auditchain ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_auditchain FORCE ROW LEVEL SECURITY;
CREATE POLICY appends ON tenants_auditevent TO muniment_chain USING (true) WITH CHECK (true);
CREATE POLICY appends ON tenants_auditchain TO muniment_chain USING (true) WITH CHECK (true);
CREATE POLICY own_tenant ON tenants_auditevent FOR SELECT TO muniment_staff, muniment_worker USING (chain = muniment_tenant());
CREATE POLICY verifies ON tenants_auditevent FOR SELECT TO muniment_front USING (true);
CREATE POLICY verifies ON tenants_auditchain FOR SELECT TO muniment_front USING (true);
GRANT SELECT, INSERT ON tenants_auditevent TO muniment_chain;
GRANT SELECT, INSERT, UPDATE ON tenants_auditchain TO muniment_chain;
GRANT SELECT ON tenants_auditevent TO muniment_staff, muniment_worker, muniment_front;
GRANT SELECT ON tenants_auditchain TO muniment_front;

-- What an entry's hash covers: every column, in this order, separated by a unit separator; see docs/decisions.
CREATE FUNCTION audit_hash(prev bytea, chain uuid, seq bigint, at timestamptz, actor_kind text, actor_id uuid, action text,
    target_kind text, target_id uuid, reason text, digest bytea, numbers jsonb) RETURNS bytea
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN sha256(prev || convert_to(concat_ws(E'\x1f', chain::text, seq::text,
    (extract(epoch FROM at) * 1000000)::bigint::text, actor_kind, actor_id::text, action, target_kind, target_id::text,
    reason, coalesce(encode(digest, 'hex'), '-'), numbers::text), 'UTF8'));

-- Appends events to one chain: locks its head before reading it, so that no two appends see one tail.
CREATE FUNCTION audit_append(p_chain uuid, p_events jsonb) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  head record;
  e jsonb;
  h bytea;
  n bigint;
  moment timestamptz;
BEGIN
  IF p_chain <> '00000000-0000-0000-0000-000000000000' AND p_chain IS DISTINCT FROM public.muniment_tenant() THEN
    RAISE EXCEPTION 'audit_append: another chain than the tenant of this transaction' USING ERRCODE = '42501';
  END IF;
  SELECT c.seq, c.hash INTO head FROM public.tenants_auditchain c WHERE c.chain = p_chain FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO public.tenants_auditchain (chain, seq, hash)
      VALUES (p_chain, 0, sha256(convert_to('muniment:' || p_chain::text, 'UTF8'))) ON CONFLICT DO NOTHING;
    SELECT c.seq, c.hash INTO head FROM public.tenants_auditchain c WHERE c.chain = p_chain FOR UPDATE;
  END IF;
  n := head.seq;
  h := head.hash;
  moment := clock_timestamp();
  FOR e IN SELECT value FROM jsonb_array_elements(p_events) LOOP
    n := n + 1;
    INSERT INTO public.tenants_auditevent (id, chain, seq, prev, hash, at, actor_kind, actor_id, action, target_kind,
        target_id, reason, digest, numbers)
      VALUES ((e->>'id')::uuid, p_chain, n, h,
        public.audit_hash(h, p_chain, n, moment, e->>'actor_kind', (e->>'actor_id')::uuid, e->>'action', e->>'target_kind',
          (e->>'target_id')::uuid, e->>'reason', decode(e->>'digest', 'hex'), coalesce(e->'numbers', '{}')),
        moment, e->>'actor_kind', (e->>'actor_id')::uuid, e->>'action', e->>'target_kind', (e->>'target_id')::uuid,
        e->>'reason', decode(e->>'digest', 'hex'), coalesce(e->'numbers', '{}'))
      RETURNING hash INTO h;
  END LOOP;
  UPDATE public.tenants_auditchain c SET seq = n, hash = h WHERE c.chain = p_chain;
  RETURN n;
END $$;

-- Walks a chain and names the first entry that does not follow from the one before it; no row when all do.
CREATE FUNCTION audit_first_bad(p_chain uuid, p_after bigint, p_limit bigint)
  RETURNS TABLE (checked bigint, bad bigint, last_seq bigint, last_hash bytea)
  LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH part AS (
    SELECT e.*, lag(e.hash) OVER (ORDER BY e.seq) AS before, lag(e.seq) OVER (ORDER BY e.seq) AS before_seq
    FROM (SELECT * FROM public.tenants_auditevent x WHERE x.chain = p_chain AND x.seq >= p_after ORDER BY x.seq LIMIT p_limit) e
  ), judged AS (
    SELECT seq, hash, NOT (
        hash = public.audit_hash(prev, chain, seq, at, actor_kind, actor_id, action, target_kind, target_id, reason, digest, numbers)
        AND (CASE WHEN before IS NOT NULL THEN prev = before AND seq = before_seq + 1
                  WHEN p_after <= 1 THEN seq = 1 AND prev = sha256(convert_to('muniment:' || p_chain::text, 'UTF8'))
                  ELSE seq = p_after END)) AS wrong
    FROM part
  )
  SELECT count(*), min(seq) FILTER (WHERE wrong), max(seq), (array_agg(hash ORDER BY seq DESC))[1] FROM judged
$$;

REVOKE ALL ON FUNCTION audit_append(uuid, jsonb), audit_first_bad(uuid, bigint, bigint),
  audit_hash(bytea, uuid, bigint, timestamptz, text, uuid, text, text, uuid, text, bytea, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_append(uuid, jsonb)
  TO muniment_writer, muniment_staff, muniment_worker, muniment_front;
GRANT EXECUTE ON FUNCTION audit_first_bad(uuid, bigint, bigint) TO muniment_front;
GRANT EXECUTE ON FUNCTION audit_hash(bytea, uuid, bigint, timestamptz, text, uuid, text, text, uuid, text, bytea, jsonb)
  TO muniment_chain, muniment_front;
-- The function acts as a role of its own: under FORCE the owner would silently see nothing.
GRANT CREATE ON SCHEMA public TO muniment_chain;
ALTER FUNCTION audit_append(uuid, jsonb) OWNER TO muniment_chain;
REVOKE CREATE ON SCHEMA public FROM muniment_chain;

-- what never changes, whoever asks
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: % of % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER auditevent_frozen BEFORE UPDATE OR DELETE ON tenants_auditevent
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER auditevent_not_emptied BEFORE TRUNCATE ON tenants_auditevent EXECUTE FUNCTION refuse_change();
