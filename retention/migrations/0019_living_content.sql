-- Content is emptied, let go of, or made unreadable only where the record that it belongs to has ended, whichever statement of the
-- application's roles would do it. The doors see to that; this is the backstop.

-- Which of these payloads belong to something that has not ended. A restore ends before anybody is let in what nobody can read.
CREATE FUNCTION content_stands(p_lost uuid[]) RETURNS boolean
  LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  tenant constant uuid := muniment_tenant();
BEGIN
  IF to_regnamespace('restore_under_way') IS NOT NULL THEN
    RETURN false;
  END IF;
  RETURN
    EXISTS (SELECT FROM unnest(p_lost) w (id) CROSS JOIN LATERAL (SELECT x.* FROM memory_fact x
        WHERE x.tenant_id = tenant AND x.payload_id = w.id OFFSET 0) f
      WHERE NOT fact_is_over(f.ended_at, f.expires_at, f.consent_ids))
    OR EXISTS (SELECT FROM unnest(p_lost) w (id) CROSS JOIN LATERAL (SELECT x.* FROM memory_evidence x
        WHERE x.tenant_id = tenant AND x.quote_id = w.id OFFSET 0) e
      WHERE NOT (coalesce(e.expires_at <= clock_timestamp(), false) OR e.redaction_state = 'applied'
        OR e.consent_id IS NOT NULL AND NOT coalesce(consent_stands(ARRAY[e.consent_id]), false)
        OR EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = tenant AND f.id = e.fact_id
          AND fact_is_over(f.ended_at, f.expires_at, f.consent_ids))
        OR EXISTS (SELECT FROM memory_episode s WHERE s.tenant_id = tenant AND s.id = e.episode_id AND s.redaction_state = 'applied')))
    OR EXISTS (SELECT FROM unnest(p_lost) w (id) CROSS JOIN LATERAL (SELECT x.* FROM memory_episode x
        WHERE x.tenant_id = tenant AND x.payload_id = w.id OFFSET 0) e
      WHERE NOT (coalesce(e.expires_at <= clock_timestamp(), false) OR e.redaction_state = 'applied'
        OR e.consent_id IS NOT NULL AND NOT coalesce(consent_stands(ARRAY[e.consent_id]), false)))
    OR EXISTS (SELECT FROM unnest(p_lost) w (id) CROSS JOIN LATERAL (SELECT x.* FROM memory_candidate x
        WHERE x.tenant_id = tenant AND x.payload_id = w.id OFFSET 0) c
      WHERE NOT candidate_is_over(c.expires_at, c.redaction_state, c.evidence_id))
    -- A quote that became evidence is that evidence's.
    OR EXISTS (SELECT FROM unnest(p_lost) w (id) CROSS JOIN LATERAL (SELECT x.* FROM memory_candidatesaying x
        WHERE x.tenant_id = tenant AND x.quote_id = w.id OFFSET 0) s
      CROSS JOIN LATERAL (SELECT x.* FROM memory_candidate x WHERE x.tenant_id = tenant AND x.id = s.candidate_id OFFSET 0) c
      WHERE NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = tenant AND e.quote_id = w.id)
        AND NOT (coalesce(s.expires_at <= clock_timestamp(), false)
          OR candidate_is_over(c.expires_at, c.redaction_state, c.evidence_id)
          OR EXISTS (SELECT FROM memory_episode e WHERE e.tenant_id = tenant AND e.id = s.episode_id AND e.redaction_state = 'applied')))
    -- A name goes with the end of its subject, or where nothing is known of it any more.
    OR EXISTS (SELECT FROM (
        SELECT x.id FROM memory_subject x WHERE x.tenant_id = tenant AND x.payload_id = ANY (p_lost) AND x.ended_at IS NULL
        UNION
        SELECT x.id FROM memory_subjectidentifier i JOIN memory_subject x ON x.tenant_id = i.tenant_id AND x.id = i.subject_id
          WHERE i.tenant_id = tenant AND i.payload_id = ANY (p_lost) AND x.ended_at IS NULL) s
      WHERE EXISTS (SELECT FROM memory_factkey x WHERE x.tenant_id = tenant AND x.subject_id = s.id)
        OR EXISTS (SELECT FROM memory_episode x WHERE x.tenant_id = tenant AND x.subject_id = s.id)
        OR EXISTS (SELECT FROM memory_candidate x WHERE x.tenant_id = tenant AND x.subject_id = s.id))
    OR EXISTS (SELECT FROM memory_procedureversion v WHERE v.tenant_id = tenant AND v.payload_id = ANY (p_lost)
      AND v.redaction_state <> 'applied')
    OR EXISTS (SELECT FROM retention_accessexport x WHERE x.tenant_id = tenant AND x.payload_id = ANY (p_lost)
      AND x.expires_at > clock_timestamp());
END $$;

CREATE FUNCTION fact_is_over(p_ended_at timestamptz, p_expires_at timestamptz, p_consents uuid[]) RETURNS boolean LANGUAGE sql STABLE
  RETURN p_ended_at IS NOT NULL OR coalesce(p_expires_at <= clock_timestamp(), false)
    OR p_consents IS NOT NULL AND NOT coalesce(consent_stands(p_consents), false);
CREATE FUNCTION candidate_is_over(p_expires_at timestamptz, p_redaction text, p_evidence uuid) RETURNS boolean LANGUAGE sql STABLE
  RETURN coalesce(p_expires_at <= clock_timestamp(), false) OR p_redaction = 'applied'
    OR p_evidence IS NOT NULL AND EXISTS (SELECT FROM memory_evidence e JOIN memory_fact f ON f.tenant_id = e.tenant_id AND f.id = e.fact_id
      WHERE e.tenant_id = muniment_tenant() AND e.id = p_evidence AND fact_is_over(f.ended_at, f.expires_at, f.consent_ids));

CREATE FUNCTION content_refused() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: content of what has not ended is not removed' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'living_content';
END $$;

-- Sealing what was clear keeps it; becoming anything else loses what it was.
CREATE FUNCTION living_content_kept() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  lost uuid[];
BEGIN
  SELECT array_agg(o.id) INTO lost FROM was o JOIN became n ON n.tenant_id = o.tenant_id AND n.id = o.id
  WHERE o.purpose <> 'derived' AND (o.clear IS NOT NULL OR o.sealed IS NOT NULL)
    AND (n.clear, n.sealed, n.key_id) IS DISTINCT FROM (o.clear, o.sealed, o.key_id)
    AND NOT (o.clear IS NOT NULL AND n.sealed IS NOT NULL);
  IF lost IS NOT NULL AND content_stands(lost) THEN
    PERFORM content_refused();
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER payload_living AFTER UPDATE ON memory_payload REFERENCING OLD TABLE AS was NEW TABLE AS became
  FOR EACH STATEMENT WHEN (current_user IN ('muniment_agent', 'muniment_writer', 'muniment_staff', 'muniment_worker', 'muniment_front'))
  EXECUTE FUNCTION living_content_kept();

-- A record lets go of its content once that is empty, or has ended.
CREATE FUNCTION living_link_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  former constant uuid := (to_jsonb(OLD) ->> TG_ARGV[0])::uuid;
BEGIN
  IF EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = muniment_tenant() AND p.id = former AND p.ended_at IS NULL)
     AND content_stands(ARRAY[former]) THEN
    PERFORM content_refused();
  END IF;
  RETURN NEW;
END $$;
DO $$
DECLARE
  link text[];
BEGIN
  FOREACH link SLICE 1 IN ARRAY ARRAY[
      ['memory_fact', 'payload_id'], ['memory_evidence', 'quote_id'], ['memory_episode', 'payload_id'],
      ['memory_candidate', 'payload_id'], ['memory_candidatesaying', 'quote_id'], ['memory_subject', 'payload_id'],
      ['memory_subjectidentifier', 'payload_id']] LOOP
    EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OF %I ON %I FOR EACH ROW WHEN (OLD.%I IS DISTINCT FROM NEW.%I AND current_user IN'
                   ' (''muniment_agent'', ''muniment_writer'', ''muniment_staff'', ''muniment_worker'', ''muniment_front''))'
                   ' EXECUTE FUNCTION living_link_kept(%L)',
                   substr(link[1], 8) || '_link_living', link[2], link[1], link[2], link[2], link[2]);
  END LOOP;
END $$;

-- What a proposal that still stands was said in goes with it alone.
CREATE FUNCTION living_saying_kept() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM memory_candidate c WHERE c.tenant_id = OLD.tenant_id AND c.id = OLD.candidate_id
      AND NOT candidate_is_over(c.expires_at, c.redaction_state, c.evidence_id)) THEN
    PERFORM content_refused();
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER candidatesaying_living BEFORE DELETE ON memory_candidatesaying FOR EACH ROW WHEN (current_user IN
    ('muniment_agent', 'muniment_writer', 'muniment_staff', 'muniment_worker', 'muniment_front'))
  EXECUTE FUNCTION living_saying_kept();

-- A data key is written over, other than by a rotation, once nothing that it seals is kept.
CREATE FUNCTION living_key_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = OLD.tenant_id AND p.key_id = OLD.id AND p.ended_at IS NULL) THEN
    PERFORM content_refused();
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER subjectkey_living BEFORE UPDATE OF wrapped, version ON tenants_subjectkey FOR EACH ROW
  WHEN (NEW.wrapped IS DISTINCT FROM OLD.wrapped AND NEW.version <= OLD.version AND current_user IN
    ('muniment_agent', 'muniment_writer', 'muniment_staff', 'muniment_worker', 'muniment_front'))
  EXECUTE FUNCTION living_key_kept();

CREATE POLICY counts ON memory_procedureversion FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, payload_id, redaction_state) ON memory_procedureversion TO muniment_counter;
CREATE POLICY counts ON retention_accessexport FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, payload_id, expires_at) ON retention_accessexport TO muniment_counter;
REVOKE ALL ON FUNCTION content_stands(uuid[]), fact_is_over(timestamptz, timestamptz, uuid[]), candidate_is_over(timestamptz, text, uuid),
  content_refused() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fact_is_over(timestamptz, timestamptz, uuid[]), candidate_is_over(timestamptz, text, uuid), content_refused()
  TO muniment_counter;
GRANT EXECUTE ON FUNCTION content_stands(uuid[]), content_refused() TO muniment_worker;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION content_stands(uuid[]) OWNER TO muniment_counter;
ALTER FUNCTION living_content_kept() OWNER TO muniment_counter;
ALTER FUNCTION living_saying_kept() OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;
