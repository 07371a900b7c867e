"""Whether a step of a procedure's version is whole is asked at the commit, under any role, on every version of PostgreSQL.

Before PostgreSQL 18 what is deferred to the commit is asked under whichever role commits, not under the one that acted. So
the function looks past the role, at no more than what it has to compare.
"""

from django.db import migrations

TOLD = """
CREATE OR REPLACE FUNCTION procedureversion_told() RETURNS trigger LANGUAGE plpgsql {rights} AS $$
DECLARE
  found record;
BEGIN
  SELECT v.state, v.retired_at, v.retired_because INTO found
    FROM memory_procedureversion v WHERE v.tenant_id = NEW.tenant_id AND v.id = NEW.id;
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
"""
PAST_THE_ROLE = (
    TOLD.format(rights="SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp")
    + """
GRANT SELECT (id, state, retired_at, retired_because, base_id, activated_at) ON memory_procedureversion TO muniment_counter;
CREATE POLICY counts ON policies_decisionrequest FOR SELECT TO muniment_counter USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, act, target_id, digest, state) ON policies_decisionrequest TO muniment_counter;
GRANT CREATE ON SCHEMA public TO muniment_counter;
ALTER FUNCTION procedureversion_told() OWNER TO muniment_counter;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;
"""
)
UNDER_THE_ROLE = (
    """
DROP TRIGGER procedureversion_told ON memory_procedureversion;
SET LOCAL ROLE muniment_counter;
DROP FUNCTION procedureversion_told();
RESET ROLE;
REVOKE SELECT (id, state, retired_at, retired_because, base_id, activated_at) ON memory_procedureversion FROM muniment_counter;
DROP POLICY counts ON policies_decisionrequest;
REVOKE SELECT (tenant_id, act, target_id, digest, state) ON policies_decisionrequest FROM muniment_counter;
"""
    + TOLD.format(rights="")
    + """
CREATE CONSTRAINT TRIGGER procedureversion_told AFTER UPDATE OF state ON memory_procedureversion
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION procedureversion_told();
"""
)


class Migration(migrations.Migration):
    dependencies = [("retention", "0020_erasure_mentions"), ("policies", "0003_approvals")]
    operations = [migrations.RunSQL(PAST_THE_ROLE, UNDER_THE_ROLE)]
