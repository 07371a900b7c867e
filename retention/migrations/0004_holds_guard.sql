-- The backstop: whatever statement would remove what a hold covers is refused, whoever sends it. The doors ask first.

-- Whether any hold is in force, asked under the lock: a hold that is being placed is waited for, and then seen.
CREATE FUNCTION hold_in_force() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  tenant constant uuid := muniment_tenant();
BEGIN
  IF tenant IS NULL THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hold_lock_no(tenant));
  RETURN EXISTS (SELECT FROM retention_hold h WHERE h.tenant_id = tenant AND h.state = 'active');
END $$;

CREATE FUNCTION hold_refuses(p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: a legal hold covers %', p_what USING ERRCODE = 'restrict_violation', CONSTRAINT = 'legal_hold';
END $$;

-- Content that goes, or becomes another: sealing what was clear keeps it, everything else does not.
CREATE FUNCTION hold_keeps_content() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  tenant constant uuid := muniment_tenant();
  lost uuid[];
BEGIN
  SELECT array_agg(o.id) INTO lost FROM was o JOIN became n ON n.tenant_id = o.tenant_id AND n.id = o.id
  WHERE o.purpose <> 'derived' AND (o.clear IS NOT NULL OR o.sealed IS NOT NULL)
    AND (n.clear, n.sealed, n.key_id) IS DISTINCT FROM (o.clear, o.sealed, o.key_id)
    AND NOT (o.clear IS NOT NULL AND n.sealed IS NOT NULL);
  IF lost IS NULL OR NOT hold_in_force() THEN
    RETURN NULL;
  END IF;
  IF EXISTS (SELECT FROM held_records('fact', ARRAY(SELECT x.id FROM memory_fact x
        WHERE x.tenant_id = tenant AND x.payload_id = ANY (lost))))
     OR EXISTS (SELECT FROM held_records('evidence', ARRAY(SELECT x.id FROM memory_evidence x
        WHERE x.tenant_id = tenant AND x.quote_id = ANY (lost))))
     OR EXISTS (SELECT FROM held_records('episode', ARRAY(SELECT x.id FROM memory_episode x
        WHERE x.tenant_id = tenant AND x.payload_id = ANY (lost))))
     OR EXISTS (SELECT FROM held_records('candidate', ARRAY(
        SELECT x.id FROM memory_candidate x WHERE x.tenant_id = tenant AND x.payload_id = ANY (lost)
        UNION ALL
        SELECT x.candidate_id FROM memory_candidatesaying x WHERE x.tenant_id = tenant AND x.quote_id = ANY (lost))))
     OR EXISTS (SELECT FROM held_records('subject', ARRAY(
        SELECT x.id FROM memory_subject x WHERE x.tenant_id = tenant AND x.payload_id = ANY (lost)
        UNION ALL
        SELECT x.subject_id FROM memory_subjectidentifier x WHERE x.tenant_id = tenant AND x.payload_id = ANY (lost)))) THEN
    PERFORM hold_refuses('what would go');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER payload_held AFTER UPDATE ON memory_payload REFERENCING OLD TABLE AS was NEW TABLE AS became
  FOR EACH STATEMENT EXECUTE FUNCTION hold_keeps_content();

-- Rows that go. They are gone from their table when this runs, and what they say is taken from what went; what they rest on
-- is there still, since foreign keys let it go after them only. An empty row of a covered record stays too.
CREATE FUNCTION hold_keeps_rows() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  tenant constant uuid := muniment_tenant();
  said hold_saying[];
  found boolean;
BEGIN
  IF NOT EXISTS (SELECT FROM gone) OR NOT hold_in_force() THEN
    RETURN NULL;
  END IF;
  CASE TG_TABLE_NAME
  WHEN 'memory_fact' THEN
    SELECT array_agg(ROW(g.id, ARRAY[g.id], ARRAY[g.subject_id], k.attribute_id, NULL, NULL, NULL)::hold_saying) INTO said
    FROM gone g LEFT JOIN LATERAL (SELECT x.attribute_id FROM memory_factkey x
      WHERE x.tenant_id = tenant AND x.id = g.key_id OFFSET 0) k ON true;
  WHEN 'memory_evidence' THEN
    SELECT array_agg(ROW(g.id, ARRAY[g.id, g.fact_id, g.episode_id], ARRAY[k.subject_id], k.attribute_id, e.session_id, g.writer_id,
        g.recorded_at)::hold_saying) INTO said
    FROM gone g
    LEFT JOIN LATERAL (SELECT x.subject_id, x.attribute_id FROM memory_factkey x
      WHERE x.tenant_id = tenant AND x.id = g.key_id OFFSET 0) k ON true
    LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
      WHERE x.tenant_id = tenant AND x.id = g.episode_id OFFSET 0) e ON true;
  WHEN 'memory_episode' THEN
    SELECT array_agg(ROW(g.id, ARRAY[g.id], g.subject_id || g.mentioned_ids, NULL, g.session_id, g.writer_id,
        g.recorded_at)::hold_saying) INTO said
    FROM gone g;
  WHEN 'memory_candidate' THEN
    SELECT array_agg(ROW(g.id, ARRAY[g.id], ARRAY[g.subject_id], g.attribute_id, NULL, g.writer_id, g.created_at)::hold_saying)
      INTO said FROM gone g;
  WHEN 'memory_candidatesaying' THEN
    SELECT array_agg(ROW(g.id, ARRAY[g.candidate_id, g.episode_id], ARRAY[c.subject_id], c.attribute_id, e.session_id, g.writer_id,
        g.said_at)::hold_saying) INTO said
    FROM gone g
    LEFT JOIN LATERAL (SELECT x.subject_id, x.attribute_id FROM memory_candidate x
      WHERE x.tenant_id = tenant AND x.id = g.candidate_id OFFSET 0) c ON true
    LEFT JOIN LATERAL (SELECT x.session_id FROM memory_episode x
      WHERE x.tenant_id = tenant AND x.id = g.episode_id OFFSET 0) e ON true;
  WHEN 'memory_subject' THEN
    SELECT EXISTS (SELECT FROM held_records('subject', ARRAY(SELECT g.id FROM gone g))) INTO found;
  WHEN 'memory_subjectidentifier' THEN
    SELECT EXISTS (SELECT FROM held_records('subject', ARRAY(SELECT g.subject_id FROM gone g))) INTO found;
  WHEN 'memory_belief' THEN
    -- What an act of the same instant undoes was never believed: that is writing, not ending.
    SELECT EXISTS (SELECT FROM held_records('evidence', ARRAY(SELECT g.evidence_id FROM gone g
      WHERE NOT EXISTS (SELECT FROM memory_factkey k
        WHERE k.tenant_id = tenant AND k.id = g.key_id AND k.newest_at = g.believed_from)))) INTO found;
  END CASE;
  IF said IS NOT NULL THEN
    SELECT EXISTS (SELECT FROM holds_on(said)) INTO found;
  END IF;
  IF found THEN
    PERFORM hold_refuses('what would go');
  END IF;
  RETURN NULL;
END $$;

-- A record that lets go of its content loses it, though the content stands.
CREATE FUNCTION hold_keeps_links() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF hold_in_force() AND EXISTS (SELECT FROM held_records(TG_ARGV[0], ARRAY[(to_jsonb(OLD) ->> TG_ARGV[1])::uuid])) THEN
    PERFORM hold_refuses('what would be let go of');
  END IF;
  RETURN NEW;
END $$;

-- A data key that is written over without a new version of the tenant's key is lost, and all it seals.
CREATE FUNCTION hold_keeps_keys() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF hold_in_force() AND EXISTS (SELECT FROM held_records('subject', ARRAY(SELECT s.id FROM memory_subject s
      WHERE s.tenant_id = OLD.tenant_id AND s.key_id = OLD.id))) THEN
    PERFORM hold_refuses('what would not be read again');
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER subjectkey_held BEFORE UPDATE OF wrapped, version ON tenants_subjectkey FOR EACH ROW
  WHEN (NEW.wrapped IS DISTINCT FROM OLD.wrapped AND NEW.version <= OLD.version) EXECUTE FUNCTION hold_keeps_keys();

DO $$
DECLARE
  t text;
  link text[];
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_fact', 'memory_evidence', 'memory_episode', 'memory_candidate', 'memory_candidatesaying',
      'memory_subject', 'memory_subjectidentifier', 'memory_belief'] LOOP
    EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON %I REFERENCING OLD TABLE AS gone FOR EACH STATEMENT'
                   ' EXECUTE FUNCTION hold_keeps_rows()', substr(t, 8) || '_held', t);
  END LOOP;
  FOREACH link SLICE 1 IN ARRAY ARRAY[
      ['memory_fact', 'payload_id', 'fact', 'id'], ['memory_evidence', 'quote_id', 'evidence', 'id'],
      ['memory_episode', 'payload_id', 'episode', 'id'], ['memory_candidate', 'payload_id', 'candidate', 'id'],
      ['memory_candidatesaying', 'quote_id', 'candidate', 'candidate_id'], ['memory_subject', 'payload_id', 'subject', 'id'],
      ['memory_subjectidentifier', 'payload_id', 'subject', 'subject_id']] LOOP
    EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OF %I ON %I FOR EACH ROW WHEN (OLD.%I IS DISTINCT FROM NEW.%I)'
                   ' EXECUTE FUNCTION hold_keeps_links(%L, %L)',
                   substr(link[1], 8) || '_link_held', link[2], link[1], link[2], link[2], link[3], link[4]);
  END LOOP;
  FOREACH t IN ARRAY ARRAY['memory_subject', 'memory_subjectidentifier'] LOOP
    EXECUTE format('CREATE POLICY counts ON %I FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant())', t);
    EXECUTE format('GRANT SELECT ON %I TO muniment_counter', t);
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION hold_in_force(), hold_refuses(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hold_in_force(), hold_refuses(text) TO muniment_counter;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION hold_keeps_content() OWNER TO muniment_counter;
ALTER FUNCTION hold_keeps_rows() OWNER TO muniment_counter;
ALTER FUNCTION hold_keeps_links() OWNER TO muniment_counter;
ALTER FUNCTION hold_keeps_keys() OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;
