"""What rows say of redaction: hidden while it is required, shown again where it was not wanted, marked once it is applied.

Only `retention` calls it, under `Role.WORKER` and the locks of its act. No content passes through here: what was taken out
is emptied by `memory.erasure`, and what is left of it stands in a payload of its own, which takes the former's place.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from memory import rows

# Rows that are hidden themselves. Evidence shows with its quote hidden; a saying of a candidate shows by its quote alone.
_HIDE = {
    "fact": "UPDATE memory_fact x SET redaction_state = 'required'",
    "episode": "UPDATE memory_episode x SET redaction_state = 'required'",
    "candidate": "UPDATE memory_candidate x SET redaction_state = 'required'",
}
_NOT_HIDDEN = " WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[]) AND x.redaction_state <> 'required'"
# What is empty has nothing to hide.
_HIDE_PAYLOADS = f"UPDATE memory_payload x SET redaction_state = 'required'{_NOT_HIDDEN} AND x.ended_at IS NULL"
_AS_BEFORE = "redaction_state = CASE WHEN cardinality(x.redaction_fields) > 0 THEN 'applied' ELSE 'none' END"
_SHOW = {
    "fact": f"UPDATE memory_fact x SET {_AS_BEFORE}",
    "episode": f"UPDATE memory_episode x SET {_AS_BEFORE}",
    "candidate": f"UPDATE memory_candidate x SET {_AS_BEFORE}",
    "payload": f"UPDATE memory_payload x SET {_AS_BEFORE}",
}
_HIDDEN = " WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[]) AND x.redaction_state = 'required'"


def hide(tenant: UUID, records: Iterable[tuple[str, UUID]], payloads: Sequence[UUID]) -> None:
    """Hide records, by kind and id, and content, from agents: from the commit on no read returns them."""
    for kind, ids in _by_kind(records).items():
        rows.execute(_HIDE[kind] + _NOT_HIDDEN, [tenant, ids])
    if payloads:
        rows.execute(_HIDE_PAYLOADS, [tenant, list(payloads)])


def show(tenant: UUID, records: Iterable[tuple[str, UUID]], payloads: Sequence[UUID]) -> None:
    """Let what was hidden be seen again as it was before. The database refuses it for what somebody still asks to redact."""
    for kind, ids in _by_kind(records).items():
        rows.execute(_SHOW[kind] + _HIDDEN, [tenant, ids])
    if payloads:
        rows.execute(_SHOW["payload"] + _HIDDEN, [tenant, list(payloads)])


def _by_kind(records: Iterable[tuple[str, UUID]]) -> dict[str, list[UUID]]:
    found: dict[str, list[UUID]] = {}
    for kind, record in records:
        if kind in _HIDE:
            found.setdefault(kind, []).append(record)
    return found


class Mark(NamedTuple):
    """What a row says: what was taken out of it (`value`, `value.street`, `content`), and which payload holds what is left."""

    id: UUID
    payload_id: UUID | None
    parts: rows.Words


_RANDOM = "sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))"
_ADDED = "ARRAY(SELECT DISTINCT w.part FROM unnest(x.redaction_fields || {parts}) AS w (part) ORDER BY w.part)"
_MARKED = rows.columns_of(Mark)
_ROWS = f"FROM {rows.recordset('rows', _MARKED)} WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.id"
_MARK_FACTS = f"""
UPDATE memory_fact x SET redaction_state = 'applied', redaction_fields = {_ADDED.format(parts="w.parts")},
  payload_id = coalesce(w.payload_id, x.payload_id), value_digest = {_RANDOM} {_ROWS}
"""
_MARK_EPISODES = f"""
UPDATE memory_episode x SET redaction_state = 'applied', redaction_fields = {_ADDED.format(parts="w.parts")},
  payload_id = coalesce(w.payload_id, x.payload_id), content_digest = {_RANDOM} {_ROWS}
"""
_MARK_CANDIDATES = f"""
UPDATE memory_candidate x SET redaction_state = 'applied', redaction_fields = {_ADDED.format(parts="'{value}'::text[]")},
  value_digest = NULL
WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])
"""
_MARK_EVIDENCE = f"""
UPDATE memory_evidence x SET redaction_state = 'applied', redaction_fields = {_ADDED.format(parts="%s::text[]")}
WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])
"""
_SAID_OF = """
SELECT e.id, e.quote_id IS NOT NULL FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY (%s::uuid[])
"""


def mark(
    tenant: UUID,
    *,
    facts: Sequence[Mark] = (),
    episodes: Sequence[Mark] = (),
    candidates: Sequence[UUID] = (),
    quotes: Collection[UUID] = (),
) -> None:
    """Let rows say that they were redacted, with what is left in its place and no digest of what was there.

    All evidence of `facts` is marked with them; `quotes` is evidence that lost its quote alone.
    """
    rows.change(_MARK_FACTS, tenant, _MARKED, facts)
    rows.change(_MARK_EPISODES, tenant, _MARKED, episodes)
    if candidates:
        rows.execute(_MARK_CANDIDATES, [tenant, list(candidates)])
    said = rows.fetch(_SAID_OF, [tenant, [each.id for each in facts]]) if facts else []
    of_facts = {row[0] for row in said}
    for parts, evidence in (
        (["value"], [row[0] for row in said if not row[1]]),
        (["quote", "value"], [row[0] for row in said if row[1]]),
        (["quote"], [each for each in quotes if each not in of_facts]),
    ):
        if evidence:
            rows.execute(_MARK_EVIDENCE, [parts, tenant, evidence])


_FORGET = (
    "DELETE FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND p.ended_at IS NOT NULL"
)


def forget(tenant: UUID, payloads: Sequence[UUID]) -> None:
    """Remove the empty rows whose place was taken by what is left: nothing points at them any more."""
    if payloads:
        rows.execute(_FORGET, [tenant, list(payloads)])
