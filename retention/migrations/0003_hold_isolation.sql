-- Legal holds: keys, row-level security, what may change of them, and the one answer to what they cover.

-- keys -------------------------------------------------------------------------------------------------------------
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_matter', 'retention_hold', 'retention_holdscope', 'retention_refusedending'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 11) || '_tenant');
  END LOOP;
  FOREACH t IN ARRAY ARRAY['retention_matter', 'retention_hold', 'retention_holdscope', 'retention_historicalmatter',
      'retention_historicalhold', 'retention_refusedending'] LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO %s'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t,
                   CASE t WHEN 'retention_refusedending' THEN 'muniment_staff, muniment_worker' ELSE 'muniment_staff' END);
  END LOOP;
END $$;

ALTER TABLE retention_matter
  ADD CONSTRAINT matter_reference_shape CHECK (reference ~ '^[A-Za-z0-9][A-Za-z0-9._/-]{0,59}$'),
  ADD CONSTRAINT matter_reference_once UNIQUE (tenant_id, reference),
  ADD CONSTRAINT matter_reason_known CHECK (reason IN ('litigation', 'investigation', 'audit', 'regulator', 'claim', 'other')),
  ADD CONSTRAINT matter_state_known CHECK (state IN ('open', 'closed')),
  ADD CONSTRAINT matter_closed
    CHECK ((state = 'closed') = (closed_at IS NOT NULL) AND (closed_at IS NULL) = (closed_by IS NULL)),
  ALTER state SET DEFAULT 'open';

ALTER TABLE retention_hold
  ADD CONSTRAINT hold_matter FOREIGN KEY (tenant_id, matter_id) REFERENCES retention_matter (tenant_id, id),
  ADD CONSTRAINT hold_state_known CHECK (state IN ('active', 'released')),
  ADD CONSTRAINT hold_released
    CHECK ((state = 'released') = (released_at IS NOT NULL) AND (released_at IS NULL) = (released_by IS NULL)),
  ADD CONSTRAINT hold_proposed CHECK ((proposed_at IS NULL) = (proposed_by IS NULL)),
  ALTER state SET DEFAULT 'active';
CREATE INDEX hold_active ON retention_hold (tenant_id, id) WHERE state = 'active';
CREATE INDEX hold_by_matter ON retention_hold (tenant_id, matter_id);

ALTER TABLE retention_holdscope
  ADD CONSTRAINT holdscope_hold FOREIGN KEY (tenant_id, hold_id) REFERENCES retention_hold (tenant_id, id),
  ADD CONSTRAINT holdscope_subject FOREIGN KEY (tenant_id, subject_id) REFERENCES memory_subject (tenant_id, id),
  ADD CONSTRAINT holdscope_attribute FOREIGN KEY (tenant_id, attribute_id) REFERENCES policies_attribute (tenant_id, id),
  ADD CONSTRAINT holdscope_kind_known
    CHECK (record_kind IN ('fact', 'evidence', 'episode', 'candidate', 'procedure')),
  -- A record is named whole; a query says at least one thing.
  ADD CONSTRAINT holdscope_says_what CHECK ((record_kind IS NULL) = (record_id IS NULL)
    AND num_nonnulls(record_id, subject_id, attribute_id, session_id, writer_id, recorded_from, recorded_until) >= 1
    AND (record_id IS NULL OR num_nonnulls(subject_id, attribute_id, session_id, writer_id, recorded_from, recorded_until) = 0)),
  ADD CONSTRAINT holdscope_lasts CHECK (recorded_until > recorded_from);
CREATE INDEX holdscope_by_hold ON retention_holdscope (tenant_id, hold_id);
CREATE INDEX holdscope_by_record ON retention_holdscope (tenant_id, record_id) WHERE record_id IS NOT NULL;
CREATE INDEX holdscope_by_subject ON retention_holdscope (tenant_id, subject_id) WHERE subject_id IS NOT NULL;
CREATE INDEX holdscope_wide ON retention_holdscope (tenant_id, hold_id) WHERE record_id IS NULL AND subject_id IS NULL;

ALTER TABLE retention_refusedending
  ADD CONSTRAINT refusedending_hold FOREIGN KEY (tenant_id, hold_id) REFERENCES retention_hold (tenant_id, id),
  ADD CONSTRAINT refusedending_once UNIQUE (tenant_id, record_id, hold_id, act),
  ADD CONSTRAINT refusedending_kind_known
    CHECK (record_kind IN ('fact', 'evidence', 'episode', 'candidate', 'subject', 'procedure')),
  ADD CONSTRAINT refusedending_act_shape CHECK (act ~ '^[a-z_]{1,40}$'),
  ADD CONSTRAINT refusedending_in_order CHECK (last_at >= first_at AND times >= 1);
CREATE INDEX refusedending_by_hold ON retention_refusedending (tenant_id, hold_id, last_at);

-- A candidate by its subject, and what of an episode is still proposed.
CREATE INDEX IF NOT EXISTS candidate_by_subject ON memory_candidate (tenant_id, subject_id);
CREATE INDEX IF NOT EXISTS candidatesaying_by_episode ON memory_candidatesaying (tenant_id, episode_id) WHERE episode_id IS NOT NULL;

-- the lock ---------------------------------------------------------------------------------------------------------
-- Endings hold it shared, whoever places a hold has it alone: a hold is there before an ending looks, or after it is done.
CREATE FUNCTION hold_lock_no(tenant uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN hashtextextended('muniment.hold ' || tenant::text, 0);
REVOKE ALL ON FUNCTION hold_lock_no(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hold_lock_no(uuid) TO muniment_staff, muniment_worker, muniment_counter;

-- who places, who releases -----------------------------------------------------------------------------------------
CREATE FUNCTION matter_filled() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := coalesce(nullif(current_setting('muniment.actor', true), ''), '00000000-0000-0000-0000-000000000000')::uuid;
BEGIN
  IF TG_OP = 'INSERT' THEN
    NEW.state := 'open';
    NEW.opened_by := who;
    NEW.opened_at := clock_timestamp();
    NEW.closed_by := NULL;
    NEW.closed_at := NULL;
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - '{state,closed_by,closed_at}'::text[]
       IS DISTINCT FROM to_jsonb(OLD) - '{state,closed_by,closed_at}'::text[]
     OR (OLD.state, NEW.state) <> ('open', 'closed') THEN
    RAISE EXCEPTION 'muniment: a matter changes only by its end' USING ERRCODE = 'restrict_violation';
  END IF;
  IF EXISTS (SELECT FROM retention_hold h WHERE h.tenant_id = OLD.tenant_id AND h.matter_id = OLD.id AND h.state = 'active') THEN
    RAISE EXCEPTION 'muniment: a matter with a hold in force stays open' USING ERRCODE = 'restrict_violation';
  END IF;
  NEW.closed_by := who;
  NEW.closed_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE TRIGGER matter_filled BEFORE INSERT OR UPDATE OR DELETE ON retention_matter
  FOR EACH ROW EXECUTE FUNCTION matter_filled();

-- What a release is bound to: the hold and each of its scopes, of which none is added or taken away unnoticed.
CREATE FUNCTION hold_digest(p_hold uuid) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT sha256(convert_to(jsonb_build_array(h.tenant_id, h.id, h.matter_id,
    (SELECT jsonb_agg(jsonb_build_array(s.id, s.record_kind, s.record_id, s.subject_id, s.attribute_id, s.session_id, s.writer_id,
       extract(epoch FROM s.recorded_from), extract(epoch FROM s.recorded_until)) ORDER BY s.id)
     FROM retention_holdscope s WHERE s.tenant_id = h.tenant_id AND s.hold_id = h.id))::text, 'UTF8'))
  FROM retention_hold h WHERE h.tenant_id = muniment_tenant() AND h.id = p_hold
$$;
REVOKE ALL ON FUNCTION hold_digest(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hold_digest(uuid) TO muniment_staff;

CREATE FUNCTION hold_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Whoever places a hold waits for the endings that are under way, by whatever statement it is placed.
  PERFORM pg_advisory_xact_lock(hold_lock_no(NEW.tenant_id));
  NEW.state := 'active';
  NEW.placed_by := coalesce(nullif(current_setting('muniment.actor', true), ''), '00000000-0000-0000-0000-000000000000')::uuid;
  NEW.placed_at := clock_timestamp();
  NEW.proposed_by := NULL;
  NEW.proposed_at := NULL;
  NEW.released_by := NULL;
  NEW.released_at := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER hold_filled BEFORE INSERT ON retention_hold FOR EACH ROW EXECUTE FUNCTION hold_filled();

CREATE FUNCTION hold_of_an_open_matter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Locked against the matter's closing at the same time.
  PERFORM FROM retention_matter m WHERE m.tenant_id = NEW.tenant_id AND m.id = NEW.matter_id AND m.state = 'open' FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'muniment: a hold serves an open matter' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER hold_of_an_open_matter AFTER INSERT ON retention_hold FOR EACH ROW EXECUTE FUNCTION hold_of_an_open_matter();

-- It ends one way: released, when somebody else than whoever asked has approved exactly that.
CREATE FUNCTION hold_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  who uuid := nullif(current_setting('muniment.actor', true), '')::uuid;
BEGIN
  IF TG_OP = 'DELETE' OR OLD.state <> 'active'
     OR to_jsonb(NEW) - '{state,proposed_by,proposed_at,released_by,released_at}'::text[]
       IS DISTINCT FROM to_jsonb(OLD) - '{state,proposed_by,proposed_at,released_by,released_at}'::text[] THEN
    RAISE EXCEPTION 'muniment: a hold changes only by its release' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NEW.state = 'active' THEN
    NEW.released_by := NULL;
    NEW.released_at := NULL;
    IF NEW.proposed_at IS DISTINCT FROM OLD.proposed_at THEN
      NEW.proposed_by := who;
      NEW.proposed_at := clock_timestamp();
    ELSE
      NEW.proposed_by := OLD.proposed_by;
    END IF;
    RETURN NEW;
  END IF;
  IF who IS NULL OR NOT EXISTS (SELECT FROM policies_decisionrequest r
      JOIN policies_decision d ON d.tenant_id = r.tenant_id AND d.request_id = r.id AND d.verdict = 'approve'
      WHERE r.tenant_id = OLD.tenant_id AND r.target_id = OLD.id AND r.act = 'hold.release' AND r.state = 'approved'
        AND clock_timestamp() < r.expires_at AND r.digest = hold_digest(OLD.id)) THEN
    RAISE EXCEPTION 'muniment: a hold is released when somebody else approved it' USING ERRCODE = 'restrict_violation';
  END IF;
  NEW.proposed_by := OLD.proposed_by;
  NEW.proposed_at := OLD.proposed_at;
  NEW.released_by := who;
  NEW.released_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE TRIGGER hold_moves BEFORE UPDATE OR DELETE ON retention_hold FOR EACH ROW EXECUTE FUNCTION hold_moves();

CREATE FUNCTION holdscope_placed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hold_lock_no(NEW.tenant_id));
  RETURN NEW;
END $$;
CREATE TRIGGER holdscope_placed BEFORE INSERT ON retention_holdscope FOR EACH ROW EXECUTE FUNCTION holdscope_placed();
CREATE TRIGGER holdscope_frozen BEFORE UPDATE OR DELETE ON retention_holdscope FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- What was refused is not forgotten, and each time is told to the chain: last, at the commit, whatever came after it.
CREATE FUNCTION refusedending_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - '{run_id,actor_kind,actor_id,times,last_at}'::text[]
       IS DISTINCT FROM to_jsonb(OLD) - '{run_id,actor_kind,actor_id,times,last_at}'::text[]
     OR NEW.times <> OLD.times + 1 OR NEW.last_at < OLD.last_at THEN
    RAISE EXCEPTION 'muniment: a refused ending is only counted on' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refusedending_kept BEFORE UPDATE OR DELETE ON retention_refusedending
  FOR EACH ROW EXECUTE FUNCTION refusedending_kept();
CREATE FUNCTION refusedending_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM audit_append(NEW.tenant_id, jsonb_build_array(jsonb_build_object('id', gen_random_uuid(), 'actor_kind', NEW.actor_kind,
    'actor_id', NEW.actor_id, 'action', 'ending.refused', 'target_kind', NEW.record_kind, 'target_id', NEW.record_id,
    'reason', NEW.act, 'digest', NULL, 'numbers', jsonb_build_object('times', NEW.times))));
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refusedending_told AFTER INSERT OR UPDATE ON retention_refusedending
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refusedending_told();

-- what a hold covers -----------------------------------------------------------------------------------------------
-- One saying as scopes are held against it. `id` is the record that is asked about; `record_ids` what it is known by: a hold
-- on a fact covers its evidence and the episodes that this was drawn from, one on an episode what was drawn from it.
CREATE TYPE hold_saying AS (id uuid, record_ids uuid[], subject_ids uuid[], attribute_id uuid, session_id text, writer_id uuid,
  at timestamptz);

CREATE FUNCTION holds_on(p_said hold_saying[]) RETURNS TABLE (record_id uuid, hold_id uuid) LANGUAGE sql STABLE AS $$
  WITH wide AS MATERIALIZED (
    SELECT s.* FROM retention_hold h CROSS JOIN LATERAL (SELECT s.* FROM retention_holdscope s
      WHERE s.tenant_id = h.tenant_id AND s.hold_id = h.id AND s.record_id IS NULL AND s.subject_id IS NULL OFFSET 0) s
    WHERE h.tenant_id = muniment_tenant() AND h.state = 'active')
  SELECT DISTINCT x.id, s.hold_id FROM unnest(p_said) x
  CROSS JOIN LATERAL (
    SELECT s.hold_id, s.attribute_id, s.session_id, s.writer_id, s.recorded_from, s.recorded_until FROM retention_holdscope s
      WHERE s.tenant_id = muniment_tenant() AND s.record_id = ANY (x.record_ids)
    UNION ALL
    SELECT s.hold_id, s.attribute_id, s.session_id, s.writer_id, s.recorded_from, s.recorded_until FROM retention_holdscope s
      WHERE s.tenant_id = muniment_tenant() AND s.subject_id = ANY (x.subject_ids)
    UNION ALL
    SELECT s.hold_id, s.attribute_id, s.session_id, s.writer_id, s.recorded_from, s.recorded_until FROM wide s) s
  CROSS JOIN LATERAL (SELECT FROM retention_hold h
    WHERE h.tenant_id = muniment_tenant() AND h.id = s.hold_id AND h.state = 'active' OFFSET 0) h
  WHERE (s.attribute_id IS NULL OR s.attribute_id = x.attribute_id)
    AND (s.session_id IS NULL OR s.session_id = x.session_id)
    AND (s.writer_id IS NULL OR s.writer_id = x.writer_id)
    AND (s.recorded_from IS NULL OR s.recorded_from <= x.at)
    AND (s.recorded_until IS NULL OR s.recorded_until > x.at)
$$;

-- Which holds in force cover which of these records; no row where none does. It looks past what the caller may read, and
-- answers with ids alone.
CREATE FUNCTION held_records(p_kind text, p_ids uuid[]) RETURNS TABLE (record_id uuid, hold_id uuid)
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  tenant constant uuid := muniment_tenant();
  said hold_saying[];
BEGIN
  IF p_kind NOT IN ('fact', 'evidence', 'episode', 'candidate', 'subject', 'procedure') THEN
    RAISE EXCEPTION 'muniment: no kind of record' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT EXISTS (SELECT FROM retention_hold h WHERE h.tenant_id = tenant AND h.state = 'active') THEN
    RETURN;
  END IF;
  CASE p_kind
  WHEN 'fact' THEN
    SELECT array_agg(ROW(i.id, ARRAY[i.id, v.id, v.episode_id], ARRAY[f.subject_id], k.attribute_id, e.session_id, v.writer_id,
        v.recorded_at)::hold_saying) INTO said
    FROM unnest(p_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.key_id, x.subject_id FROM memory_fact x WHERE x.tenant_id = tenant AND x.id = i.id OFFSET 0) f
    CROSS JOIN LATERAL (SELECT x.attribute_id FROM memory_factkey x WHERE x.tenant_id = tenant AND x.id = f.key_id OFFSET 0) k
    LEFT JOIN LATERAL (SELECT x.id, x.episode_id, x.writer_id, x.recorded_at FROM memory_evidence x
      WHERE x.tenant_id = tenant AND x.fact_id = i.id OFFSET 0) v ON true
    LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
      WHERE x.tenant_id = tenant AND x.id = v.episode_id OFFSET 0) e ON true;
  WHEN 'evidence' THEN
    SELECT array_agg(ROW(i.id, ARRAY[i.id, v.fact_id, v.episode_id], ARRAY[k.subject_id], k.attribute_id, e.session_id, v.writer_id,
        v.recorded_at)::hold_saying) INTO said
    FROM unnest(p_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.key_id, x.fact_id, x.episode_id, x.writer_id, x.recorded_at FROM memory_evidence x
      WHERE x.tenant_id = tenant AND x.id = i.id OFFSET 0) v
    CROSS JOIN LATERAL (SELECT x.subject_id, x.attribute_id FROM memory_factkey x
      WHERE x.tenant_id = tenant AND x.id = v.key_id OFFSET 0) k
    LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
      WHERE x.tenant_id = tenant AND x.id = v.episode_id OFFSET 0) e ON true;
  WHEN 'episode' THEN
    SELECT array_agg(ROW(i.id, s.record_ids, s.subject_ids, s.attribute_id, e.session_id, s.writer_id, s.at)::hold_saying) INTO said
    FROM unnest(p_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.* FROM memory_episode x WHERE x.tenant_id = tenant AND x.id = i.id OFFSET 0) e
    CROSS JOIN LATERAL (
      -- Itself, about its subject and about whom it names; and as the source of what was drawn from it or is proposed.
      SELECT ARRAY[i.id] AS record_ids, e.subject_id || e.mentioned_ids AS subject_ids, NULL::uuid AS attribute_id, e.writer_id,
        e.recorded_at AS at
      UNION ALL
      SELECT ARRAY[v.id, v.fact_id], ARRAY[k.subject_id], k.attribute_id, v.writer_id, v.recorded_at
      FROM memory_evidence v CROSS JOIN LATERAL (SELECT x.subject_id, x.attribute_id FROM memory_factkey x
        WHERE x.tenant_id = tenant AND x.id = v.key_id OFFSET 0) k
      WHERE v.tenant_id = tenant AND v.episode_id = i.id
      UNION ALL
      SELECT ARRAY[c.id], ARRAY[c.subject_id], c.attribute_id, y.writer_id, y.said_at
      FROM memory_candidatesaying y CROSS JOIN LATERAL (SELECT x.id, x.subject_id, x.attribute_id FROM memory_candidate x
        WHERE x.tenant_id = tenant AND x.id = y.candidate_id OFFSET 0) c
      WHERE y.tenant_id = tenant AND y.episode_id = i.id) s;
  WHEN 'candidate' THEN
    SELECT array_agg(ROW(i.id, ARRAY[i.id, y.episode_id], ARRAY[c.subject_id], c.attribute_id, e.session_id,
        coalesce(y.writer_id, c.writer_id), coalesce(y.said_at, c.created_at))::hold_saying) INTO said
    FROM unnest(p_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.* FROM memory_candidate x WHERE x.tenant_id = tenant AND x.id = i.id OFFSET 0) c
    LEFT JOIN LATERAL (SELECT x.episode_id, x.writer_id, x.said_at FROM memory_candidatesaying x
      WHERE x.tenant_id = tenant AND x.candidate_id = i.id OFFSET 0) y ON true
    LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
      WHERE x.tenant_id = tenant AND x.id = y.episode_id OFFSET 0) e ON true;
  WHEN 'subject' THEN
    -- Whom a scope names, whatever else it says; and of whom anything is held: without the name nobody could tell whose it is.
    RETURN QUERY
      WITH active AS MATERIALIZED (
        SELECT s.* FROM retention_hold h CROSS JOIN LATERAL (SELECT s.* FROM retention_holdscope s
          WHERE s.tenant_id = h.tenant_id AND s.hold_id = h.id OFFSET 0) s
        WHERE h.tenant_id = tenant AND h.state = 'active')
      SELECT a.subject_id, a.hold_id FROM active a WHERE a.subject_id = ANY (p_ids)
      UNION
      SELECT r.subject_id, a.hold_id FROM active a CROSS JOIN LATERAL (
        SELECT f.subject_id FROM memory_fact f WHERE f.tenant_id = tenant AND f.id = a.record_id
        UNION ALL
        SELECT k.subject_id FROM memory_evidence v CROSS JOIN LATERAL (SELECT x.subject_id FROM memory_factkey x
          WHERE x.tenant_id = tenant AND x.id = v.key_id OFFSET 0) k WHERE v.tenant_id = tenant AND v.id = a.record_id
        UNION ALL
        SELECT k.subject_id FROM memory_evidence v CROSS JOIN LATERAL (SELECT x.subject_id FROM memory_factkey x
          WHERE x.tenant_id = tenant AND x.id = v.key_id OFFSET 0) k WHERE v.tenant_id = tenant AND v.episode_id = a.record_id
        UNION ALL
        SELECT e.subject_id FROM memory_episode e WHERE e.tenant_id = tenant AND e.id = a.record_id
        UNION ALL
        SELECT c.subject_id FROM memory_candidate c WHERE c.tenant_id = tenant AND c.id = a.record_id) r
      WHERE a.record_id IS NOT NULL AND r.subject_id = ANY (p_ids)
      UNION
      SELECT i.id, a.hold_id FROM unnest(p_ids) i (id) CROSS JOIN active a
      WHERE a.record_id IS NULL AND a.subject_id IS NULL AND (
        EXISTS (SELECT FROM memory_factkey k
          CROSS JOIN LATERAL (SELECT x.episode_id, x.writer_id, x.recorded_at FROM memory_evidence x
            WHERE x.tenant_id = tenant AND x.key_id = k.id OFFSET 0) v
          LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
            WHERE x.tenant_id = tenant AND x.id = v.episode_id OFFSET 0) e ON true
          WHERE k.tenant_id = tenant AND k.subject_id = i.id AND (a.attribute_id IS NULL OR a.attribute_id = k.attribute_id)
            AND (a.session_id IS NULL OR a.session_id = e.session_id) AND (a.writer_id IS NULL OR a.writer_id = v.writer_id)
            AND (a.recorded_from IS NULL OR a.recorded_from <= v.recorded_at)
            AND (a.recorded_until IS NULL OR a.recorded_until > v.recorded_at))
        OR a.attribute_id IS NULL AND EXISTS (SELECT FROM memory_episode e
          WHERE e.tenant_id = tenant AND e.subject_id = i.id
            AND (a.session_id IS NULL OR a.session_id = e.session_id) AND (a.writer_id IS NULL OR a.writer_id = e.writer_id)
            AND (a.recorded_from IS NULL OR a.recorded_from <= e.recorded_at)
            AND (a.recorded_until IS NULL OR a.recorded_until > e.recorded_at))
        OR EXISTS (SELECT FROM memory_candidate c
          LEFT JOIN LATERAL (SELECT x.episode_id, x.writer_id, x.said_at FROM memory_candidatesaying x
            WHERE x.tenant_id = tenant AND x.candidate_id = c.id OFFSET 0) y ON true
          LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
            WHERE x.tenant_id = tenant AND x.id = y.episode_id OFFSET 0) e ON true
          WHERE c.tenant_id = tenant AND c.subject_id = i.id AND (a.attribute_id IS NULL OR a.attribute_id = c.attribute_id)
            AND (a.session_id IS NULL OR a.session_id = e.session_id)
            AND (a.writer_id IS NULL OR a.writer_id = coalesce(y.writer_id, c.writer_id))
            AND (a.recorded_from IS NULL OR a.recorded_from <= coalesce(y.said_at, c.created_at))
            AND (a.recorded_until IS NULL OR a.recorded_until > coalesce(y.said_at, c.created_at))));
    RETURN;
  WHEN 'procedure' THEN
    SELECT array_agg(ROW(i.id, ARRAY[i.id], NULL, NULL, NULL, NULL, NULL)::hold_saying) INTO said FROM unnest(p_ids) i (id);
  END CASE;
  RETURN QUERY SELECT h.record_id, h.hold_id FROM holds_on(said) h;
END $$;
REVOKE ALL ON FUNCTION holds_on(hold_saying[]), held_records(text, uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holds_on(hold_saying[]) TO muniment_counter;
GRANT EXECUTE ON FUNCTION held_records(text, uuid[]) TO muniment_writer, muniment_staff, muniment_worker;

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_hold', 'retention_holdscope', 'memory_factkey', 'memory_evidence', 'memory_episode',
      'memory_candidate', 'memory_candidatesaying'] LOOP
    EXECUTE format('CREATE POLICY counts ON %I FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant())', t);
    EXECUTE format('GRANT SELECT ON %I TO muniment_counter', t);
  END LOOP;
END $$;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION held_records(text, uuid[]) OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;

-- grants -----------------------------------------------------------------------------------------------------------
GRANT SELECT, INSERT ON retention_matter, retention_hold, retention_holdscope, retention_historicalmatter, retention_historicalhold
  TO muniment_staff;
GRANT UPDATE (state) ON retention_matter TO muniment_staff;
GRANT UPDATE (state, proposed_at) ON retention_hold TO muniment_staff;
GRANT SELECT ON retention_refusedending TO muniment_staff, muniment_worker;
GRANT INSERT ON retention_refusedending TO muniment_worker;
GRANT UPDATE (run_id, actor_kind, actor_id, times, last_at) ON retention_refusedending TO muniment_worker;
