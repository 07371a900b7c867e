"""Receipts are sealed into the audit chain in batches, so that one altered or removed later is found.

Of a batch the chain keeps the count and the SHA-256 of its receipts, rendered one a line in the order of their ids and
joined by a line feed, in UTF-8. A line is these columns, separated by U+001F: id, act, actor_kind, actor_id, at,
valid_at, known_at, subject_ids, attribute_ids, fact_ids, withheld, policy_version_id, verdict, reasons, and by form 2
question_digest, episode_ids, and by form 3 procedure_ids. Instants are whole microseconds since 1970; a digest is hexadecimal; arrays and the object of
counts are PostgreSQL's text of them; null is `-`. `sealed_seq` of a receipt is the number of the entry that seals it, whose
numbers say the `form`; without one it is the first, which had no questions.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import connection

from memory import rows
from memory.endings import worker
from tenants.audit import APPEND, Action, Event, parameters

CHUNK = 1_000
#: What began before is committed by then, but for the odd straggler, which a later batch takes.
SEALED_AFTER = timedelta(seconds=30)

_INSTANT = "coalesce((extract(epoch FROM r.{0}) * 1000000)::bigint::text, '-')"
_LINE = (
    "concat_ws(E'\\x1f', r.id::text, r.act, r.actor_kind, r.actor_id::text, "
    + ", ".join(_INSTANT.format(name) for name in ("at", "valid_at", "known_at"))
    + ", r.subject_ids::text, r.attribute_ids::text, r.fact_ids::text, r.withheld::text,"
    " coalesce(r.policy_version_id::text, '-'), coalesce(r.verdict, '-'), r.reasons::text)"
)
_ASKED = "concat_ws(E'\\x1f', '', coalesce(encode(r.question_digest, 'hex'), '-'), coalesce(r.episode_ids::text, '-'))"
_PROCEDURES = "concat_ws(E'\\x1f', '', coalesce(r.procedure_ids::text, '-'))"
_DIGEST = "sha256(convert_to(string_agg({0}, E'\\n' ORDER BY r.id), 'UTF8'))"
_FORM = 3
_TAKE = f"""
WITH taken AS MATERIALIZED (
  SELECT * FROM memory_receipt r WHERE r.tenant_id = %s::uuid AND r.sealed_seq IS NULL AND r.at < clock_timestamp() - %s::interval
  ORDER BY r.id LIMIT %s FOR UPDATE SKIP LOCKED)
SELECT array_agg(r.id ORDER BY r.id), {_DIGEST.format(f"{_LINE} || {_ASKED} || {_PROCEDURES}")} FROM taken r
"""
_SEAL = "UPDATE memory_receipt r SET sealed_seq = %s WHERE r.tenant_id = %s::uuid AND r.id = ANY(%s::uuid[])"
#: By the form that the entry names: the chain vouches for that too.
_AS_SEALED = (
    f"{_LINE} || CASE WHEN f.numbers->>'form' IN ('2', '{_FORM}') THEN {_ASKED} ELSE '' END"
    f" || CASE WHEN f.numbers->>'form' = '{_FORM}' THEN {_PROCEDURES} ELSE '' END"
)
_VERIFY = f"""
SELECT coalesce(s.seq, e.seq), coalesce(s.found, 0),
  s.digest IS NOT DISTINCT FROM e.digest AND s.found IS NOT DISTINCT FROM (e.numbers->>'count')::bigint
FROM (SELECT r.sealed_seq AS seq, count(*) AS found, {_DIGEST.format(_AS_SEALED)} AS digest
      FROM memory_receipt r LEFT JOIN tenants_auditevent f
        ON f.chain = r.tenant_id AND f.seq = r.sealed_seq AND f.action = 'receipts.sealed'
      WHERE r.tenant_id = %(tenant)s::uuid AND r.sealed_seq IS NOT NULL GROUP BY r.sealed_seq) s
  FULL JOIN (SELECT * FROM tenants_auditevent e WHERE e.chain = %(tenant)s::uuid AND e.action = 'receipts.sealed') e
    ON e.seq = s.seq
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Seals:
    """What a verification found: batches and receipts sealed, and the entry of the first batch that does not hold."""

    batches: int
    receipts: int
    bad: int | None


def seal(tenant: UUID, *, older_than: timedelta = SEALED_AFTER) -> int:
    """Seal a chunk of receipts in the worker's open transaction, of which it must be the last act; return how many."""
    ids, digest = rows.fetch(_TAKE, [tenant, older_than, CHUNK])[0]
    if not ids:
        return 0
    event = Event(
        actor=worker(tenant),
        action=Action.RECEIPTS_SEALED,
        target_kind="receipt",
        target_id=ids[-1],
        digest=bytes(digest),
        numbers={"count": len(ids), "form": _FORM},
    )
    seq = rows.fetch(APPEND, parameters(tenant, [event]))[0][0]
    with connection.cursor() as cursor:
        cursor.execute(_SEAL, [seq, tenant, ids])
    return len(ids)


def verify_receipts(tenant: UUID) -> Seals:
    """Hold every sealed receipt against the chain. Needs `Role.WORKER` and the tenant.

    Finds a sealed receipt that was changed, removed, added or put under another seal. That the chain itself is sound is
    `tenants.verification`'s to say.
    """
    found = rows.fetch(_VERIFY, {"tenant": tenant})  # type: ignore[arg-type]
    bad = next((seq for seq, _, holds in found if not holds), None)
    return Seals(batches=len(found), receipts=sum(number for _, number, _ in found), bad=bad)
