"""Rows of memory as SQL: asking, storing set by set, and changing what may change of a row.

Each table that the doors fill has its row here: a named tuple whose fields are the columns, so that no value lands in
another's place. Parameters are arrays with explicit types, so that one prepared statement serves two rows and a
thousand; a single row has a statement of its own, since arrays of one cost the client more than the rest of its insert.
Everything runs under the role of the open tenant transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Generic, NamedTuple, NewType, TypeVar, get_args, get_type_hints
from uuid import UUID

from django.db import connection

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
    asked = []
    for query in queries:
        cursor = None if query is None else connection.cursor()
        if cursor is not None and query is not None:
            cursor.execute(*query)
        asked.append(cursor)
    answers: list[list[tuple[Any, ...]]] = []
    for cursor in asked:
        if cursor is None:
            answers.append([])
            continue
        with cursor:
            answers.append(cursor.fetchall())
    return answers


def execute(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> None:
    """Run one statement without asking for an answer; at a door it travels with the next question or the commit."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)  # type: ignore[arg-type]


def look_up(alias: str, table: str, condition: str, *, outer: bool = False) -> str:
    """Return one step of a door's join: rows of `table` in the tenant `t.tenant` by a full key, under the alias.

    Each is a lateral sub-select that stays one (OFFSET 0), so that the planner can only go by that key: with the
    statistics of a young table it would otherwise find a scan of the whole tenant just as good, and a cached plan keeps
    it. Joins that are written out in the doors' statements have the same shape for the same reason.
    """
    join = "LEFT JOIN LATERAL" if outer else "CROSS JOIN LATERAL"
    return (
        f"\n  {join} (SELECT * FROM {table} x WHERE x.tenant_id = t.tenant AND {condition} OFFSET 0) {alias}"
        f"{' ON true' if outer else ''}"
    )


#: The literal of an array, as text.
Uuids = NewType("Uuids", str)
Words = NewType("Words", str)
#: JSON, as text.
Json = NewType("Json", str)
Longs = NewType("Longs", str)
Shorts = NewType("Shorts", str)


def uuids(values: Iterable[UUID] | None) -> Uuids | None:
    """Return the text of a uuid array, or None."""
    return None if values is None else Uuids("{" + ",".join(str(value) for value in values) + "}")


def consents_of(fact: FactState) -> Uuids | None:
    """Return the consents of which one must stand; in one order, so that a fact and its payload are equal in it."""
    return None if fact.consent_ids is None else uuids(sorted(fact.consent_ids))


def words(values: Iterable[str]) -> Words:
    """Return the text of a text array of codes (letters, digits, `_ . -` only)."""
    return Words("{" + ",".join(values) + "}")


def longs(values: Iterable[int]) -> Longs:
    """Return the text of an array of whole numbers of 64 bits."""
    return Longs("{" + ",".join(map(str, values)) + "}")


def shorts(values: Iterable[int]) -> Shorts:
    """Return the text of an array of whole numbers of 16 bits."""
    return Shorts("{" + ",".join(map(str, values)) + "}")


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


def _insert(table: str, columns: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(name for name, _ in columns)
    arrays = ", ".join(f"%s::{'text' if kind.endswith('[]') else kind}[]" for _, kind in columns)
    picked = ", ".join(f"w.{name}::{kind}" if kind.endswith("[]") else f"w.{name}" for name, kind in columns)
    return f"INSERT INTO {table} (tenant_id, {names}) SELECT %s::uuid, {picked} FROM unnest({arrays}) AS w ({names})"


def _insert_one(table: str, columns: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(name for name, _ in columns)
    values = ", ".join(f"%s::{f'text::{kind}' if kind.endswith('[]') else kind}" for _, kind in columns)
    return f"INSERT INTO {table} (tenant_id, {names}) VALUES (%s::uuid, {values})"


class Table(Generic[Row]):
    """One table's insert, in the columns that its row names."""

    def __init__(self, name: str, row: type[Row]) -> None:
        self.columns = [(column, _sql_type(kind)) for column, kind in get_type_hints(row).items()]
        self.many = _insert(name, self.columns)
        self.one = _insert_one(name, self.columns)

    def insert(self, tenant: UUID, rows: Sequence[Row]) -> None:
        """Store `rows` in one statement; nothing for none."""
        if len(rows) == 1:
            execute(self.one, [tenant, *rows[0]])
        elif rows:
            execute(self.many, [tenant, *(list(column) for column in zip(*rows, strict=True))])


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
CANDIDATE_SAYINGS = Table("memory_candidatesaying", CandidateSayingRow)


# changing what may change ---------------------------------------------------------------------------------------------

_UPDATE_FACTS = """
UPDATE memory_fact f SET sensitivity = w.sensitivity, basis = w.basis, expires_at = w.expires_at,
  consent_ids = w.consent_ids::uuid[], confirmed = w.confirmed, confidence = w.confidence,
  evidence_count = w.evidence_count, review_at = w.review_at
FROM unnest(%s::uuid[], %s::smallint[], %s::text[], %s::timestamptz[], %s::text[], %s::boolean[], %s::float8[], %s::int[],
  %s::timestamptz[]) AS w (id, sensitivity, basis, expires_at, consent_ids, confirmed, confidence, evidence_count, review_at)
WHERE f.tenant_id = %s::uuid AND f.id = w.id
"""
_UPDATE_PAYLOADS = """
UPDATE memory_payload p SET sensitivity = w.sensitivity, basis = w.basis, expires_at = w.expires_at,
  consent_ids = w.consent_ids::uuid[], key_id = coalesce(w.key_id, p.key_id),
  clear = CASE WHEN w.sealed IS NULL THEN p.clear END, sealed = coalesce(w.sealed, p.sealed)
FROM unnest(%s::uuid[], %s::smallint[], %s::text[], %s::timestamptz[], %s::text[], %s::uuid[], %s::bytea[])
  AS w (id, sensitivity, basis, expires_at, consent_ids, key_id, sealed)
WHERE p.tenant_id = %s::uuid AND p.id = w.id
"""
_RAISE_PAYLOADS = """
UPDATE memory_payload p SET sensitivity = w.sensitivity, key_id = coalesce(w.key_id, p.key_id),
  clear = CASE WHEN w.sealed IS NULL THEN p.clear END, sealed = coalesce(w.sealed, p.sealed)
FROM unnest(%s::uuid[], %s::smallint[], %s::uuid[], %s::bytea[]) AS w (id, sensitivity, key_id, sealed)
WHERE p.tenant_id = %s::uuid AND p.id = w.id
"""
_CLOSE = """
UPDATE memory_belief b SET believed_to = w.at FROM unnest(%s::uuid[], %s::timestamptz[]) AS w (id, at)
WHERE b.tenant_id = %s::uuid AND b.id = w.id AND b.believed_to IS NULL
"""
_DELETE_BELIEFS = "DELETE FROM memory_belief b WHERE b.tenant_id = %s::uuid AND b.id = ANY(%s::uuid[])"
_RETRACT = """
UPDATE memory_evidence e SET retracted_at = w.at, retracted_by = %s::uuid, retraction_reason = %s::text
FROM unnest(%s::uuid[], %s::timestamptz[]) AS w (id, at)
WHERE e.tenant_id = %s::uuid AND e.id = w.id AND e.retracted_at IS NULL
"""
_SETTLE = """
UPDATE memory_fact f SET ended_at = clock_timestamp(), ended_by = w.ended_by
FROM unnest(%s::uuid[], %s::text[]) AS w (id, ended_by)
WHERE f.tenant_id = %s::uuid AND f.id = w.id AND f.ended_at IS NULL
"""


def _run(sql: str, columns: Sequence[Any], rows: int) -> None:
    if rows:
        execute(sql, columns)


def update_facts(tenant: UUID, facts: Sequence[FactState]) -> None:
    """Store what changed of stored facts."""
    _run(
        _UPDATE_FACTS,
        [
            [fact.id for fact in facts],
            [fact.sensitivity for fact in facts],
            [fact.basis for fact in facts],
            [fact.expires_at for fact in facts],
            [consents_of(fact) for fact in facts],
            [fact.confirmed for fact in facts],
            [fact.confidence for fact in facts],
            [fact.evidence_count for fact in facts],
            [fact.review_at for fact in facts],
            tenant,
        ],
        len(facts),
    )


def update_payloads(tenant: UUID, rows: Sequence[tuple[FactState, UUID | None, bytes | None]]) -> None:
    """Let the payloads of facts follow them; (fact, key, sealed) where a clear one had to be sealed, else (fact, None, None)."""
    _run(
        _UPDATE_PAYLOADS,
        [
            [fact.payload_id for fact, _, _ in rows],
            [fact.sensitivity for fact, _, _ in rows],
            [fact.basis for fact, _, _ in rows],
            [fact.expires_at for fact, _, _ in rows],
            [consents_of(fact) for fact, _, _ in rows],
            [key for _, key, _ in rows],
            [sealed for _, _, sealed in rows],
            tenant,
        ],
        len(rows),
    )


def raise_payloads(tenant: UUID, rows: Sequence[tuple[UUID, int, UUID | None, bytes | None]]) -> None:
    """Raise payloads (id, class, key, sealed) to a class; key and sealed only where a clear one had to be sealed."""
    _run(_RAISE_PAYLOADS, [*([row[column] for row in rows] for column in range(4)), tenant], len(rows))


def close_beliefs(tenant: UUID, closed: Sequence[tuple[UUID, datetime]], deleted: Sequence[UUID]) -> None:
    """Stop believing `closed` at their instants; remove what was never believed (opened at the very same instant)."""
    _run(_CLOSE, [[each for each, _ in closed], [at for _, at in closed], tenant], len(closed))
    _run(_DELETE_BELIEFS, [tenant, list(deleted)], len(deleted))


def retract(tenant: UUID, rows: Sequence[tuple[UUID, datetime]], by: UUID, reason: str) -> None:
    """Set the retraction of evidence, once."""
    _run(_RETRACT, [by, reason, [each for each, _ in rows], [at for _, at in rows], tenant], len(rows))


def settle(tenant: UUID, rows: Sequence[tuple[UUID, str]]) -> None:
    """Mark facts as ended, by cause; their content is removed later, elsewhere."""
    _run(_SETTLE, [[each for each, _ in rows], [cause for _, cause in rows], tenant], len(rows))
