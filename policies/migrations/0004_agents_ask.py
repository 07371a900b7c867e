from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER decision_not_for_oneself ON policies_decision;
DROP FUNCTION decision_not_for_oneself();
CREATE OR REPLACE FUNCTION decisionrequest_by_a_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM tenants_membership m WHERE m.tenant_id = NEW.tenant_id AND m.user_id = NEW.requested_by
                 AND m.role <> 'auditor') THEN
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
DROP FUNCTION answers_for_agent(uuid, uuid, uuid), holds_role(uuid, uuid, text);
"""


class Migration(migrations.Migration):
    dependencies = [("policies", "0003_approvals"), ("tenants", "0005_rate_limits")]

    operations = [migrations.RunSQL(SQL, UNDO)]
