"""Whether rows may go is asked once a statement, not once a row: of a million that go, that was a seventh of the work.

What is refused is the same: a statement of whose rows one has to stay removes none.
"""

from django.db import migrations

BY_SET = """
DROP TRIGGER evidence_kept ON memory_evidence;
CREATE OR REPLACE FUNCTION evidence_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM gone g
      LEFT JOIN LATERAL (SELECT f.ended_at FROM memory_fact f WHERE f.tenant_id = g.tenant_id AND f.id = g.fact_id OFFSET 0) f ON true
      WHERE CASE WHEN g.fact_id IS NULL THEN g.expires_at <= clock_timestamp() OR g.redaction_state = 'applied'
        ELSE f.ended_at IS NOT NULL END IS NOT TRUE) THEN
    RAISE EXCEPTION 'muniment: evidence of what has not ended is not removed' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER evidence_kept AFTER DELETE ON memory_evidence REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION evidence_kept();

DROP TRIGGER belief_kept ON memory_belief;
CREATE OR REPLACE FUNCTION belief_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  stays boolean;
BEGIN
  IF current_user = 'muniment_worker' THEN
    stays := EXISTS (SELECT FROM gone g
        LEFT JOIN LATERAL (SELECT f.ended_at FROM memory_fact f WHERE f.tenant_id = g.tenant_id AND f.id = g.fact_id OFFSET 0) f ON true
        WHERE g.fact_id IS NOT NULL AND f.ended_at IS NULL)
      -- An end that names no value is over by what its own saying tells.
      OR EXISTS (SELECT FROM gone g
        LEFT JOIN LATERAL (SELECT e.fact_id, e.expires_at, e.redaction_state FROM memory_evidence e
          WHERE e.tenant_id = g.tenant_id AND e.id = g.evidence_id OFFSET 0) e ON true
        LEFT JOIN LATERAL (SELECT f.ended_at FROM memory_fact f WHERE f.tenant_id = g.tenant_id AND f.id = e.fact_id OFFSET 0) f ON true
        WHERE g.fact_id IS NULL AND CASE WHEN e.fact_id IS NULL THEN e.expires_at <= clock_timestamp() OR e.redaction_state = 'applied'
          ELSE f.ended_at IS NOT NULL END IS NOT TRUE);
  ELSE
    stays := EXISTS (SELECT FROM gone g
      LEFT JOIN LATERAL (SELECT k.newest_at FROM memory_factkey k WHERE k.tenant_id = g.tenant_id AND k.id = g.key_id OFFSET 0) k ON true
      WHERE k.newest_at IS DISTINCT FROM g.believed_from);
  END IF;
  IF stays THEN
    RAISE EXCEPTION 'muniment: what was believed is not removed' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER belief_kept AFTER DELETE ON memory_belief REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION belief_kept();
DROP FUNCTION evidence_over(uuid, uuid, uuid);
"""
BY_ROW = """
CREATE FUNCTION evidence_over(p_tenant uuid, p_fact uuid, p_evidence uuid) RETURNS boolean LANGUAGE sql STABLE
  RETURN CASE WHEN p_fact IS NOT NULL
    THEN EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = p_tenant AND f.id = p_fact AND f.ended_at IS NOT NULL)
    ELSE EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = p_tenant AND e.id = p_evidence
      AND CASE WHEN e.fact_id IS NULL THEN e.expires_at <= clock_timestamp() OR e.redaction_state = 'applied'
        ELSE EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = p_tenant AND f.id = e.fact_id AND f.ended_at IS NOT NULL)
        END) END;
REVOKE ALL ON FUNCTION evidence_over(uuid, uuid, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION evidence_over(uuid, uuid, uuid) TO muniment_worker;
DROP TRIGGER evidence_kept ON memory_evidence;
CREATE OR REPLACE FUNCTION evidence_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT evidence_over(OLD.tenant_id, OLD.fact_id, OLD.id) THEN
    RAISE EXCEPTION 'muniment: evidence of what has not ended is not removed' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER evidence_kept BEFORE DELETE ON memory_evidence FOR EACH ROW EXECUTE FUNCTION evidence_kept();
DROP TRIGGER belief_kept ON memory_belief;
CREATE OR REPLACE FUNCTION belief_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_user = 'muniment_worker' THEN
    IF evidence_over(OLD.tenant_id, OLD.fact_id, OLD.evidence_id) THEN
      RETURN OLD;
    END IF;
  ELSIF EXISTS (SELECT FROM memory_factkey k WHERE k.tenant_id = OLD.tenant_id AND k.id = OLD.key_id
                AND k.newest_at = OLD.believed_from) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'muniment: what was believed is not removed' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER belief_kept BEFORE DELETE ON memory_belief FOR EACH ROW EXECUTE FUNCTION belief_kept();
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0025_terms_outlive_subjects")]

    operations = [migrations.RunSQL(BY_SET, BY_ROW)]
