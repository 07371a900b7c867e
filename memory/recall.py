"""The read door: what holds, what held, what was believed, each with its evidence.

Everything runs in the caller's tenant transaction under the agent's role (`facts`, `profile` and `answer` open one of
their own where none is open), so that the database itself leaves out what is expired, withheld, above clearance or
another tenant's. An answer finds the belief first and joins its fact under
row-level security: what is hidden leaves nothing, never the fact that held before it. Every read leaves a receipt.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import Any, Literal
from uuid import UUID

from django.db import connection

from memory.rows import fetch, look_up
from memory.subjects import payload_context
from memory.tombstones import APPLIED, tombstone
from policies.vocabulary import Sensitivity
from tenants.actors import Actor
from tenants.errors import FieldError, Malformed, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Proof, Role, alone
from tenants.secrets import keyring

MAX_PAGE = 200
MAX_STRETCHES = 1_000
#: How many pieces of standing evidence an answer names; `evidence_count` says how many there are.
NAMED_EVIDENCE = 20

_NOW_VALID = "coalesce(x.valid_to, 'infinity'::timestamptz) > t.valid_at AND x.valid_from <= t.valid_at"
_BELIEVED: dict[bool, str] = {
    False: "{b}.believed_to IS NULL",
    True: "{b}.believed_from <= t.known_at AND coalesce({b}.believed_to, 'infinity'::timestamptz) > t.known_at",
}
_STANDS: dict[bool, str] = {
    False: "e2.retracted_at IS NULL",
    True: "e2.recorded_at <= t.known_at AND (e2.retracted_at IS NULL OR e2.retracted_at > t.known_at)",
}

_NAMED_SUBJECT, _NAMED_ATTRIBUTE = "x.id, x.payload_id", "x.id, x.name"
_KEY = "x.id, x.subject_id, x.attribute_id"
_BELIEF = "x.fact_id, x.valid_from, x.valid_to, x.believed_from, x.believed_to, x.key_id, x.chain_no, x.evidence_id"
_FACT = (
    "x.id, x.confidence, x.confirmed, x.sensitivity, x.basis, x.expires_at, x.redaction_state, x.redaction_fields,"
    " x.evidence_count, x.attribute_version_id, x.payload_id"
)
_SAYING = (
    "x.id, x.source, x.turn_id, x.tool_call_id, x.writer_kind, x.writer_id, x.written_at, x.episode_id, x.consent_id,"
    " x.detected"
)
_SUBJECT = look_up("i", "memory_subjectidentifier", "x.digest = %(digest)s::bytea", columns="x.subject_id") + look_up(
    "s", "memory_subject", "x.id = i.subject_id AND NOT x.restricted", columns=_NAMED_SUBJECT
)
_ANY_SUBJECT = look_up("s", "memory_subject", "x.id = k.subject_id AND NOT x.restricted", columns=_NAMED_SUBJECT)
_ATTRIBUTE = look_up("a", "policies_attribute", "x.name = %(attribute)s::text", columns=_NAMED_ATTRIBUTE)
_ANY_ATTRIBUTE = look_up("a", "policies_attribute", "x.id = k.attribute_id", columns=_NAMED_ATTRIBUTE)

# Of a hidden fact the version that it was written under is hidden too: it is counted as what its attribute is now.
_KIND_NOW = (
    "(SELECT av.definition->>'kind' FROM policies_attributeversion av WHERE av.tenant_id = t.tenant"
    " AND av.attribute_id = k.attribute_id AND av.state = 'active')"
)
# Asked of an answer that is empty only.
_NAMED = (
    "(EXISTS (SELECT FROM answer) OR EXISTS (SELECT FROM policies_attribute x WHERE x.tenant_id = %(tenant)s::uuid"
    " AND x.name = %(attribute)s::text))"
)

#: How a read finds its keys, in execution order: by subject and attribute, subject, attribute, or neither.
_SCOPES: dict[tuple[bool, bool], tuple[str, str]] = {
    (True, True): (
        _SUBJECT
        + _ATTRIBUTE
        + look_up("k", "memory_factkey", "x.subject_id = s.id AND x.attribute_id = a.id{after}", columns=_KEY),
        "",
    ),
    (True, False): (
        _SUBJECT + look_up("k", "memory_factkey", "x.subject_id = s.id{after}", columns=_KEY),
        _ANY_ATTRIBUTE,
    ),
    (False, True): (
        _ATTRIBUTE + look_up("k", "memory_factkey", "x.attribute_id = a.id{after}", columns=_KEY) + _ANY_SUBJECT,
        "",
    ),
    (False, False): ("\n  JOIN memory_factkey k ON k.tenant_id = t.tenant{after_k}" + _ANY_SUBJECT, _ANY_ATTRIBUTE),
}

_FACT_COLUMNS = """
  s.id AS subject_id, a.id AS attribute_id, k.id AS key_id, a.name, b.fact_id, f.id AS visible, b.valid_from, b.valid_to,
  b.believed_from, b.believed_to, f.confidence, f.confirmed, f.sensitivity, f.basis, f.expires_at, f.redaction_state,
  f.redaction_fields, f.evidence_count, v.number, v.definition->>'kind' AS kind, p.id AS payload_id, p.clear, p.sealed,
  sk.wrapped, sk.version, e.id AS evidence_id, e.source, e.turn_id, e.tool_call_id, e.writer_kind, e.writer_id,
  e.written_at, e.episode_id,
  CASE WHEN e.consent_id IS NOT NULL THEN (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = t.tenant
      AND c.id = e.consent_id) END AS consent_ref,
  (SELECT pf.id FROM (SELECT pb.fact_id, pb.valid_to FROM memory_belief pb WHERE pb.tenant_id = t.tenant
      AND pb.key_id = b.key_id AND pb.chain_no = b.chain_no AND {believed_pb}
      AND coalesce(pb.valid_to, 'infinity'::timestamptz) >= b.valid_from
      ORDER BY coalesce(pb.valid_to, 'infinity'::timestamptz), pb.valid_from LIMIT 1) pb
    CROSS JOIN LATERAL (SELECT x.id FROM memory_fact x WHERE x.tenant_id = t.tenant AND x.id = pb.fact_id
      AND pb.valid_to = b.valid_from OFFSET 0) pf) AS supersedes,
  ARRAY(SELECT e2.id FROM memory_evidence e2 WHERE e2.tenant_id = t.tenant AND e2.fact_id = f.id AND NOT e2.is_end
        AND {stands} ORDER BY e2.id DESC LIMIT {named}) AS evidence,
  CASE WHEN f.id IS NULL THEN withheld_reason(b.fact_id) END AS withheld, e.detected,
  CASE WHEN f.redaction_state = 'applied' THEN value_type(v.definition) END AS type"""


def shown_evidence(columns: str) -> str:
    """Return the step `e` of a read's join: of a belief `b`, the evidence that is shown beside its fact.

    It is what opened the stretch; where that is hidden from the reader, another that keeps the fact.
    """
    return (
        f"\n  LEFT JOIN LATERAL (SELECT * FROM ((SELECT {columns} FROM memory_evidence x WHERE x.tenant_id = t.tenant"
        f" AND x.id = b.evidence_id OFFSET 0) UNION ALL (SELECT {columns} FROM memory_evidence x WHERE x.tenant_id = t.tenant"
        " AND x.fact_id = b.fact_id AND x.retracted_at IS NULL AND NOT x.is_end ORDER BY x.id DESC LIMIT 1)) y LIMIT 1) e ON true"
    )


_FACT_JOINS = (
    look_up("f", "memory_fact", "x.id = b.fact_id", columns=_FACT, outer=True)
    + look_up(
        "v", "policies_attributeversion", "x.id = f.attribute_version_id", columns="x.number, x.definition", outer=True
    )
    + look_up("p", "memory_payload", "x.id = f.payload_id", columns="x.id, x.clear, x.sealed, x.key_id", outer=True)
    + look_up("sk", "tenants_subjectkey", "x.id = p.key_id", columns="x.wrapped, x.version", outer=True)
    + shown_evidence(_SAYING)
)
_NAMES = look_up(
    "sp", "memory_payload", "x.id = s.payload_id", columns="x.id, x.sealed, x.key_id", outer=True
) + look_up("ssk", "tenants_subjectkey", "x.id = sp.key_id", columns="x.wrapped, x.version", outer=True)
_NAME_COLUMNS = ", sp.id AS name_id, sp.sealed AS name_sealed, ssk.wrapped AS name_wrapped, ssk.version AS name_version"

_LEAVE = """
INSERT INTO memory_receipt (tenant_id, id, act, actor_kind, actor_id, at, valid_at, known_at, subject_ids, attribute_ids,
  fact_ids, withheld, policy_version_id)
SELECT {tenant}, %(receipt)s::uuid, %(act)s::text, %(actor_kind)s::text, %(actor)s::uuid, statement_timestamp(),
  {valid_at}, {known_at}, {subjects}, {attributes}, {facts}, {withheld},
  (SELECT v.id FROM policies_policyversion v WHERE v.tenant_id = %(tenant)s::uuid AND v.state = 'active')"""


#: Leaves the receipt of a read whose rows stand in `answer`.
LEAVE_OF_ANSWER = _LEAVE.format(
    tenant="%(tenant)s::uuid",
    valid_at="t.valid_at",
    known_at="t.known_at",
    subjects="ARRAY(SELECT DISTINCT subject_id FROM answer)",
    attributes="ARRAY(SELECT DISTINCT attribute_id FROM answer)",
    facts="ARRAY(SELECT visible FROM answer WHERE visible IS NOT NULL)",
    withheld="coalesce((SELECT jsonb_object_agg(r.withheld, r.n) FROM (SELECT withheld, count(*) AS n FROM answer"
    " WHERE withheld IS NOT NULL GROUP BY withheld) r), '{}'::jsonb)",
)


def _read_sql(*, subject: bool, attribute: bool, known: bool, kind: bool, paged: bool, also: str = "") -> str:
    """Build the one statement of an exact read: the answer, and `also` what is done with it, up to its conditions."""
    keys, rest = _SCOPES[(subject, attribute)]
    # A page begins at the key where the last one ended; of that key it leaves out what was answered.
    keys = keys.replace("{after}", " AND x.id >= %(after_key)s::uuid" if paged else "")
    keys = keys.replace("{after_k}", " AND k.id >= %(after_key)s::uuid" if paged else "")
    believed = _BELIEVED[known].format(b="x")
    columns = _FACT_COLUMNS.format(
        believed_pb=_BELIEVED[known].format(b="pb"), stands=_STANDS[known], named=NAMED_EVIDENCE
    )
    # What is believed now is found from its end on (index belief_now): of many past stretches none is looked at.
    by_end = "" if known else " ORDER BY coalesce(x.valid_to, 'infinity'::timestamptz), x.valid_from"
    names = "" if subject else _NAMES
    conditions = ["b.fact_id IS NOT NULL"]
    if kind:
        conditions.append(f"coalesce(v.definition->>'kind', {_KIND_NOW}) = %(kind)s::text")
    if paged:
        conditions.append("(k.id, b.fact_id) > (%(after_key)s::uuid, %(after_fact)s::uuid)")
    # In one line: psycopg keeps what it made of a statement only up to 4,096 characters.
    return in_one_line(f"""
WITH t AS MATERIALIZED (
  SELECT %(tenant)s::uuid AS tenant, coalesce(%(valid_at)s::timestamptz, statement_timestamp()) AS valid_at,
    coalesce(%(known_at)s::timestamptz, statement_timestamp()) AS known_at
), answer AS MATERIALIZED (
SELECT {columns}{"" if subject else _NAME_COLUMNS}
FROM t{keys}{look_up("b", "memory_belief", f"x.key_id = k.id AND {believed} AND {_NOW_VALID}{by_end}", columns=_BELIEF)}{rest}{_FACT_JOINS}{names}
WHERE {" AND ".join(conditions)}
ORDER BY k.id, b.fact_id
LIMIT %(limit)s::int
){also}{f" WHERE {_NAMED})" if also and attribute else ")" if also else ""}
SELECT t.valid_at AS asked, t.known_at AS known, answer.*, {_NAMED if attribute else "true"} AS named
FROM t LEFT JOIN answer ON true
ORDER BY answer.key_id, answer.fact_id""")


def in_one_line(sql: str) -> str:
    """Return a statement without the space that only people read it by."""
    return " ".join(sql.split()).replace(" = ", "=").replace(", ", ",")


def _reads(also: str = "") -> dict[tuple[bool, ...], str]:
    """Build every exact read: by subject, by attribute, as known at an instant, of a kind, from a page on."""
    names = ("subject", "attribute", "known", "kind", "paged")
    return {
        given: _read_sql(**dict(zip(names, given, strict=True)), also=also)  # type: ignore[arg-type]
        for given in product((True, False), repeat=len(names))
    }


_ANSWERS = _reads()
_ANSWERS_WITH_RECEIPT = _reads(f", left_behind AS ({LEAVE_OF_ANSWER} FROM t")


@dataclass(frozen=True, slots=True)
class Answer:
    """One page of an answer: facts as JSON data, the instants asked about, what was withheld and why, as counts."""

    results: list[dict[str, Any]] = field(repr=False)
    next: str | None
    valid_at: datetime
    known_at: datetime
    withheld: dict[str, int]


@dataclass(frozen=True, slots=True)
class Page(Answer):
    """An answer that left a receipt."""

    receipt: UUID

    def as_json(self) -> dict[str, Any]:
        """Return the page as the API shows it."""
        return {
            "results": self.results,
            "next": self.next,
            "previous": None,
            "valid_at": self.valid_at,
            "known_at": self.known_at,
            "withheld": self.withheld,
            "receipt": self.receipt,
        }


def facts(
    actor: Actor,
    *,
    subject: str | None = None,
    attribute: str | None = None,
    kind: str | None = None,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
    act: str = "facts.read",
    proof: Proof | None = None,
) -> Page:
    """Return what holds at `valid_at` as believed at `known_at` (both default to now), in a stable order, by pages.

    A single-valued attribute of one subject has at most one result. Facts that are hidden leave a count under
    `withheld` and nothing else. A name that no subject has gives an empty page, as does one of another tenant. Raises
    `Refused` for an attribute that the tenant does not have, and leaves no receipt then.
    With `proof` the read's own transaction proves the caller first; raises `Unproven` where it does not.
    """
    receipt = new_id()
    found = _answered(
        actor,
        _ANSWERS_WITH_RECEIPT,
        {"receipt": receipt, "act": act, "actor_kind": actor.kind.value, "actor": actor.id},
        subject=subject,
        attribute=attribute,
        kind=kind,
        valid_at=valid_at,
        known_at=known_at,
        cursor=cursor,
        limit=limit,
        proof=proof,
    )
    return Page(found.results, found.next, found.valid_at, found.known_at, found.withheld, receipt)


def answer(
    actor: Actor,
    *,
    subject: str | None = None,
    attribute: str | None = None,
    kind: str | None = None,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Answer:
    """Return what `facts` returns and leave no receipt: a part of an act that leaves its own, never an answer to an agent."""
    return _answered(
        actor,
        _ANSWERS,
        {},
        subject=subject,
        attribute=attribute,
        kind=kind,
        valid_at=valid_at,
        known_at=known_at,
        cursor=cursor,
        limit=limit,
    )


def _read(actor: Actor, sql: str, parameters: dict[str, Any], proof: Proof | None) -> list[tuple[Any, ...]]:
    if connection.in_atomic_block and proof is None:
        return fetch(sql, parameters)  # type: ignore[arg-type]
    # Nothing but a receipt is written, and that may be lost with the machine's power: no commit waits for the disk.
    whose = {"tenant": actor.tenant, "clearance": actor.clearance, "actor": actor.id}
    return alone(Role.AGENT, sql, parameters, **whose, durable=False, proof=proof)  # type: ignore[arg-type]


def _answered(
    actor: Actor,
    reads: dict[tuple[bool, ...], str],
    parameters: dict[str, Any],
    *,
    subject: str | None,
    attribute: str | None,
    kind: str | None,
    valid_at: datetime | None,
    known_at: datetime | None,
    cursor: str | None,
    limit: int,
    proof: Proof | None = None,
) -> Answer:
    limit = max(1, min(limit, MAX_PAGE))
    after = None if cursor is None else read_cursor(cursor, 2)
    parameters |= {"tenant": actor.tenant, "valid_at": valid_at, "known_at": known_at, "limit": limit + 1}
    if subject is not None:
        parameters["digest"] = keyring().identifier(actor.tenant, subject)
    if attribute is not None:
        parameters["attribute"] = attribute
    if kind is not None:
        parameters["kind"] = kind
    if after is not None:
        parameters["after_key"], parameters["after_fact"] = after
    sql = reads[(subject is not None, attribute is not None, known_at is not None, kind is not None, after is not None)]
    found = _read(actor, sql, parameters, proof)
    if not found[0][-1]:
        raise Refused("unknown_attribute", errors=[FieldError("attribute", "unknown_attribute")])
    answered = [row for row in found if row[4] is not None]
    more = len(answered) > limit
    answered = answered[:limit]
    withheld: dict[str, int] = {}
    results = []
    for row in answered:
        if row[7] is None:
            withheld[row[38] or "ended"] = withheld.get(row[38] or "ended", 0) + 1
        else:
            results.append(_fact_json(actor, row, subject))
    following = write_cursor(answered[-1][4], answered[-1][6]) if more else None
    return Answer(results, following, found[0][0], found[0][1], withheld)


def profile(
    actor: Actor,
    subject: str,
    *,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    cursor: str | None = None,
    limit: int = MAX_PAGE,
    proof: Proof | None = None,
) -> Page:
    """Return everything that holds about one subject, as `facts` does."""
    return facts(
        actor,
        subject=subject,
        valid_at=valid_at,
        known_at=known_at,
        cursor=cursor,
        limit=limit,
        act="profile.read",
        proof=proof,
    )


def _fact_json(actor: Actor, row: Sequence[Any], subject: str | None) -> dict[str, Any]:
    name = subject if subject is not None else _name(actor.tenant, row[41:45])
    value = _value(actor.tenant, row[22:27])
    return {
        "id": row[7],
        "subject": name,
        "attribute": row[5],
        "value": tombstone(row[40], row[18], value) if row[17] == APPLIED else value,
        "kind": row[21],
        "valid_from": row[8],
        "valid_to": row[9],
        "recorded_at": row[10],
        "superseded_at": row[11],
        "supersedes": row[36],
        "confidence": row[12],
        "confirmed": row[13],
        "schema_version": row[20],
        "sensitivity": Sensitivity(row[14]).label,
        "retention": {"basis": row[15], "expires_at": row[16]},
        "redaction": {"state": row[17], "fields": row[18]},
        "provenance": None
        if row[27] is None
        else {
            "source": row[28],
            "turn_id": row[29],
            "tool_call_id": row[30],
            "consent_ref": row[35],
            "writer": {"kind": row[31], "id": row[32]},
            "written_at": row[33],
            "source_episode": row[34],
            "detected": row[39],
        },
        "evidence": row[37],
        "evidence_count": row[19],
    }


def _opened(tenant: UUID, payload: UUID, purpose: str, sealed: Any, wrapped: Any, version: int) -> str:
    ring = keyring()
    key = ring.unwrap(tenant, bytes(wrapped), version)
    return ring.open(key, bytes(sealed), payload_context(tenant, payload, purpose)).decode("utf-8")


def _value(tenant: UUID, columns: Sequence[Any], purpose: str = "value") -> Any:
    """Return the value of a payload (id, clear, sealed, wrapped, version), or None where it is hidden or has ended."""
    payload, clear, sealed, wrapped, version = columns
    if payload is None:
        return None
    if sealed is not None:
        clear = _opened(tenant, payload, purpose, sealed, wrapped, version)
    return None if clear is None else json.loads(clear)


def _name(tenant: UUID, columns: Sequence[Any]) -> str | None:
    payload, sealed, wrapped, version = columns
    if payload is None or sealed is None:
        return None
    return _opened(tenant, payload, "subject", sealed, wrapped, version)


# one fact -------------------------------------------------------------------------------------------------------------

_BY_ID_COLUMNS = _FACT_COLUMNS.format(
    believed_pb="pb.believed_to IS NULL", stands="e2.retracted_at IS NULL", named=NAMED_EVIDENCE
)
_BY_ID = f"""
WITH t AS MATERIALIZED (SELECT %(tenant)s::uuid AS tenant, statement_timestamp() AS valid_at, statement_timestamp() AS known_at)
SELECT t.valid_at, t.known_at, {_BY_ID_COLUMNS}{_NAME_COLUMNS}
FROM t CROSS JOIN unnest(%(ids)s::uuid[]) AS w (id){
    look_up("wanted", "memory_fact", "x.id = w.id", columns="x.id, x.key_id")
}{look_up("k", "memory_factkey", "x.id = wanted.key_id", columns=_KEY)}{_ANY_SUBJECT}{_ANY_ATTRIBUTE}
  CROSS JOIN LATERAL (
    SELECT * FROM memory_belief b WHERE b.tenant_id = t.tenant AND b.fact_id = wanted.id
    ORDER BY b.believed_to IS NULL DESC,
      b.valid_from <= t.valid_at AND coalesce(b.valid_to, 'infinity'::timestamptz) > t.valid_at DESC,
      b.believed_to DESC, b.valid_from DESC LIMIT 1) b{_FACT_JOINS}{_NAMES}
WHERE f.id IS NOT NULL"""


def facts_by_id(actor: Actor, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return the facts of `ids` that the actor may see, each on its present stretch, else the last one it had.

    Leaves no receipt of its own: for answers to writes, which leave theirs.
    """
    if not ids:
        return {}
    found = fetch(_BY_ID, {"tenant": actor.tenant, "ids": list(ids)})  # type: ignore[arg-type]
    return {row[7]: _fact_json(actor, row, None) for row in found}


def fact(actor: Actor, fact_id: UUID) -> dict[str, Any]:
    """Return one fact, with the id of the receipt under `receipt`. Raises `Missing` for what the actor cannot see."""
    found = facts_by_id(actor, [fact_id]).get(fact_id)
    if found is None:
        raise Missing
    return {**found, "receipt": leave(actor, "fact.read", facts=[fact_id])}


_LEAVE_PLAIN = _LEAVE.format(
    tenant="%(tenant)s::uuid",
    valid_at="%(valid_at)s::timestamptz",
    known_at="%(known_at)s::timestamptz",
    subjects="%(subjects)s::uuid[]",
    attributes="'{}'::uuid[]",
    facts="%(facts)s::uuid[]",
    withheld="'{}'::jsonb",
)


def leave(
    actor: Actor,
    act: str,
    *,
    facts: Sequence[UUID] = (),
    subjects: Sequence[UUID] = (),
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
) -> UUID:
    """Leave the receipt of a read and return its id."""
    receipt = new_id()
    with connection.cursor() as cursor:
        cursor.execute(
            _LEAVE_PLAIN,
            {
                "tenant": actor.tenant,
                "receipt": receipt,
                "act": act,
                "actor_kind": actor.kind.value,
                "actor": actor.id,
                "valid_at": valid_at,
                "known_at": known_at,
                "facts": list(facts),
                "subjects": list(subjects),
            },
        )
    return receipt


_EVIDENCE = """
SELECT e.id, e.fact_id, e.is_end, e.valid_from, e.stated_to, e.recorded_at, e.retracted_at, e.retraction_reason, e.confidence,
  e.confirmed, e.imported, e.corrects_id, e.source, e.turn_id, e.tool_call_id, e.writer_kind, e.writer_id, e.written_at,
  e.episode_id, e.extractor, e.sensitivity, e.basis, e.expires_at, e.redaction_state, e.redaction_fields,
  p.id, p.clear, p.sealed, sk.wrapped, sk.version, q.id, q.clear, q.sealed, qk.wrapped, qk.version,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id),
  e.detected, f.redaction_state, f.redaction_fields,
  CASE WHEN f.redaction_state = 'applied' THEN (SELECT value_type(v.definition) FROM policies_attributeversion v
    WHERE v.tenant_id = e.tenant_id AND v.id = f.attribute_version_id) END
FROM memory_evidence e
  LEFT JOIN LATERAL (SELECT * FROM memory_fact x WHERE x.tenant_id = e.tenant_id AND x.id = e.fact_id OFFSET 0) f ON true
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) sk ON true
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.quote_id OFFSET 0) q ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = q.tenant_id AND x.id = q.key_id OFFSET 0) qk ON true
WHERE e.tenant_id = %(tenant)s::uuid AND {which} AND (e.fact_id IS NULL OR f.id IS NOT NULL)
  AND (%(known_at)s::timestamptz IS NULL OR e.recorded_at <= %(known_at)s::timestamptz)
  AND (%(after)s::uuid IS NULL OR e.id > %(after)s::uuid)
ORDER BY e.id LIMIT %(limit)s::int"""
_STRETCHES = """
SELECT b.fact_id, f.id, b.valid_from, b.valid_to, b.believed_from, b.believed_to, b.evidence_id, p.id, p.clear, p.sealed,
  sk.wrapped, sk.version, f.redaction_state, f.redaction_fields,
  CASE WHEN f.redaction_state = 'applied' THEN (SELECT value_type(v.definition) FROM policies_attributeversion v
    WHERE v.tenant_id = b.tenant_id AND v.id = f.attribute_version_id) END
FROM (SELECT * FROM memory_belief x WHERE x.tenant_id = %(tenant)s::uuid AND x.key_id = %(key)s::uuid
    AND (%(known_at)s::timestamptz IS NULL
      OR (x.believed_from <= %(known_at)s::timestamptz
          AND coalesce(x.believed_to, 'infinity'::timestamptz) > %(known_at)s::timestamptz))
    ORDER BY x.valid_from, x.believed_from, x.id LIMIT %(limit)s::int) b
  LEFT JOIN LATERAL (SELECT * FROM memory_fact x WHERE x.tenant_id = b.tenant_id AND x.id = b.fact_id OFFSET 0) f ON true
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) sk ON true
ORDER BY b.valid_from, b.believed_from, b.id"""


# What a reader of another clearance is given is no matter of this one's.
_MADE_OF = (
    "SELECT w.derived_id FROM memory_derivedsource w CROSS JOIN LATERAL (SELECT x.id FROM memory_derived x"
    " WHERE x.tenant_id = w.tenant_id AND x.id = w.derived_id OFFSET 0) d"
    " WHERE w.tenant_id = %s::uuid AND w.fact_id = %s::uuid ORDER BY w.derived_id LIMIT 50"
)


def _key_of(actor: Actor, fact_id: UUID) -> tuple[UUID, UUID]:
    found = fetch(
        "SELECT f.key_id, f.subject_id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid",
        [actor.tenant, fact_id],
    )
    if not found:
        raise Missing
    return found[0][0], found[0][1]


def history(
    actor: Actor, fact_id: UUID, *, known_at: datetime | None = None, cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    """Return all evidence of the fact's key by pages, and its stretches (on the first page, at most 1,000).

    Without `known_at` the stretches are all that were ever believed, each with when it was; with it, those believed
    then, and the evidence recorded by then. Raises `Missing` for a fact that the actor cannot see.
    """
    key, subject_id = _key_of(actor, fact_id)
    limit = max(1, min(limit, MAX_PAGE))
    after = None if cursor is None else read_cursor(cursor, 1)[0]
    rows = fetch(
        _EVIDENCE.format(which="e.key_id = %(key)s::uuid"),
        {"tenant": actor.tenant, "key": key, "known_at": known_at, "after": after, "limit": limit + 1},  # type: ignore[arg-type]
    )
    stretches: list[tuple[Any, ...]] = []
    if after is None:
        stretches = fetch(
            _STRETCHES,
            {"tenant": actor.tenant, "key": key, "known_at": known_at, "limit": MAX_STRETCHES + 1},  # type: ignore[arg-type]
        )
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "results": [_evidence_json(actor, row) for row in rows],
        "next": write_cursor(rows[-1][0]) if more else None,
        "previous": None,
        "stretches": [_stretch_json(actor, row) for row in stretches[:MAX_STRETCHES]],
        "more_stretches": len(stretches) > MAX_STRETCHES,
        "receipt": leave(
            actor,
            "history.read",
            facts=sorted({row[1] for row in rows if row[1]} | {row[1] for row in stretches if row[1]} | {fact_id}),
            subjects=[subject_id],
            known_at=known_at,
        ),
    }


def lineage(actor: Actor, fact_id: UUID, *, cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
    """Return what a fact rests on: its evidence with episodes, quotes and writers, by pages; and what rests on it."""
    _, subject_id = _key_of(actor, fact_id)
    limit = max(1, min(limit, MAX_PAGE))
    after = None if cursor is None else read_cursor(cursor, 1)[0]
    rows = fetch(
        _EVIDENCE.format(which="e.fact_id = %(fact)s::uuid"),
        {"tenant": actor.tenant, "fact": fact_id, "known_at": None, "after": after, "limit": limit + 1},  # type: ignore[arg-type]
    )
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "fact": fact_id,
        "sources": [_evidence_json(actor, row) for row in rows],
        "derived": [row[0] for row in fetch(_MADE_OF, [actor.tenant, fact_id])],
        "next": write_cursor(rows[-1][0]) if more else None,
        "previous": None,
        "receipt": leave(actor, "lineage.read", facts=[fact_id], subjects=[subject_id]),
    }


def _evidence_json(actor: Actor, row: Sequence[Any]) -> dict[str, Any]:
    quote: Any = None
    if row[30] is not None:
        quote = row[31] if row[32] is None else _opened(actor.tenant, row[30], "quote", row[32], row[33], row[34])
    if "quote" in row[24]:
        quote = tombstone("text", ["quote"], quote)
    value = _value(actor.tenant, row[25:30])
    return {
        "id": row[0],
        "fact": row[1],
        "value": tombstone(row[39], row[38], value) if row[37] == APPLIED else value,
        "ended": row[2],
        "valid_from": row[3],
        "valid_to": row[4],
        "recorded_at": row[5],
        "retracted_at": row[6],
        "retraction_reason": row[7],
        "confidence": row[8],
        "confirmed": row[9],
        "imported": row[10],
        "corrects": row[11],
        "sensitivity": Sensitivity(row[20]).label,
        "retention": {"basis": row[21], "expires_at": row[22]},
        "redaction": {"state": row[23], "fields": row[24]},
        "provenance": {
            "source": row[12],
            "turn_id": row[13],
            "tool_call_id": row[14],
            "consent_ref": row[35],
            "writer": {"kind": row[15], "id": row[16]},
            "written_at": row[17],
            "source_episode": row[18],
            "extractor": row[19],
            "quote": quote,
            "detected": row[36],
        },
    }


def _stretch_json(actor: Actor, row: Sequence[Any]) -> dict[str, Any]:
    # A stretch whose fact is hidden or has ended stays as a boundary without value, one that was redacted with a tombstone.
    value = _value(actor.tenant, row[7:12])
    return {
        "fact": row[1],
        "value": tombstone(row[14], row[13], value) if row[12] == APPLIED else value,
        "state": "ended" if row[0] is None else "held" if row[1] is not None else "withheld",
        "valid_from": row[2],
        "valid_to": row[3],
        "recorded_at": row[4],
        "superseded_at": row[5],
        "evidence": row[6],
    }


# episodes and candidates ----------------------------------------------------------------------------------------------

_EPISODE = """
SELECT e.id, e.kind, e.role, e.session_id, e.turn_id, e.tool_call_id, e.occurred_at, e.recorded_at, e.writer_kind, e.writer_id,
  e.extraction, e.sensitivity, e.basis, e.expires_at, e.redaction_state, e.redaction_fields, e.subject_id,
  p.id, p.clear, p.sealed, sk.wrapped, sk.version,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id),
  e.replaced::text, e.detected, e.quarantined
FROM memory_episode e
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) sk ON true
WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid"""
_FACTS_OF_EPISODE = """
SELECT DISTINCT f.id FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT x.id FROM memory_fact x WHERE x.tenant_id = e.tenant_id AND x.id = e.fact_id OFFSET 0) f
WHERE e.tenant_id = %s::uuid AND e.episode_id = %s::uuid ORDER BY f.id LIMIT 200"""


def episode(actor: Actor, episode_id: UUID) -> dict[str, Any]:
    """Return an episode as it was received, with the ids of the facts that rest on it. Raises `Missing`."""
    found = fetch(_EPISODE, [actor.tenant, episode_id])
    if not found:
        raise Missing
    row = found[0]
    content = row[18]
    if row[19] is not None:
        content = _opened(actor.tenant, row[17], "episode", row[19], row[20], row[21])
    if row[14] == APPLIED and content is None:
        content = tombstone("text", row[15])
    facts_found = [each[0] for each in fetch(_FACTS_OF_EPISODE, [actor.tenant, episode_id])]
    return {
        "id": row[0],
        "kind": row[1],
        "role": row[2],
        "content": content,
        "session_id": row[3],
        "turn_id": row[4],
        "tool_call_id": row[5],
        "occurred_at": row[6],
        "recorded_at": row[7],
        "consent_ref": row[22],
        "writer": {"kind": row[8], "id": row[9]},
        "extraction": row[10],
        "replaced": json.loads(row[23]),
        "detected": row[24],
        "quarantined": row[25],
        "sensitivity": Sensitivity(row[11]).label,
        "retention": {"basis": row[12], "expires_at": row[13]},
        "redaction": {"state": row[14], "fields": row[15]},
        "facts": facts_found,
        "receipt": leave(actor, "episode.read", facts=facts_found, subjects=[] if row[16] is None else [row[16]]),
    }


_CANDIDATES = """
SELECT c.id, c.act, c.state, c.reasons, c.rule, c.confirm_by, c.is_end, c.occurrences, c.created_at, c.decided_at,
  c.decision_reason, c.evidence_id, c.sensitivity, c.basis, c.expires_at, c.target_id, a.name, p.id, p.clear, p.sealed,
  sk.wrapped, sk.version, sp.id, sp.sealed, ssk.wrapped, ssk.version,
  c.redaction_state, c.redaction_fields, CASE WHEN c.redaction_state = 'applied' THEN (SELECT value_type(v.definition)
    FROM policies_attributeversion v WHERE v.tenant_id = c.tenant_id AND v.id = c.attribute_version_id) END
FROM memory_candidate c
  LEFT JOIN LATERAL (SELECT * FROM policies_attribute x WHERE x.tenant_id = c.tenant_id AND x.id = c.attribute_id OFFSET 0) a ON true
  CROSS JOIN LATERAL (SELECT * FROM memory_subject x WHERE x.tenant_id = c.tenant_id AND x.id = c.subject_id OFFSET 0) s
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = c.tenant_id AND x.id = c.payload_id OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) sk ON true
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = s.tenant_id AND x.id = s.payload_id OFFSET 0) sp ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = sp.tenant_id AND x.id = sp.key_id OFFSET 0) ssk ON true
WHERE c.tenant_id = %(tenant)s::uuid AND {which}
  AND (%(after)s::uuid IS NULL OR c.id > %(after)s::uuid)
ORDER BY c.id LIMIT %(limit)s::int"""

CandidateState = Literal["asked", "buffered", "accepted", "promoted", "rejected", "expired"]


def candidates(
    actor: Actor, *, state: CandidateState | None = None, cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    """Return what was asked or buffered and what became of it, oldest first, by pages."""
    limit = max(1, min(limit, MAX_PAGE))
    after = None if cursor is None else read_cursor(cursor, 1)[0]
    which = "true" if state is None else "c.state = %(state)s::text"
    parameters: dict[str, Any] = {"tenant": actor.tenant, "after": after, "limit": limit + 1}
    if state is not None:
        parameters["state"] = state
    rows = fetch(_CANDIDATES.format(which=which), parameters)  # type: ignore[arg-type]
    more = len(rows) > limit
    rows = rows[:limit]
    return {
        "results": [_candidate_json(actor, row) for row in rows],
        "next": write_cursor(rows[-1][0]) if more else None,
        "previous": None,
        "receipt": leave(actor, "candidates.read"),
    }


def candidate(actor: Actor, candidate_id: UUID) -> dict[str, Any]:
    """Return one candidate. Raises `Missing` for what the actor cannot see."""
    rows = fetch(
        _CANDIDATES.format(which="c.id = %(id)s::uuid"),
        {"tenant": actor.tenant, "id": candidate_id, "after": None, "limit": 1},  # type: ignore[arg-type]
    )
    if not rows:
        raise Missing
    return {**_candidate_json(actor, rows[0]), "receipt": leave(actor, "candidate.read")}


def _candidate_json(actor: Actor, row: Sequence[Any]) -> dict[str, Any]:
    attribute, value = row[16], _value(actor.tenant, row[17:22], "candidate")
    if row[26] == APPLIED and row[27]:
        value = tombstone(row[28], row[27], value)
    elif attribute is None and value is not None:
        # Nobody has defined the attribute: its name was said, and is kept as what was said is.
        attribute, value = value["attribute"], value["value"]
    return {
        "id": row[0],
        "act": row[1],
        "state": row[2],
        "reasons": row[3],
        "rule": row[4],
        "confirm_by": row[5],
        "subject": _name(actor.tenant, row[22:26]),
        "attribute": attribute,
        "value": value,
        "ended": row[6],
        "target": row[15],
        "occurrences": row[7],
        "created_at": row[8],
        "decided_at": row[9],
        "decision_reason": row[10],
        "evidence": row[11],
        "sensitivity": Sensitivity(row[12]).label,
        "retention": {"basis": row[13], "expires_at": row[14]},
        "redaction": {"state": row[26], "fields": row[27]},
    }


# cursors --------------------------------------------------------------------------------------------------------------


def write_cursor(*ids: UUID) -> str:
    """Return a cursor after these ids: row ids only, so that it says nothing of content."""
    return ".".join(each.hex for each in ids)


def read_cursor(text: str, count: int) -> list[UUID]:
    """Return the ids of a cursor. Raises `Malformed` for any other text."""
    parts = text.split(".")
    try:
        if len(parts) == count and all(len(part) == 32 for part in parts):
            return [UUID(hex=part) for part in parts]
    except ValueError:
        pass
    raise Malformed(errors=[FieldError("cursor", "not_a_cursor")])
