"""Rows of memory as SQL: asking, storing all sets of one act at once, and changing what may change of a row.

Each table that the doors fill has its row here: a named tuple whose fields are the columns, so that no value lands in
another's place. A set of rows travels as one JSON parameter: one prepared statement serves one row and a thousand, and
writing JSON costs the client a fifth of what arrays of typed values do. Everything runs under the role of the open
tenant transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Generic, NamedTuple, NewType, TypeVar, get_args, get_type_hints
from uuid import UUID

import psycopg
from django.db import connection
from pydantic_core import to_json

from memory.ledger import FactState

#: A statement and its parameters.
Query = tuple[str, Sequence[Any] | Mapping[str, Any]]


def fetch(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows."""
    return fetch_all([(sql, parameters)])[0]


def fetch_all(queries: Sequence[Query | None]) -> list[list[tuple[Any, ...]]]:
    """Run statements in their order and return the rows of each; None asks nothing and has no rows.

    At a door they all go in one round trip. Each sees what those before it locked or stored, as if it had been sent alone.
    """
    with connection.wrap_database_errors:
        asked = [None if query is None else _sent(*query) for query in queries]
        return [[] if cursor is None else cursor.fetchall() for cursor in asked]


def execute(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> None:
    """Run one statement without asking for an answer; at a door it travels with the next question or the commit."""
    with connection.wrap_database_errors:
        _sent(sql, parameters)


def count(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> int:
    """Run one statement and return how many rows it changed."""
    with connection.wrap_database_errors:
        return int(_sent(sql, parameters).rowcount)


def _sent(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    """Send a statement by a cursor of the driver's own: what Django lays around one costs a door as much again.

    Binary: what Django has text read by takes ten times as long for an instant. What watches the statements of Django's
    connection sees these as well.
    """
    if connection.connection is None or not connection.in_atomic_block:
        raise RuntimeError("rows are asked for within a transaction")
    for watch in connection.execute_wrappers:
        watch(_not_here, sql, parameters, False, {"connection": connection})
    if connection.queries_logged:
        connection.queries_log.append({"sql": sql, "time": "0.000"})
    cursor: psycopg.Cursor[tuple[Any, ...]] = connection.connection.cursor(binary=True)
    if isinstance(parameters, Mapping):
        given: Any = {name: _written(value) for name, value in parameters.items()}
    else:
        given = [_written(value) for value in parameters]
    cursor.execute(sql, given)
    return cursor


def _written(value: Any) -> Any:
    """Return a list of ids as the server reads an array; anything else as it is.

    The driver writes an array entry by entry, looking at each for what needs quotes: no id does, and a chunk of an ending
    sends some twenty thousand of them.
    """
    if type(value) is list and value and all(type(each) is UUID for each in value):
        return "{" + ",".join([each.hex for each in value]) + "}"
    return value


def _not_here(*_: Any) -> None:
    """Stands for the execution of a statement that is sent by another cursor."""


def look_up(alias: str, table: str, condition: str, *, columns: str = "*", outer: bool = False) -> str:
    """Return one step of a door's join: rows of `table` in the tenant `t.tenant` by a full key, under the alias.

    Each is a lateral sub-select that stays one (OFFSET 0), so that the planner can only go by that key: with the
    statistics of a young table it would otherwise find a scan of the whole tenant just as good, and a cached plan keeps
    it. Joins that are written out in the doors' statements have the same shape for the same reason. `columns` names those
    that are needed: every other one is still set up at each execution.
    """
    join = "LEFT JOIN LATERAL" if outer else "CROSS JOIN LATERAL"
    return (
        f"\n  {join} (SELECT {columns} FROM {table} x WHERE x.tenant_id = t.tenant AND {condition} OFFSET 0) {alias}"
        f"{' ON true' if outer else ''}"
    )


#: What an array column is given.
Uuids = NewType("Uuids", list[UUID])
Words = NewType("Words", list[str])
Longs = NewType("Longs", list[int])
Shorts = NewType("Shorts", list[int])
#: What a JSON column is given.
Json = NewType("Json", object)


def uuids(values: Iterable[UUID] | None) -> Uuids | None:
    """Return what an array of ids is given, or None."""
    return None if values is None else Uuids(list(values))


def consents_of(fact: FactState) -> Uuids | None:
    """Return the consents of which one must stand; in one order, so that a fact and its payload are equal in it."""
    return None if fact.consent_ids is None else uuids(sorted(fact.consent_ids))


def words(values: Iterable[str]) -> Words:
    """Return what an array of codes is given."""
    return Words(list(values))


def longs(values: Iterable[int]) -> Longs:
    """Return what an array of whole numbers of 64 bits is given."""
    return Longs(list(values))


def shorts(values: Iterable[int]) -> Shorts:
    """Return what an array of whole numbers of 16 bits is given."""
    return Shorts(list(values))


# what a row consists of -----------------------------------------------------------------------------------------------


class SubjectKeyRow(NamedTuple):
    """The data key of a subject, or of an episode of nobody's."""

    id: UUID
    wrapped: bytes
    version: int
    created_at: datetime


class PayloadRow(NamedTuple):
    """Content: `sealed` under the data key `key_id`, or in `clear`."""

    id: UUID
    purpose: str
    key_id: UUID | None
    clear: str | None
    sealed: bytes | None
    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_ids: Uuids | None
    written_at: datetime


class SubjectRow(NamedTuple):
    """Whom or what sayings are about."""

    id: UUID
    kind: str
    payload_id: UUID
    key_id: UUID
    created_at: datetime


class FactRow(NamedTuple):
    """One value of one chain."""

    id: UUID
    key_id: UUID
    subject_id: UUID
    chain_no: int
    value_digest: bytes
    payload_id: UUID
    attribute_version_id: UUID
    policy_version_id: UUID
    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_ids: Uuids | None
    confirmed: bool
    confidence: float | None
    evidence_count: int
    review_at: datetime | None
    created_at: datetime


class EvidenceRow(NamedTuple):
    """One saying that stands."""

    id: UUID
    key_id: UUID
    fact_id: UUID | None
    is_end: bool
    valid_from: datetime
    stated_to: datetime | None
    recorded_at: datetime
    act_no: int
    rank: int
    confirmed: bool
    confidence: float | None
    imported: bool
    source: str
    turn_id: str
    tool_call_id: str | None
    consent_id: UUID | None
    session_id: str | None
    contract_ref: str | None
    writer_kind: str
    writer_id: UUID
    trust: int
    written_at: datetime
    episode_id: UUID | None
    quote_id: UUID | None
    extractor: str | None
    attribute_version_id: UUID
    policy_version_id: UUID
    corrects_id: UUID | None
    sensitivity: int
    basis: str
    expires_at: datetime | None
    detected: Words


class BeliefRow(NamedTuple):
    """A stretch, as believed over a stretch of belief."""

    id: UUID
    key_id: UUID
    chain_no: int
    evidence_id: UUID
    fact_id: UUID | None
    valid_from: datetime
    valid_to: datetime | None
    believed_from: datetime
    believed_to: datetime | None


class ReceiptRow(NamedTuple):
    """What a write came to."""

    id: UUID
    act: str
    actor_kind: str
    actor_id: UUID
    at: datetime
    subject_ids: Uuids | None
    attribute_ids: Uuids | None
    fact_ids: Uuids | None
    policy_version_id: UUID
    verdict: str
    reasons: Words


class OutboxRow(NamedTuple):
    """Work that the act leaves to do."""

    id: UUID
    topic: str
    target_id: UUID
    due_at: datetime
    created_at: datetime


class IdempotencyRow(NamedTuple):
    """What a request with a key came to, as ids."""

    id: UUID
    agent_id: UUID
    key_digest: bytes
    request_digest: bytes
    status: int
    outcome: Json
    created_at: datetime


class EpisodeRow(NamedTuple):
    """Input as received."""

    id: UUID
    kind: str
    role: str | None
    subject_id: UUID | None
    session_id: str
    turn_id: str
    tool_call_id: str | None
    occurred_at: datetime
    recorded_at: datetime
    writer_kind: str
    writer_id: UUID
    consent_id: UUID | None
    contract_ref: str | None
    payload_id: UUID
    content_digest: bytes
    extraction: str
    policy_version_id: UUID
    sensitivity: int
    basis: str
    expires_at: datetime | None
    detected: Words
    replaced: Json
    quarantined: bool
    mentioned_ids: Uuids


class CandidateRow(NamedTuple):
    """A proposal that waits."""

    id: UUID
    subject_id: UUID
    attribute_id: UUID | None
    attribute_version_id: UUID | None
    policy_version_id: UUID
    act: str
    target_id: UUID | None
    state: str
    reasons: Words
    rule: str
    confirm_by: str | None
    value_digest: bytes | None
    payload_id: UUID | None
    is_end: bool
    writer_kind: str
    writer_id: UUID
    created_at: datetime
    sensitivity: int
    basis: str
    expires_at: datetime | None


class CandidateSayingRow(NamedTuple):
    """One saying of a proposal that waits."""

    id: UUID
    candidate_id: UUID
    valid_from: datetime
    stated_to: datetime | None
    confidence: float | None
    source: str
    turn_id: str
    tool_call_id: str | None
    consent_id: UUID | None
    session_id: str | None
    contract_ref: str | None
    episode_id: UUID | None
    quote_id: UUID | None
    extractor: str | None
    sensitivity: int
    basis: str
    expires_at: datetime | None
    writer_kind: str
    writer_id: UUID
    trust: int
    said_at: datetime
    detected: Words


class SearchEntryRow(NamedTuple):
    """What a payload is found by, as visible as the payload is."""

    id: UUID
    kind: str
    target_id: UUID
    subject_id: UUID | None
    payload_id: UUID
    at: datetime
    tokens: Longs
    counts: Shorts
    length: int
    key_version: int
    rules: str
    sensitivity: int
    expires_at: datetime | None
    consent_ids: Uuids | None


class ProcedureVersionRow(NamedTuple):
    """A version of a procedure, as it is proposed; who proposes it and when is filled by the database."""

    id: UUID
    procedure_id: UUID
    number: int
    scope: str
    scope_rank: int
    agent_id: UUID | None
    payload_id: UUID
    body_digest: bytes
    digest: bytes
    base_id: UUID | None
    rollback_id: UUID | None
    test_kind: str
    test_reference: str
    test_result: str
    test_cases: int | None
    test_passed: int | None
    detected: Words
    sensitivity: int
    basis: str
    proposed_by_kind: str
    proposed_by: UUID
    created_at: datetime


class DerivedSourceRow(NamedTuple):
    """What a derived text rests on."""

    id: UUID
    derived_id: UUID
    fact_id: UUID
    belief_id: UUID
    state: bytes


Row = TypeVar("Row", bound=tuple[Any, ...])

# storing --------------------------------------------------------------------------------------------------------------

_SQL_TYPES: dict[Any, str] = {
    UUID: "uuid",
    str: "text",
    bytes: "bytea",
    int: "bigint",
    bool: "boolean",
    float: "float8",
    datetime: "timestamptz",
    Uuids: "uuid[]",
    Words: "text[]",
    Json: "jsonb",
    Longs: "bigint[]",
    Shorts: "smallint[]",
}


def _sql_type(annotation: Any) -> str:
    if isinstance(annotation, UnionType) or get_args(annotation):
        (annotation,) = (each for each in get_args(annotation) if each is not type(None))
    return _SQL_TYPES[annotation]


def columns_of(row: type[tuple[Any, ...]]) -> list[tuple[str, str]]:
    """Return the columns that a row names, each with its type in SQL."""
    return [(column, _sql_type(kind)) for column, kind in get_type_hints(row).items()]


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return `rows` as the JSON that `recordset` reads."""
    return to_json([dict(zip(columns, map(_plain, row), strict=True)) for row in rows]).decode()


def _plain(value: Any) -> Any:
    return f"\\x{value.hex()}" if type(value) is bytes else value


def recordset(parameter: str, columns: Iterable[tuple[str, str]]) -> str:
    """Return the SQL of a set of rows `w` from the JSON parameter of that name."""
    return f"json_to_recordset(%({parameter})s::json) AS w ({', '.join(f'{name} {kind}' for name, kind in columns)})"


class Table(Generic[Row]):
    """One table's insert, in the columns that its row names: `sql`, of the set of rows `w` under the table's name."""

    def __init__(self, name: str, row: type[Row]) -> None:
        self.name = name
        self.columns = columns_of(row)
        self.names = [column for column, _ in self.columns]
        # Short, since psycopg takes a statement of more than 4,096 characters apart each time.
        self.sql = (
            f"INSERT INTO {name} (tenant_id, {', '.join(self.names)})"
            f" SELECT %(tenant)s::uuid, w.* FROM {recordset(name, self.columns)}"
        )

    def insert(self, tenant: UUID, rows: Sequence[Row]) -> None:
        """Store `rows` in one statement; nothing for none."""
        store(tenant, [(self, rows)])


#: Rows of one table.
Rows = tuple[Table[Any], Sequence[tuple[Any, ...]]]


def store(tenant: UUID, sets: Iterable[Rows], *, closed: Sequence[tuple[UUID, datetime]] = ()) -> None:
    """Store the rows of several tables, and stop believing `closed` at their instants, in one statement.

    What points at another row of the statement may come before it: links are checked at its end. Beliefs are closed
    before others are opened in their place. Nothing is sent for no rows.
    """
    filled = [(table, rows) for table, rows in sets if rows]
    if not filled and not closed:
        return
    given: dict[str, Any] = {"tenant": tenant, **parameters(filled)}
    if closed:
        given["closed"] = as_json(("id", "at"), closed)
    execute(_stored_at_once(tuple(table for table, _ in filled), closing=bool(closed)), given)


def parameters(sets: Iterable[Rows]) -> dict[str, str]:
    """Return what the statements `sql` of the tables are given for these rows."""
    return {table.name: as_json(table.names, rows) for table, rows in sets}


_CLOSE = f"""
UPDATE memory_belief b SET believed_to = w.at FROM {recordset("closed", [("id", "uuid"), ("at", "timestamptz")])}
WHERE b.tenant_id = %(tenant)s::uuid AND b.id = w.id AND b.believed_to IS NULL RETURNING b.id
"""


@cache
def _stored_at_once(tables: tuple[Table[Any], ...], *, closing: bool) -> str:
    parts = [("closed", _CLOSE)] if closing else []
    for table in tables:
        # Counting them, the insert waits until they are closed: parts of one statement have no order of their own.
        wait = " WHERE (SELECT count(*) FROM closed) >= 0" if closing and table is BELIEFS else ""
        parts.append((f"into_{table.name}", table.sql + wait))
    *before, (_, last) = parts
    return f"WITH {', '.join(f'{name} AS ({sql})' for name, sql in before)} {last}" if before else last


SUBJECT_KEYS = Table("tenants_subjectkey", SubjectKeyRow)
PAYLOADS = Table("memory_payload", PayloadRow)
SUBJECTS = Table("memory_subject", SubjectRow)
FACTS = Table("memory_fact", FactRow)
EVIDENCE = Table("memory_evidence", EvidenceRow)
BELIEFS = Table("memory_belief", BeliefRow)
RECEIPTS = Table("memory_receipt", ReceiptRow)
OUTBOX = Table("memory_outboxentry", OutboxRow)
EPISODES = Table("memory_episode", EpisodeRow)
CANDIDATES = Table("memory_candidate", CandidateRow)
SEARCH_ENTRIES = Table("memory_searchentry", SearchEntryRow)
DERIVED_SOURCES = Table("memory_derivedsource", DerivedSourceRow)
PROCEDURE_VERSIONS = Table("memory_procedureversion", ProcedureVersionRow)
CANDIDATE_SAYINGS = Table("memory_candidatesaying", CandidateSayingRow)
IDEMPOTENCY = Table("memory_idempotencyrecord", IdempotencyRow)


# changing what may change ---------------------------------------------------------------------------------------------


class FactChange(NamedTuple):
    """What may change of a stored fact."""

    id: UUID
    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_ids: Uuids | None
    confirmed: bool
    confidence: float | None
    evidence_count: int
    review_at: datetime | None


class PayloadChange(NamedTuple):
    """How a fact's payload follows it; `key_id` and `sealed` only where a clear one had to be sealed."""

    id: UUID
    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_ids: Uuids | None
    key_id: UUID | None
    sealed: bytes | None


class PayloadRaise(NamedTuple):
    """A payload whose class rises; `key_id` and `sealed` only where a clear one had to be sealed."""

    id: UUID
    sensitivity: int
    key_id: UUID | None
    sealed: bytes | None


_FACT_CHANGES, _PAYLOAD_CHANGES, _RAISES = (columns_of(row) for row in (FactChange, PayloadChange, PayloadRaise))
_UPDATE_FACTS = f"""
UPDATE memory_fact f SET sensitivity = w.sensitivity, basis = w.basis, expires_at = w.expires_at,
  consent_ids = w.consent_ids, confirmed = w.confirmed, confidence = w.confidence,
  evidence_count = w.evidence_count, review_at = w.review_at
FROM {recordset("rows", _FACT_CHANGES)}
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = w.id
"""
_SEALED = "clear = CASE WHEN w.sealed IS NULL THEN p.clear END, sealed = coalesce(w.sealed, p.sealed)"
_UPDATE_PAYLOADS = f"""
UPDATE memory_payload p SET sensitivity = w.sensitivity, basis = w.basis, expires_at = w.expires_at,
  consent_ids = w.consent_ids, key_id = coalesce(w.key_id, p.key_id), {_SEALED}
FROM {recordset("rows", _PAYLOAD_CHANGES)}
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = w.id
"""
_RAISE_PAYLOADS = f"""
UPDATE memory_payload p SET sensitivity = w.sensitivity, key_id = coalesce(w.key_id, p.key_id), {_SEALED}
FROM {recordset("rows", _RAISES)}
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = w.id
"""
_AT = [("id", "uuid"), ("at", "timestamptz")]
_DELETE_BELIEFS = "DELETE FROM memory_belief b WHERE b.tenant_id = %(tenant)s::uuid AND b.id = ANY(%(rows)s::uuid[])"
_RETRACT = f"""
UPDATE memory_evidence e SET retracted_at = w.at, retracted_by = %(by)s::uuid, retraction_reason = %(reason)s::text
FROM {recordset("rows", _AT)}
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id AND e.retracted_at IS NULL
"""
_ENDS = [("id", "uuid"), ("ended_by", "text")]
_SETTLE = f"""
UPDATE memory_fact f SET ended_at = clock_timestamp(), ended_by = w.ended_by
FROM {recordset("rows", _ENDS)}
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = w.id AND f.ended_at IS NULL
"""


def change(
    sql: str, tenant: UUID, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], **more: Any
) -> None:
    """Run a statement that reads `rows` as the record set of that name; nothing for none."""
    if rows:
        execute(sql, {"tenant": tenant, "rows": as_json([name for name, _ in columns], rows), **more})


def update_facts(tenant: UUID, facts: Sequence[FactState]) -> None:
    """Store what changed of stored facts."""
    changes = [
        FactChange(
            id=fact.id,
            sensitivity=fact.sensitivity,
            basis=fact.basis,
            expires_at=fact.expires_at,
            consent_ids=consents_of(fact),
            confirmed=fact.confirmed,
            confidence=fact.confidence,
            evidence_count=fact.evidence_count,
            review_at=fact.review_at,
        )
        for fact in facts
    ]
    change(_UPDATE_FACTS, tenant, _FACT_CHANGES, changes)


def update_payloads(tenant: UUID, rows: Sequence[tuple[FactState, UUID | None, bytes | None]]) -> None:
    """Let the payloads of facts follow them; (fact, key, sealed) where a clear one had to be sealed, else (fact, None, None)."""
    changes = [
        PayloadChange(
            id=fact.payload_id,
            sensitivity=fact.sensitivity,
            basis=fact.basis,
            expires_at=fact.expires_at,
            consent_ids=consents_of(fact),
            key_id=key,
            sealed=sealed,
        )
        for fact, key, sealed in rows
    ]
    change(_UPDATE_PAYLOADS, tenant, _PAYLOAD_CHANGES, changes)


def raise_payloads(tenant: UUID, rows: Sequence[PayloadRaise]) -> None:
    """Raise payloads to a class."""
    change(_RAISE_PAYLOADS, tenant, _RAISES, rows)


_THROW_AWAY = "DELETE FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[])"


def throw_away(tenant: UUID, payloads: Sequence[UUID]) -> None:
    """Delete derived texts: the derived row and its sources go with a payload. A trigger refuses any other payload."""
    if payloads:
        execute(_THROW_AWAY, [tenant, list(payloads)])


def delete_beliefs(tenant: UUID, deleted: Sequence[UUID]) -> None:
    """Remove what was never believed: opened, and now to be closed, at the very same instant."""
    if deleted:
        execute(_DELETE_BELIEFS, {"tenant": tenant, "rows": list(deleted)})


def retract(tenant: UUID, rows: Sequence[tuple[UUID, datetime]], by: UUID, reason: str) -> None:
    """Set the retraction of evidence, once."""
    change(_RETRACT, tenant, _AT, rows, by=by, reason=reason)


def settle(tenant: UUID, rows: Sequence[tuple[UUID, str]]) -> None:
    """Mark facts as ended, by cause; their content is removed later, elsewhere."""
    change(_SETTLE, tenant, _ENDS, rows)
