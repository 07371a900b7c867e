-- What is restricted stays so on its rows for as long as the restriction is in force, whoever writes to them.

CREATE FUNCTION under_restriction(p_subject uuid, p_record uuid) RETURNS boolean
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM public.retention_restriction r WHERE r.tenant_id = public.muniment_tenant() AND r.state = 'active'
    AND r.target_id IN (p_subject, p_record))
$$;
REVOKE ALL ON FUNCTION under_restriction(uuid, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION under_restriction(uuid, uuid) TO muniment_writer;
CREATE POLICY counts ON retention_restriction FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT ON retention_restriction TO muniment_counter;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION under_restriction(uuid, uuid) OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;

CREATE FUNCTION restriction_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  stands boolean;
BEGIN
  IF TG_TABLE_NAME = 'memory_subject' THEN
    stands := under_restriction(OLD.id, OLD.id);
  ELSIF TG_TABLE_NAME = 'memory_evidence' THEN
    SELECT under_restriction(k.subject_id, OLD.fact_id) INTO stands FROM memory_factkey k
      WHERE k.tenant_id = OLD.tenant_id AND k.id = OLD.key_id;
  ELSIF TG_TABLE_NAME = 'memory_payload' THEN
    SELECT bool_or(under_restriction(x.subject, x.record)) INTO stands FROM (
      SELECT f.subject_id AS subject, f.id AS record FROM memory_fact f WHERE f.tenant_id = OLD.tenant_id AND f.payload_id = OLD.id
      UNION ALL
      SELECT e.subject_id, e.id FROM memory_episode e WHERE e.tenant_id = OLD.tenant_id AND e.payload_id = OLD.id
      UNION ALL
      SELECT f.subject_id, r.record FROM memory_evidence v
        JOIN memory_fact f ON f.tenant_id = v.tenant_id AND f.id = v.fact_id CROSS JOIN LATERAL (VALUES (v.fact_id), (v.episode_id)) r (record)
        WHERE v.tenant_id = OLD.tenant_id AND v.quote_id = OLD.id
      UNION ALL
      SELECT c.subject_id, c.id FROM memory_candidate c WHERE c.tenant_id = OLD.tenant_id AND c.payload_id = OLD.id
      UNION ALL
      SELECT s.id, s.id FROM memory_subject s WHERE s.tenant_id = OLD.tenant_id AND s.payload_id = OLD.id
      UNION ALL
      SELECT i.subject_id, i.subject_id FROM memory_subjectidentifier i WHERE i.tenant_id = OLD.tenant_id AND i.payload_id = OLD.id) x;
  ELSE
    stands := under_restriction(OLD.subject_id, OLD.id);
  END IF;
  IF stands THEN
    RAISE EXCEPTION 'muniment: what is restricted stays so until the restriction is lifted' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_subject', 'memory_fact', 'memory_evidence', 'memory_episode', 'memory_candidate', 'memory_payload'] LOOP
    EXECUTE format('CREATE TRIGGER restriction_kept BEFORE UPDATE OF restricted ON %I FOR EACH ROW'
                   ' WHEN (OLD.restricted AND NOT NEW.restricted) EXECUTE FUNCTION restriction_kept()', t);
  END LOOP;
END $$;
