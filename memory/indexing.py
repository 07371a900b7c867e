"""Making payloads findable in the background: values and names after their act, and whatever an index lacks.

What an episode says is indexed in the transaction that keeps it; a fact's value once its act is done, since exact reads
have it at once. Where an index is new, or was made by other rules or under another key, it is made anew beside what is
read from it, chunk by chunk, and answers say so. Content is read under the role of the write door, as the other
background work sees none.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import checking, rows, search
from memory.outbox import Outcomes
from memory.search import Text
from memory.subjects import opened
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.secrets import keyring

#: Payloads that one transaction looks at.
CHUNK = 500
#: An index is counted anew when it has grown by a tenth.
_GROWN = 10
_MOST_COMMON = 5_000

_COLUMNS = """
SELECT w.kind, w.target, w.subject, p.id, w.at, p.sensitivity, p.expires_at, p.consent_ids, p.purpose, p.clear, p.sealed,
  sk.wrapped, sk.version
FROM {source}
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.payload
    AND x.redaction_state = 'none' AND (x.clear IS NOT NULL OR x.sealed IS NOT NULL) OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = p.key_id OFFSET 0) sk
    ON true
WHERE NOT EXISTS (SELECT FROM memory_searchentry e WHERE e.tenant_id = %(tenant)s::uuid AND e.payload_id = p.id)
"""
_VALUES = _COLUMNS.format(
    source="""(SELECT 'value' AS kind, f.id AS target, f.subject_id AS subject, f.payload_id AS payload, f.created_at AS at
  FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = ANY (%(keys)s::uuid[]) AND f.ended_at IS NULL) w"""
)
_NAMES = _COLUMNS.format(
    source="""(SELECT 'name' AS kind, i.subject_id AS target, i.subject_id AS subject, i.payload_id AS payload, i.created_at AS at
  FROM memory_subjectidentifier i WHERE i.tenant_id = %(tenant)s::uuid AND i.subject_id = ANY (%(subjects)s::uuid[])) w"""
)
_SUBJECTS_OF = (
    "SELECT DISTINCT k.subject_id FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY (%s::uuid[])"
)


def check_and_index(tenant: UUID, keys: Sequence[UUID]) -> Outcomes:
    """Check the keys as `checking.check` does, and make their new values and their subjects' names findable."""
    outcomes = checking.check(tenant, keys)
    with borrowed(Role.WRITER, back_to=Role.WORKER):
        subjects = [row[0] for row in rows.fetch(_SUBJECTS_OF, [tenant, list(keys)])]
        _index(tenant, _VALUES, {"keys": list(keys)})
        _index(tenant, _NAMES, {"subjects": subjects})
    return outcomes


def index_names(tenant: UUID, subjects: Sequence[UUID]) -> Outcomes:
    """Make the names of subjects findable."""
    with borrowed(Role.WRITER, back_to=Role.WORKER):
        _index(tenant, _NAMES, {"subjects": list(subjects)})
    return {}


def _index(tenant: UUID, sql: str, parameters: dict[str, Any]) -> int:
    found = rows.fetch(sql, {"tenant": tenant, **parameters})
    search.store(tenant, [_text(tenant, row) for row in found])
    return len(found)


def _text(tenant: UUID, row: Sequence[Any]) -> Text:
    kind, target, subject, payload, at, sensitivity, expires_at, consents, purpose, clear, sealed, wrapped, version = (
        row
    )
    text = opened(tenant, payload, purpose, clear, sealed, wrapped, version)
    return Text(kind, target, subject, payload, at, text, sensitivity, expires_at, rows.uuids(consents))


# making an index ------------------------------------------------------------------------------------------------------

_STATE = """
SELECT s.rules, s.key_version, s.made_to, s.entries, s.counted_at FROM memory_searchstate s
WHERE s.tenant_id = %s::uuid AND s.id = s.tenant_id FOR UPDATE SKIP LOCKED
"""
_BEGIN = """
INSERT INTO memory_searchstate (tenant_id, id, rules, key_version, made_to) VALUES (%s::uuid, %s::uuid, %s, %s, %s::uuid)
ON CONFLICT (tenant_id, id) DO NOTHING
"""
_AGAIN = "UPDATE memory_searchstate s SET rules = %s, key_version = %s, made_to = %s::uuid WHERE s.tenant_id = %s::uuid"
_MADE_TO = "UPDATE memory_searchstate s SET made_to = %s::uuid WHERE s.tenant_id = %s::uuid"
_STALE = """
DELETE FROM memory_searchentry e WHERE e.tenant_id = %s::uuid AND e.payload_id = ANY (%s::uuid[])
  AND (e.rules <> %s OR e.key_version <> %s)
"""
_NEXT = """
SELECT p.id, p.purpose FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id > %s::uuid ORDER BY p.id LIMIT %s
"""
_OF_PAYLOADS = _COLUMNS.format(
    source="""(
  SELECT 'value' AS kind, f.id AS target, f.subject_id AS subject, f.payload_id AS payload, f.created_at AS at
  FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.payload_id = ANY (%(payloads)s::uuid[]) AND f.ended_at IS NULL
  UNION ALL
  SELECT 'episode', e.id, e.subject_id, e.payload_id, e.occurred_at
  FROM memory_episode e WHERE e.tenant_id = %(tenant)s::uuid AND e.payload_id = ANY (%(payloads)s::uuid[])
  UNION ALL
  SELECT 'name', i.subject_id, i.subject_id, i.payload_id, i.created_at
  FROM memory_subjectidentifier i WHERE i.tenant_id = %(tenant)s::uuid AND i.payload_id = ANY (%(payloads)s::uuid[])) w"""
)
_FOUND = ("episode", "value", "subject", "alias")
_EVERYTHING = UUID(int=0)


def make_up(tenant: UUID) -> int:
    """Make a chunk of what a tenant's index lacks, or count it anew; return how many payloads it looked at.

    Opens its own transaction. An index that nothing was ever looked up in, and that lacks nothing, costs one look.
    """
    with tenant_transaction(Role.WRITER, tenant=tenant):
        version = keyring().blinded(tenant, [])[1]
        found = rows.fetch(_STATE, [tenant])
        if not found:
            rows.execute(_BEGIN, [tenant, tenant, search.rules(), version, _EVERYTHING])
            found = rows.fetch(_STATE, [tenant])
            if not found:
                return 0
        made_by, under, made_to, entries, counted_at = found[0]
        if (made_by, under) != (search.rules(), version):
            made_to = _EVERYTHING
            rows.execute(_AGAIN, [search.rules(), version, made_to, tenant])
        if made_to is None:
            return _count(tenant, entries, counted_at)
        payloads = rows.fetch(_NEXT, [tenant, made_to, CHUNK])
        wanted = [payload for payload, purpose in payloads if purpose in _FOUND]
        if wanted:
            rows.execute(_STALE, [tenant, wanted, search.rules(), version])
            _index(tenant, _OF_PAYLOADS, {"payloads": wanted})
        rows.execute(_MADE_TO, [payloads[-1][0] if len(payloads) == CHUNK else None, tenant])
        return len(payloads)


_UNDER_OTHER_KEYS = """
DELETE FROM memory_searchentry e WHERE e.tenant_id = %s::uuid AND e.id = ANY (ARRAY(
  SELECT x.id FROM memory_searchentry x WHERE x.tenant_id = %s::uuid AND x.key_version <> %s LIMIT %s))
RETURNING e.payload_id
"""


def make_under_one_key(tenant: UUID) -> int:
    """Make a chunk of the index anew that was made under another version of the tenant's key; return how many that was.

    `make_up` comes past what a writer, begun under the old version, added behind it; this leaves none of that. Opens its
    own transaction.
    """
    with tenant_transaction(Role.WRITER, tenant=tenant):
        version = keyring().blinded(tenant, [])[1]
        payloads = list({row[0] for row in rows.fetch(_UNDER_OTHER_KEYS, [tenant, tenant, version, CHUNK])})
        if payloads:
            _index(tenant, _OF_PAYLOADS, {"payloads": payloads})
        return len(payloads)


_GROWN_TO = "SELECT count(*) FROM memory_searchentry e WHERE e.tenant_id = %s::uuid AND e.kind = 'episode'"
_COUNT = """
UPDATE memory_searchstate s SET entries = w.entries, length = w.length, common = w.common, frequencies = w.frequencies,
  counted_at = clock_timestamp()
FROM (
  SELECT (SELECT count(*) FROM memory_searchentry e WHERE e.tenant_id = %(tenant)s::uuid AND e.kind = 'episode') AS entries,
    (SELECT coalesce(avg(e.length), 0) FROM memory_searchentry e WHERE e.tenant_id = %(tenant)s::uuid AND e.kind = 'episode') AS length,
    coalesce(array_agg(c.token ORDER BY c.token), '{}') AS common,
    coalesce(array_agg(c.found ORDER BY c.token), '{}') AS frequencies
  FROM (SELECT u.token, count(*) AS found FROM memory_searchentry e CROSS JOIN LATERAL unnest(e.tokens) AS u (token)
        WHERE e.tenant_id = %(tenant)s::uuid GROUP BY u.token HAVING count(*) > %(from)s
        ORDER BY count(*) DESC, u.token LIMIT %(most)s) c) w
WHERE s.tenant_id = %(tenant)s::uuid
"""


def _count(tenant: UUID, entries: int, counted_at: datetime | None) -> int:
    ((number,),) = rows.fetch(_GROWN_TO, [tenant])
    if number > search.SMALL and (counted_at is None or number > entries + entries // _GROWN):
        rows.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)", [])
        rows.execute(_COUNT, {"tenant": tenant, "from": search.COMMON_FROM, "most": _MOST_COMMON})  # type: ignore[arg-type]
    return 0
