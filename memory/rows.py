"""The SQL of the write door: what it reads under its locks and what it stores, set by set.

Joins are written in execution order, parameters are arrays with explicit types, so that one prepared statement serves
two rows and a thousand; a single row has a statement of its own, since arrays of one cost the client more than the rest
of its insert. Everything runs under the role of the open tenant transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from memory.ledger import BeliefState, Chain, FactState, KeyState
from memory.reconcile import Saying


@contextmanager
def pipelined() -> Iterator[None]:
    """Send the statements of the block without waiting for each answer; an error surfaces at the end of the block."""
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


def fetch(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


_LOCK_KEYS = """
INSERT INTO memory_factkey AS k (tenant_id, id, subject_id, attribute_id, act_no, newest_at)
SELECT %s::uuid, w.id, w.subject_id, w.attribute_id, w.acts, CASE WHEN w.imports THEN NULL ELSE clock_timestamp() END
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::int[], %s::boolean[]) AS w (id, subject_id, attribute_id, acts, imports)
ORDER BY w.subject_id, w.attribute_id
ON CONFLICT (tenant_id, subject_id, attribute_id) DO UPDATE SET
  act_no = k.act_no + excluded.act_no,
  newest_at = CASE WHEN excluded.newest_at IS NULL THEN k.newest_at
    ELSE greatest(clock_timestamp(), k.newest_at + excluded.act_no * interval '1 microsecond') END
RETURNING k.id, k.subject_id, k.attribute_id, k.chain_no, k.act_no, k.newest_at, xmax = 0, clock_timestamp()
"""


def lock_keys(
    tenant: UUID, wanted: Sequence[tuple[UUID, UUID, UUID, int, bool]]
) -> list[tuple[UUID, UUID, UUID, int, int, datetime | None, bool, datetime]]:
    """Create and lock fact keys in the order of (subject, attribute), reserving act numbers on each.

    `wanted` is (id if new, subject, attribute, number of acts, whether any is an import). Returns (id, subject,
    attribute, chain_no, last reserved act_no, newest_at, fresh, clock). Everything that is read of a key is read in
    a later statement: the snapshot of this one may be older than the lock.
    """
    columns = list(zip(*wanted, strict=True))
    return fetch(_LOCK_KEYS, [tenant, *map(list, columns)])  # type: ignore[return-value]


_FACT = (
    "f.key_id, f.id, f.chain_no, f.value_digest, f.payload_id, f.sensitivity, f.basis, f.expires_at, f.consent_ids,"
    " f.confirmed, f.confidence, f.evidence_count, f.review_at, p.clear,"
    " f.expires_at <= clock_timestamp(), f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids)"
)
_LOAD_FACTS = f"""
WITH w AS MATERIALIZED (SELECT * FROM unnest(%(keys)s::uuid[], %(digests)s::bytea[]) AS u (key_id, digest))
SELECT {_FACT}
FROM w CROSS JOIN LATERAL (
    SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.value_digest = w.digest
      AND f.ended_at IS NULL) f
  CROSS JOIN LATERAL (SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.id = f.payload_id
    OFFSET 0) p
UNION
SELECT {_FACT}
FROM (SELECT DISTINCT key_id FROM w) w CROSS JOIN LATERAL (
    (SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.ended_at IS NULL
      AND f.expires_at <= clock_timestamp() LIMIT 200)
    UNION ALL
    (SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.ended_at IS NULL
      AND f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids) LIMIT 200)) f
  CROSS JOIN LATERAL (SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.id = f.payload_id
    OFFSET 0) p
"""


def load_facts(tenant: UUID, keys: dict[UUID, KeyState], wanted: Sequence[tuple[UUID, bytes]]) -> None:
    """Load the facts of `wanted` (key, digest) into `keys`, and mark the overdue ones of the same keys."""
    rows = fetch(
        _LOAD_FACTS,
        {"tenant": tenant, "keys": [key for key, _ in wanted], "digests": [digest for _, digest in wanted]},  # type: ignore[arg-type]
    )
    for row in rows:
        key = keys[row[0]]
        if row[14] or row[15]:
            key.overdue.append((row[1], "expired" if row[14] else "consent_withdrawn"))
            continue
        digest = bytes(row[3])
        key.facts[digest] = FactState(
            id=row[1],
            chain_no=row[2],
            digest=digest,
            payload_id=row[4],
            sensitivity=row[5],
            basis=row[6],
            expires_at=row[7],
            consent_ids=None if row[8] is None else frozenset(row[8]),
            confirmed=row[9],
            confidence=row[10],
            evidence_count=row[11],
            review_at=row[12],
            clear=row[13],
        )


_LOAD_ENDS = """
SELECT w.key_id, b.id, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from, e.valid_from, f.sensitivity
FROM unnest(%s::uuid[]) AS w (key_id)
  LEFT JOIN LATERAL (SELECT * FROM memory_belief b WHERE b.tenant_id = %s::uuid AND b.key_id = w.key_id
    AND b.believed_to IS NULL ORDER BY coalesce(b.valid_to, 'infinity'::timestamptz) DESC, b.valid_from DESC LIMIT 1) b ON true
  LEFT JOIN LATERAL (SELECT e.valid_from FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.key_id = w.key_id
    AND e.retracted_at IS NULL ORDER BY e.valid_from DESC LIMIT 1) e ON true
  LEFT JOIN LATERAL (SELECT f.sensitivity FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.key_id = w.key_id
    AND f.ended_at IS NULL ORDER BY f.sensitivity DESC LIMIT 1) f ON true
"""


def load_last(tenant: UUID, keys: Iterable[KeyState]) -> None:
    """Load of each key the last believed stretch of its chain, its newest valid_from and its highest class."""
    by_id = {key.id: key for key in keys}
    rows = fetch(_LOAD_ENDS, [list(by_id), tenant, tenant, tenant])
    for key_id, belief, evidence, fact, valid_from, valid_to, believed_from, newest, sensitivity in rows:
        key = by_id[key_id]
        key.sensitivity = max(key.sensitivity, sensitivity or 0)
        if key.multi:
            continue
        chain = Chain(key.chain_no, newest=newest)
        if newest is None:
            chain.sayings = {}
        if belief is not None:
            chain.held[belief] = BeliefState(belief, key.chain_no, evidence, fact, valid_from, valid_to, believed_from)
        key.chains[key.chain_no] = chain


_LOAD_SAYINGS = """
SELECT e.key_id, e.id, e.fact_id, e.is_end, e.valid_from, e.stated_to, e.rank, e.act_no, f.chain_no
FROM memory_evidence e LEFT JOIN memory_fact f ON f.tenant_id = e.tenant_id AND f.id = e.fact_id
WHERE e.tenant_id = %s::uuid AND e.key_id = ANY(%s::uuid[]) AND e.retracted_at IS NULL
"""
_LOAD_BELIEFS = """
SELECT b.key_id, b.id, b.chain_no, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from
FROM memory_belief b
WHERE b.tenant_id = %s::uuid AND b.key_id = ANY(%s::uuid[]) AND b.believed_to IS NULL
"""


def load_chains(tenant: UUID, keys: Iterable[KeyState]) -> None:
    """Load all standing evidence and all present beliefs of `keys`, replacing what `load_last` brought.

    An end that names no value belongs to every chain of a multi-valued key.
    """
    by_id = {key.id: key for key in keys}
    ends: dict[UUID, list[Saying]] = {key_id: [] for key_id in by_id}
    for key in by_id.values():
        key.chains = {} if key.multi else {key.chain_no: Chain(key.chain_no, sayings={})}
    for key_id, evidence, fact, is_end, valid_from, stated_to, rank, act_no, chain_no in fetch(
        _LOAD_SAYINGS, [tenant, list(by_id)]
    ):
        key = by_id[key_id]
        saying = Saying(evidence, None if is_end else fact, valid_from, stated_to, rank, act_no)
        if key.multi and fact is None:
            ends[key_id].append(saying)
        else:
            _stand(key.chain(chain_no if key.multi else key.chain_no), saying)
    for key_id, belief, chain_no, evidence, fact, valid_from, valid_to, believed_from in fetch(
        _LOAD_BELIEFS, [tenant, list(by_id)]
    ):
        by_id[key_id].chain(chain_no).held[belief] = BeliefState(
            belief, chain_no, evidence, fact, valid_from, valid_to, believed_from
        )
    for key_id, sayings in ends.items():
        by_id[key_id].ends = sayings
        for chain in by_id[key_id].chains.values():
            for saying in sayings:
                _stand(chain, saying)


def _stand(chain: Chain, saying: Saying) -> None:
    assert chain.sayings is not None
    chain.sayings[saying.id] = saying
    if chain.newest is None or saying.valid_from > chain.newest:
        chain.newest = saying.valid_from


def _insert(table: str, columns: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(name for name, _ in columns)
    arrays = ", ".join(f"%s::{'text' if kind.endswith('[]') else kind}[]" for _, kind in columns)
    picked = ", ".join(f"w.{name}::{kind}" if kind.endswith("[]") else f"w.{name}" for name, kind in columns)
    return f"INSERT INTO {table} (tenant_id, {names}) SELECT %s::uuid, {picked} FROM unnest({arrays}) AS w ({names})"


def _insert_one(table: str, columns: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(name for name, _ in columns)
    values = ", ".join(f"%s::{f'text::{kind}' if kind.endswith('[]') else kind}" for _, kind in columns)
    return f"INSERT INTO {table} (tenant_id, {names}) VALUES (%s::uuid, {values})"


class Table:
    """One table's insert: rows are tuples in the order of `columns`; an array column takes its literal as text."""

    def __init__(self, name: str, *columns: str) -> None:
        self.columns = [tuple(column.split(" ", 1)) for column in columns]
        self.many = _insert(name, self.columns)  # type: ignore[arg-type]
        self.one = _insert_one(name, self.columns)  # type: ignore[arg-type]

    def insert(self, tenant: UUID, rows: Sequence[tuple[Any, ...]]) -> None:
        """Store `rows` in one statement; nothing for none."""
        if not rows:
            return
        with connection.cursor() as cursor:
            if len(rows) == 1:
                cursor.execute(self.one, [tenant, *rows[0]])
            else:
                cursor.execute(self.many, [tenant, *(list(column) for column in zip(*rows, strict=True))])


def uuids(values: Iterable[UUID] | None) -> str | None:
    """Return the text of a uuid array, or None."""
    return None if values is None else "{" + ",".join(str(value) for value in values) + "}"


def words(values: Iterable[str]) -> str:
    """Return the text of a text array of codes (letters, digits, `_ . -` only)."""
    return "{" + ",".join(values) + "}"


SUBJECT_KEYS = Table("tenants_subjectkey", "id uuid", "wrapped bytea", "version int", "created_at timestamptz")
PAYLOADS = Table(
    "memory_payload",
    "id uuid",
    "purpose text",
    "key_id uuid",
    "clear text",
    "sealed bytea",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
    "consent_ids uuid[]",
    "written_at timestamptz",
)
SUBJECTS = Table("memory_subject", "id uuid", "kind text", "payload_id uuid", "key_id uuid", "created_at timestamptz")
IDENTIFIERS = Table(
    "memory_subjectidentifier",
    "id uuid",
    "subject_id uuid",
    "digest bytea",
    "payload_id uuid",
    "is_key boolean",
    "created_at timestamptz",
)
FACTS = Table(
    "memory_fact",
    "id uuid",
    "key_id uuid",
    "subject_id uuid",
    "chain_no bigint",
    "value_digest bytea",
    "payload_id uuid",
    "attribute_version_id uuid",
    "policy_version_id uuid",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
    "consent_ids uuid[]",
    "confirmed boolean",
    "confidence float8",
    "evidence_count int",
    "review_at timestamptz",
    "created_at timestamptz",
)
EVIDENCE = Table(
    "memory_evidence",
    "id uuid",
    "key_id uuid",
    "fact_id uuid",
    "is_end boolean",
    "valid_from timestamptz",
    "stated_to timestamptz",
    "recorded_at timestamptz",
    "act_no bigint",
    "rank int",
    "confirmed boolean",
    "confidence float8",
    "imported boolean",
    "source text",
    "turn_id text",
    "tool_call_id text",
    "consent_id uuid",
    "writer_kind text",
    "writer_id uuid",
    "trust smallint",
    "written_at timestamptz",
    "episode_id uuid",
    "quote_id uuid",
    "extractor text",
    "attribute_version_id uuid",
    "policy_version_id uuid",
    "corrects_id uuid",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
)
BELIEFS = Table(
    "memory_belief",
    "id uuid",
    "key_id uuid",
    "chain_no bigint",
    "evidence_id uuid",
    "fact_id uuid",
    "valid_from timestamptz",
    "valid_to timestamptz",
    "believed_from timestamptz",
    "believed_to timestamptz",
)
RECEIPTS = Table(
    "memory_receipt",
    "id uuid",
    "act text",
    "actor_kind text",
    "actor_id uuid",
    "at timestamptz",
    "subject_ids uuid[]",
    "attribute_ids uuid[]",
    "fact_ids uuid[]",
    "policy_version_id uuid",
    "verdict text",
    "reasons text[]",
)
OUTBOX = Table(
    "memory_outboxentry", "id uuid", "topic text", "target_id uuid", "due_at timestamptz", "created_at timestamptz"
)
EPISODES = Table(
    "memory_episode",
    "id uuid",
    "kind text",
    "role text",
    "subject_id uuid",
    "session_id text",
    "turn_id text",
    "tool_call_id text",
    "occurred_at timestamptz",
    "recorded_at timestamptz",
    "writer_kind text",
    "writer_id uuid",
    "consent_id uuid",
    "payload_id uuid",
    "content_digest bytea",
    "policy_version_id uuid",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
)
CANDIDATES = Table(
    "memory_candidate",
    "id uuid",
    "subject_id uuid",
    "attribute_id uuid",
    "attribute_version_id uuid",
    "policy_version_id uuid",
    "act text",
    "target_id uuid",
    "state text",
    "reasons text[]",
    "rule text",
    "confirm_by text",
    "value_digest bytea",
    "payload_id uuid",
    "is_end boolean",
    "writer_kind text",
    "writer_id uuid",
    "created_at timestamptz",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
)
CANDIDATE_SAYINGS = Table(
    "memory_candidatesaying",
    "id uuid",
    "candidate_id uuid",
    "valid_from timestamptz",
    "stated_to timestamptz",
    "confidence float8",
    "source text",
    "turn_id text",
    "tool_call_id text",
    "consent_id uuid",
    "episode_id uuid",
    "quote_id uuid",
    "sensitivity smallint",
    "basis text",
    "expires_at timestamptz",
    "writer_kind text",
    "writer_id uuid",
    "trust smallint",
    "said_at timestamptz",
)

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
_NEWEST = """
UPDATE memory_factkey k SET newest_at = w.newest_at, act_no = w.act_no
FROM unnest(%s::uuid[], %s::timestamptz[], %s::bigint[]) AS w (id, newest_at, act_no)
WHERE k.tenant_id = %s::uuid AND k.id = w.id
"""

_NEWEST_ACT = """
UPDATE memory_factkey k SET newest_at = (
  SELECT max(greatest(e.recorded_at, e.retracted_at)) FROM memory_evidence e WHERE e.tenant_id = k.tenant_id AND e.key_id = k.id)
FROM unnest(%s::uuid[]) AS w (id)
WHERE k.tenant_id = %s::uuid AND k.id = w.id
"""


def _run(sql: str, columns: Sequence[Any], rows: int) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(sql, columns)


def _consents(fact: FactState) -> str | None:
    # In one order, so that a fact and its payload are equal in it.
    return None if fact.consent_ids is None else uuids(sorted(fact.consent_ids))


def update_facts(tenant: UUID, facts: Sequence[FactState]) -> None:
    """Store what changed of stored facts."""
    _run(
        _UPDATE_FACTS,
        [
            [fact.id for fact in facts],
            [fact.sensitivity for fact in facts],
            [fact.basis for fact in facts],
            [fact.expires_at for fact in facts],
            [_consents(fact) for fact in facts],
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
            [_consents(fact) for fact, _, _ in rows],
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


def move_keys(tenant: UUID, keys: Sequence[KeyState]) -> None:
    """Store the newest act of keys that moved otherwise than `lock_keys` foresaw."""
    _run(
        _NEWEST,
        [[key.id for key in keys], [key.newest_at for key in keys], [key.act_no for key in keys], tenant],
        len(keys),
    )


def move_back(tenant: UUID, keys: Sequence[KeyState]) -> None:
    """Let the newest instant of keys be that of their newest act, where `lock_keys` foresaw more acts than there were."""
    _run(_NEWEST_ACT, [[key.id for key in keys], tenant], len(keys))
