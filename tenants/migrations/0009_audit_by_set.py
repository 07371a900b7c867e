"""Events that are appended together are written by one statement: half of what one each costs an act that has a thousand.

Nothing else changes: the head is locked first, each entry follows from the one before it, and hashes cover what they did.
"""

from typing import ClassVar

from django.db import migrations

HEAD = """
CREATE OR REPLACE FUNCTION audit_append(p_chain uuid, p_events jsonb) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  head record;
  {variables}
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
"""
TAIL = """
  UPDATE public.tenants_auditchain c SET seq = n, hash = h WHERE c.chain = p_chain;
  RETURN n;
END $$;
"""
BY_SET = """
  FOR e IN SELECT x.actor_kind, x.actor_id, x.action, x.target_kind, x.target_id, x.reason, decode(x.digest, 'hex') AS digest,
        coalesce(x.numbers, '{}') AS numbers
      FROM jsonb_to_recordset(p_events) AS x (actor_kind text, actor_id uuid, action text, target_kind text, target_id uuid,
        reason text, digest text, numbers jsonb) LOOP
    n := n + 1;
    before := array_append(before, h);
    h := public.audit_hash(h, p_chain, n, moment, e.actor_kind, e.actor_id, e.action, e.target_kind, e.target_id, e.reason, e.digest,
      e.numbers);
    hashes := array_append(hashes, h);
  END LOOP;
  INSERT INTO public.tenants_auditevent (id, chain, seq, prev, hash, at, actor_kind, actor_id, action, target_kind,
      target_id, reason, digest, numbers)
    SELECT x.id, p_chain, head.seq + x.place, x.prev, x.hash, moment, x.actor_kind, x.actor_id, x.action, x.target_kind,
      x.target_id, x.reason, decode(x.digest, 'hex'), coalesce(x.numbers, '{}')
    FROM ROWS FROM (jsonb_to_recordset(p_events) AS (id uuid, actor_kind text, actor_id uuid, action text, target_kind text,
        target_id uuid, reason text, digest text, numbers jsonb), unnest(before), unnest(hashes)) WITH ORDINALITY
      AS x (id, actor_kind, actor_id, action, target_kind, target_id, reason, digest, numbers, prev, hash, place);
"""
ONE_BY_ONE = """
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
"""
# The function is of the chain's own role, which alone may write the rows.
#: A hash that was just stored is not read back any more.
UNREAD = "REVOKE SELECT ON tenants_auditevent FROM muniment_chain;"
READ = "GRANT SELECT ON tenants_auditevent TO muniment_chain;"
AS_CHAIN = "GRANT CREATE ON SCHEMA public TO muniment_chain; SET LOCAL ROLE muniment_chain;"
BACK = "RESET ROLE; REVOKE CREATE ON SCHEMA public FROM muniment_chain;"


def replaced(body: str, variables: str) -> str:
    """Return the statements that give the function `body`."""
    return AS_CHAIN + HEAD.replace("{variables}", variables) + body + TAIL + BACK


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0008_sign_in_identities")]
    operations: ClassVar = [
        migrations.RunSQL(
            replaced(BY_SET, "e record;\n  before bytea[] := '{}';\n  hashes bytea[] := '{}';") + UNREAD,
            replaced(ONE_BY_ONE, "e jsonb;") + READ,
        )
    ]
