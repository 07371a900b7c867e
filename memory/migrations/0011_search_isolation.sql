-- The index of lexemes: isolation, what follows its payload, and the look-up.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_searchentry', 'memory_searchstate'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_writer'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

ALTER TABLE memory_searchentry
  ADD CONSTRAINT searchentry_payload FOREIGN KEY (tenant_id, payload_id) REFERENCES memory_payload (tenant_id, id)
    ON DELETE CASCADE,
  ADD CONSTRAINT searchentry_once UNIQUE (tenant_id, payload_id),
  ADD CONSTRAINT searchentry_kind_known CHECK (kind IN ('episode', 'value', 'name')),
  ADD CONSTRAINT searchentry_a_count_each CHECK (cardinality(tokens) = cardinality(counts)),
  ADD CONSTRAINT searchentry_class_known CHECK (sensitivity BETWEEN 0 AND 3),
  ALTER restricted SET DEFAULT false, ALTER redaction_state SET DEFAULT 'none';
-- Tokens are HMACs under the tenant's own key, so a token's list holds one tenant's entries alone, however many others have.
CREATE INDEX searchentry_tokens ON memory_searchentry USING gin (tokens) WITH (gin_pending_list_limit = 512);
ALTER TABLE memory_searchentry ALTER tokens SET STATISTICS 0, ALTER counts SET STATISTICS 0;
ALTER TABLE memory_searchentry SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);

ALTER TABLE memory_searchstate
  ADD CONSTRAINT searchstate_tenant FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id),
  ADD CONSTRAINT searchstate_a_frequency_each CHECK (cardinality(common) = cardinality(frequencies)),
  ALTER entries SET DEFAULT 0, ALTER length SET DEFAULT 0, ALTER common SET DEFAULT '{}', ALTER frequencies SET DEFAULT '{}';

-- What was said right after, in the same conversation.
CREATE INDEX episode_in_session ON memory_episode (tenant_id, session_id, occurred_at, id);

-- An entry is as visible as its payload is, and gone where there is nothing left to find.
CREATE FUNCTION payload_findable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.redaction_state = 'applied' OR (NEW.clear IS NULL AND NEW.sealed IS NULL) THEN
    DELETE FROM memory_searchentry e WHERE e.tenant_id = NEW.tenant_id AND e.payload_id = NEW.id;
  ELSE
    UPDATE memory_searchentry e SET sensitivity = NEW.sensitivity, expires_at = NEW.expires_at, restricted = NEW.restricted,
      redaction_state = NEW.redaction_state, consent_ids = NEW.consent_ids
    WHERE e.tenant_id = NEW.tenant_id AND e.payload_id = NEW.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER payload_findable AFTER UPDATE ON memory_payload FOR EACH ROW
  WHEN ((OLD.sensitivity, OLD.expires_at, OLD.restricted, OLD.redaction_state, OLD.consent_ids, OLD.clear, OLD.sealed)
    IS DISTINCT FROM
    (NEW.sensitivity, NEW.expires_at, NEW.restricted, NEW.redaction_state, NEW.consent_ids, NEW.clear, NEW.sealed))
  EXECUTE FUNCTION payload_findable();

GRANT SELECT, INSERT, DELETE ON memory_searchentry TO muniment_writer;
GRANT UPDATE (sensitivity, expires_at, restricted, redaction_state, consent_ids) ON memory_searchentry TO muniment_writer;
GRANT SELECT, INSERT ON memory_searchstate TO muniment_writer;
GRANT UPDATE (rules, key_version, made_to, entries, length, common, frequencies, counted_at) ON memory_searchstate
  TO muniment_writer;

-- What an agent may find: no more than it may read, so that neither a hit nor a frequency tells of what is hidden.
-- Array operators are not leakproof: under a policy that names the tenant, the index could not be used. So the functions'
-- owner reads past it, and the functions themselves keep to the transaction's tenant. It stands as a filter (IS TRUE):
-- as a condition for an index it would invite a scan of the whole tenant.
CREATE POLICY finds ON memory_searchentry FOR SELECT TO muniment_counter USING (true);
GRANT SELECT ON memory_searchentry TO muniment_counter;

CREATE FUNCTION search_hits(p_tokens bigint[], p_any bigint[], p_all bigint[], p_kinds text[], p_most int)
  RETURNS TABLE (id uuid, kind text, target_id uuid, subject_id uuid, at timestamptz, length int, counts smallint[])
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT e.id, e.kind, e.target_id, e.subject_id, e.at, e.length,
    ARRAY(SELECT coalesce(e.counts[array_position(e.tokens, w.token)], 0::smallint)
          FROM unnest(p_tokens) WITH ORDINALITY AS w (token, place) ORDER BY w.place)
  FROM public.memory_searchentry e
  WHERE e.tokens && p_any AND e.tokens @> p_all AND (e.tenant_id = public.muniment_tenant()) IS TRUE
    AND e.kind = ANY (p_kinds) AND e.sensitivity <= public.muniment_clearance()
    AND (e.expires_at IS NULL OR e.expires_at > statement_timestamp())
    AND NOT e.restricted AND e.redaction_state = 'none'
    AND (e.consent_ids IS NULL OR public.consent_stands(e.consent_ids))
  ORDER BY e.id DESC LIMIT p_most
$$;
-- How much there is in a scope, looking at no more than `p_most` entries.
CREATE FUNCTION search_extent(p_scope bigint, p_kinds text[], p_most int) RETURNS TABLE (entries bigint, length float8)
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT count(*), coalesce(avg(e.length), 0)::float8
  FROM (SELECT e.length FROM public.memory_searchentry e
        WHERE e.tokens @> ARRAY[p_scope] AND (e.tenant_id = public.muniment_tenant()) IS TRUE
          AND e.kind = ANY (p_kinds) AND e.sensitivity <= public.muniment_clearance()
          AND (e.expires_at IS NULL OR e.expires_at > statement_timestamp())
          AND NOT e.restricted AND e.redaction_state = 'none' LIMIT p_most) e
$$;
REVOKE ALL ON FUNCTION search_hits(bigint[], bigint[], bigint[], text[], int), search_extent(bigint, text[], int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_hits(bigint[], bigint[], bigint[], text[], int), search_extent(bigint, text[], int) TO muniment_agent;

-- How much of what was said has still to be indexed.
CREATE FUNCTION search_waiting() RETURNS bigint
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT count(*) FROM (SELECT FROM public.memory_outboxentry o WHERE o.tenant_id = public.muniment_tenant()
    AND o.state = 'pending' AND o.topic IN ('ledger.check', 'search.names') LIMIT 1000) o
$$;
REVOKE ALL ON FUNCTION search_waiting() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_waiting() TO muniment_agent;
CREATE POLICY counts ON memory_outboxentry FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT ON memory_outboxentry TO muniment_counter;

CREATE POLICY agent_reads ON memory_searchstate FOR SELECT TO muniment_agent USING (tenant_id = muniment_tenant());
GRANT SELECT ON memory_searchstate TO muniment_agent;

GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION search_hits(bigint[], bigint[], bigint[], text[], int) OWNER TO muniment_counter;
ALTER FUNCTION search_extent(bigint, text[], int) OWNER TO muniment_counter;
ALTER FUNCTION search_waiting() OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;
