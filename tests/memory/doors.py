"""The doors of one tenant as tests use them: each act in a transaction of its own, refusals rolled back."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from memory import recall, remember, rows
from memory.contracts import EpisodeBody, FactBody, SubjectBody, parse
from memory.outcomes import Asked, Denied, Repeat, Retracted, Written
from memory.reconcile import Saying, Stretch, stretches
from policies.definitions import load_definitions
from policies.publishing import publish_attributes, publish_policy
from policies.rules import policy_document
from tenants.actors import Actor, ActorKind, Scope
from tenants.isolation import Role, Rollback, assume, tenant_transaction
from tests.organisation import STARTER, Organisation, new_organisation

#: Long past on any clock, so that no test depends on today.
ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

TEXT = {"type": "string"}
ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "city", "schema": TEXT},
    {"name": "plan", "schema": TEXT, "conflict": "latest"},
    {"name": "grade", "schema": TEXT, "conflict": "review"},
    {"name": "tags", "schema": TEXT, "cardinality": "multi"},
    {"name": "labels", "schema": TEXT, "cardinality": "multi", "conflict": "latest", "sensitivity": "public"},
    {"name": "shade", "schema": TEXT, "sensitivity": "public"},
    {"name": "secret", "schema": TEXT, "sensitivity": "restricted"},
    {"name": "agreed", "schema": TEXT, "basis": "consent"},
    {"name": "lasting", "schema": TEXT, "basis": "indefinite"},
    {"name": "mood", "schema": TEXT, "recurrence": {"count": 3, "days": 10}},
    {"name": "checked", "schema": TEXT, "confirm": "always"},
]


def day(number: float) -> datetime:
    """The instant so many days after the origin."""
    return ORIGIN + timedelta(days=number)


class Doors:
    """A tenant with attributes of every kind, agents of different trust and clearance, and a person."""

    def __init__(self, organisation: Organisation | None = None) -> None:
        self.organisation = organisation or new_organisation()
        self.id = self.organisation.id
        # Not registered: doors take whoever acts as given, and keys and passwords cost time.
        self.low = self.actor(trust=30)
        self.agent = self.actor(trust=50)
        self.high = self.actor(trust=70)
        self.uncleared = self.actor(trust=50, clearance=1)
        self.person = self.actor(kind=ActorKind.PERSON)
        self._turns = 0
        self.publish(*ATTRIBUTES)

    def actor(
        self,
        *,
        kind: ActorKind = ActorKind.AGENT,
        trust: int = 0,
        clearance: int = 3,
        scopes: frozenset[Scope] = frozenset(Scope),
    ) -> Actor:
        """Somebody of this tenant."""
        return Actor(kind=kind, id=uuid4(), tenant=self.id, clearance=clearance, trust=trust, scopes=scopes)

    @property
    def operator(self) -> Actor:
        return Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=self.id)

    def publish(self, *definitions: dict[str, Any]) -> None:
        """Put attributes in force."""
        with tenant_transaction(Role.STAFF, tenant=self.id):
            publish_attributes(self.operator, load_definitions(json.dumps(definitions)), now=datetime.now(UTC))

    def policy(self, **changes: Any) -> None:
        """Put the starter policy in force with some fields changed."""
        document = {**json.loads(STARTER.read_text(encoding="utf-8")), **changes}
        with tenant_transaction(Role.STAFF, tenant=self.id):
            publish_policy(self.operator, policy_document(document), now=datetime.now(UTC))

    # writing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, actor: Actor) -> Iterator[None]:
        """The transaction of a write."""
        with tenant_transaction(Role.WRITER, tenant=self.id, clearance=actor.clearance, actor=actor.id):
            yield

    def body(
        self,
        attribute: str = "city",
        value: Any = None,
        valid_from: float | datetime | None = None,
        valid_to: float | datetime | None = None,
        *,
        subject: str = "mira",
        turn: str | None = None,
        episode: UUID | None = None,
        quote: str | None = None,
        tool: str | None = None,
        consent: str | None = None,
        source: str | None = None,
        retention: dict[str, Any] | None = None,
        **rest: Any,
    ) -> FactBody:
        """A fact's body; days count from the origin, and each saying has a turn of its own unless told."""
        self._turns += 1
        provenance = {
            "turn_id": turn or f"turn-{self._turns}",
            "source_episode": episode,
            "quote": quote,
            "tool_call_id": tool,
            "consent_ref": consent,
            "source": source,
        }
        given = {"value": value, "valid_from": valid_from, "valid_to": valid_to, "retention": retention, **rest}
        for name in ("valid_from", "valid_to"):
            if isinstance(given[name], int | float):
                given[name] = day(given[name])
        return parse(
            FactBody,
            {
                "subject": subject,
                "attribute": attribute,
                "provenance": {name: each for name, each in provenance.items() if each is not None},
                **{name: each for name, each in given.items() if each is not None},
            },
        )

    def say(self, *place: Any, by: Actor | None = None, repeat: Repeat | None = None, **given: Any) -> Any:
        """Write one saying: (attribute, value, valid_from, valid_to)."""
        actor = by or self.agent
        return self.write([self.body(*place, **given)], by=actor, repeat=repeat)[0]

    def end(self, *place: Any, by: Actor | None = None, **given: Any) -> Any:
        """Write an end: (attribute, value or None, valid_from)."""
        return self.say(*place, by=by, ended=True, **given)

    def write(
        self, bodies: Sequence[Any], *, by: Actor | None = None, batch: bool = False, repeat: Repeat | None = None
    ) -> list[Any]:
        """Write sayings; a single one that is refused is rolled back, as a face does."""
        actor = by or self.agent
        outcomes: list[Any] = []
        with self.writing(actor):
            outcomes = list(remember.facts(actor, bodies, batch=batch, repeat=repeat))
            if not batch and isinstance(outcomes[0], Denied):
                raise Rollback
        return outcomes

    def retract(
        self,
        *,
        by: Actor | None = None,
        fact: UUID | None = None,
        evidence: UUID | None = None,
        recorded_at: datetime | None = None,
        reason: str = "other",
    ) -> Any:
        """Take back a fact or a piece of evidence."""
        actor = by or self.agent
        outcome: Any = None
        with self.writing(actor):
            outcome = remember.retract(actor, fact=fact, evidence=evidence, reason=reason, recorded_at=recorded_at)
            if isinstance(outcome, Denied):
                raise Rollback
        return outcome

    def decide(self, candidate: UUID, *, accept: bool = True, by: Actor | None = None) -> Any:
        """Let a person decide on a candidate."""
        actor = by or self.person
        outcome: Any = None
        with self.writing(actor):
            outcome = remember.decide_candidate(actor, candidate, accept=accept, reason="reviewed")
            if isinstance(outcome, Denied):
                raise Rollback
        return outcome

    def episode(self, content: Any = "hello", *, by: Actor | None = None, **given: Any) -> Any:
        """Keep an episode."""
        actor = by or self.agent
        self._turns += 1
        given.setdefault("turn_id", f"turn-{self._turns}")
        given.setdefault("session_id", "session-1")
        given.setdefault("occurred_at", day(0))
        given.setdefault("kind", "message")
        outcome: Any = None
        with self.writing(actor):
            outcome = remember.episode(actor, parse(EpisodeBody, {"content": content, **given}))
            if isinstance(outcome, Denied):
                raise Rollback
        return outcome

    def grant(self, ref: str, subject: str = "mira", purposes: Sequence[str] = ()) -> Any:
        """Record a consent."""
        named = self.name(subject)
        self.sql(
            "INSERT INTO policies_consent (tenant_id, id, subject_id, ref, purposes, granted_at, created_at)"
            " VALUES (%s, %s, %s, %s, %s, now(), now()) RETURNING id",
            *(self.id, uuid4(), named.id, ref, list(purposes)),
            role=Role.WRITER,
        )

    def withdraw(self, ref: str) -> Any:
        """Withdraw a consent, with the locks of its door."""
        with tenant_transaction(Role.WORKER, tenant=self.id, clearance=3):
            found = rows.fetch("SELECT id, subject_id FROM policies_consent WHERE ref = %s FOR UPDATE", [ref])
            rows.fetch("SELECT 1 FROM memory_subject WHERE id = %s FOR UPDATE", [found[0][1]])
            rows.fetch(
                "UPDATE policies_consent SET withdrawn_at = greatest(clock_timestamp(), granted_at)"
                " WHERE id = %s AND withdrawn_at IS NULL RETURNING id",
                [found[0][0]],
            )
            return found[0][0]

    def name(self, key: str, *aliases: str) -> Any:
        """Name a subject."""
        with self.writing(self.agent):
            return remember.subject(self.agent, parse(SubjectBody, {"key": key, "aliases": list(aliases)}))

    # reading ------------------------------------------------------------------------------------------------------

    def page(
        self, attribute: str | None = "city", *, subject: str = "mira", by: Actor | None = None, **when: Any
    ) -> Any:
        """The read door's answer."""
        actor = by or self.agent
        with self.reading(actor):
            return recall.facts(actor, subject=subject, attribute=attribute, **when)

    @contextmanager
    def reading(self, actor: Actor | None = None) -> Iterator[None]:
        """The transaction of a read."""
        actor = actor or self.agent
        with tenant_transaction(Role.AGENT, tenant=self.id, clearance=actor.clearance, actor=actor.id, durable=False):
            yield

    def values(
        self,
        attribute: str = "city",
        at: float | datetime | None = None,
        known: datetime | None = None,
        *,
        subject: str = "mira",
        by: Actor | None = None,
    ) -> list[Any]:
        """The values that hold, sorted."""
        valid_at = day(at) if isinstance(at, int | float) else at
        page = self.page(attribute, subject=subject, by=by, valid_at=valid_at, known_at=known)
        return sorted(each["value"] for each in page.results)

    def value(self, *place: Any, **given: Any) -> Any:
        """The one value that holds, or None."""
        found = self.values(*place, **given)
        assert len(found) <= 1
        return found[0] if found else None

    def fact(self, fact: UUID, *, by: Actor | None = None) -> dict[str, Any]:
        """One fact by its id."""
        actor = by or self.agent
        with self.reading(actor):
            return recall.fact(actor, fact)

    def sql(self, statement: str, *parameters: Any, role: Role | None = None) -> list[tuple[Any, ...]]:
        """Rows of this tenant, expired and hidden ones included, under the role that may read them."""
        seen_by_worker = (
            any(f"memory_{table}" in statement for table in ("receipt", "outboxentry")) or "audit" in statement
        )
        role = role or (Role.WORKER if seen_by_worker else Role.WRITER)
        with tenant_transaction(role, tenant=self.id, clearance=3):
            return rows.fetch(statement, list(parameters))

    def expire(self, fact: UUID) -> None:
        """Let a fact's life be over; no clock is moved."""
        expired = self.sql(
            "UPDATE memory_fact SET expires_at = clock_timestamp() - interval '1 microsecond',"
            " basis = CASE basis WHEN 'indefinite' THEN 'contract' ELSE basis END WHERE id = %s"
            " RETURNING payload_id, expires_at, basis",
            fact,
            role=Role.WRITER,
        )
        payload, expires_at, basis = expired[0]
        self.sql(
            "UPDATE memory_payload SET expires_at = %s, basis = %s WHERE id = %s RETURNING id",
            *(expires_at, basis, payload),
            role=Role.WRITER,
        )

    def counts(self) -> dict[str, int]:
        """How many rows each table of the ledger has for this tenant."""
        tables = [
            "tenants_auditevent",
            *(f"memory_{name}" for name in ("payload", "subject", "subjectidentifier", "episode", "factkey", "fact")),
            *(
                f"memory_{name}"
                for name in ("evidence", "belief", "candidate", "candidatesaying", "receipt", "outboxentry")
            ),
        ]
        return {table: self.sql(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


# what must hold, by SQL -------------------------------------------------------------------------------------------------


def assert_sound(doors: Doors) -> None:
    """Fail unless the tenant's ledger obeys what section 2 and 5.1 of the design promise, as its tables tell it."""
    with tenant_transaction(Role.WRITER, tenant=doors.id, clearance=3):
        for name, statement in _BROKEN.items():
            broken = rows.fetch(statement, [])
            assert not broken, (name, broken[:3])
        chains: dict[int, list[Saying]] = {}
        ends: dict[UUID, list[Saying]] = {}
        keys: dict[int, UUID] = {}
        for key, chain, multi, evidence, fact, is_end, start, until, rank, act in rows.fetch(_SAYINGS, []):
            saying = Saying(evidence, None if is_end else fact, start, until, rank, act)
            if multi and fact is None:
                ends.setdefault(key, []).append(saying)
            else:
                chains.setdefault(chain, []).append(saying)
                keys[chain] = key
        held: dict[int, list[Stretch]] = {}
        for chain, evidence, fact, start, until in rows.fetch(_PRESENT, []):
            held.setdefault(chain, []).append(Stretch(evidence, fact, start, until))
        wanted = {chain: stretches([*sayings, *ends.get(keys[chain], [])]) for chain, sayings in chains.items()}
        for chain in held.keys() | wanted.keys():
            if chain in wanted:
                assert sorted(held.get(chain, []), key=_start) == wanted[chain]
            else:
                assert all(stretch.value is None for stretch in held[chain])
        assume(Role.FRONT, tenant=doors.id)
        assert rows.fetch("SELECT bad FROM audit_first_bad(%s, 1, 1000000)", [doors.id]) == [(None,)]


def _start(stretch: Stretch) -> datetime:
    return stretch.valid_from


_SAYINGS = """
SELECT e.key_id, CASE WHEN a.cardinality = 'multi' THEN f.chain_no ELSE k.chain_no END, a.cardinality = 'multi', e.id, e.fact_id,
  e.is_end, e.valid_from, e.stated_to, e.rank, e.act_no
FROM memory_evidence e JOIN memory_factkey k ON k.id = e.key_id JOIN policies_attribute a ON a.id = k.attribute_id
  LEFT JOIN memory_fact f ON f.id = e.fact_id WHERE e.retracted_at IS NULL"""
_PRESENT = "SELECT chain_no, evidence_id, fact_id, valid_from, valid_to FROM memory_belief WHERE believed_to IS NULL"
_STANDING = "e.fact_id = f.id AND e.retracted_at IS NULL AND NOT e.is_end"
_BROKEN = {
    "two values at one instant": """
SELECT a.id, b.id FROM memory_belief a JOIN memory_belief b ON a.chain_no = b.chain_no AND a.id < b.id
  AND tstzrange(a.valid_from, a.valid_to) && tstzrange(b.valid_from, b.valid_to)
  AND tstzrange(a.believed_from, a.believed_to) && tstzrange(b.believed_from, b.believed_to)""",
    "a fact whose class, expiry or count does not follow its evidence": f"""
SELECT f.id, f.sensitivity, s.class, f.expires_at, s.expires_at, f.evidence_count, s.n, f.confirmed, s.confirmed
FROM memory_fact f CROSS JOIN LATERAL (
  SELECT max(e.sensitivity) AS class, count(*) AS n, bool_or(e.confirmed) AS confirmed,
    CASE WHEN bool_or(e.expires_at IS NULL) THEN NULL ELSE max(e.expires_at) END AS expires_at
  FROM memory_evidence e WHERE {_STANDING}) s
WHERE f.ended_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp()) AND (f.evidence_count <> s.n
  OR s.n > 0 AND (f.sensitivity, f.expires_at, f.confirmed) IS DISTINCT FROM (s.class::smallint, s.expires_at, s.confirmed))""",
    "a fact whose consents do not follow its evidence": f"""
SELECT f.id FROM memory_fact f CROSS JOIN LATERAL (
  SELECT count(*) AS n, bool_or(e.consent_id IS NULL) AS free, array_agg(DISTINCT e.consent_id ORDER BY e.consent_id) AS ids
  FROM memory_evidence e WHERE {_STANDING}) s
WHERE f.ended_at IS NULL AND s.n > 0 AND (SELECT array_agg(c ORDER BY c) FROM unnest(f.consent_ids) c)
  IS DISTINCT FROM CASE WHEN s.free THEN NULL ELSE s.ids END""",
    "a payload that is not governed as its fact": """
SELECT f.id FROM memory_fact f JOIN memory_payload p ON p.id = f.payload_id
WHERE f.ended_at IS NULL AND (f.sensitivity, f.basis, f.expires_at, f.consent_ids)
  IS DISTINCT FROM (p.sensitivity, p.basis, p.expires_at, p.consent_ids)""",
    "a quote below the class of its fact": """
SELECT e.id FROM memory_evidence e JOIN memory_fact f ON f.id = e.fact_id JOIN memory_payload p ON p.id = e.quote_id
WHERE f.ended_at IS NULL AND f.evidence_count > 0 AND e.retracted_at IS NULL AND p.sensitivity < f.sensitivity""",
    "a key behind its acts": """
SELECT k.id FROM memory_factkey k JOIN memory_evidence e ON e.key_id = k.id
WHERE k.act_no < e.act_no OR k.newest_at < e.recorded_at OR k.newest_at < e.retracted_at""",
    "a belief of another chain than its fact": """
SELECT b.id FROM memory_belief b JOIN memory_fact f ON f.id = b.fact_id WHERE b.chain_no <> f.chain_no OR b.key_id <> f.key_id""",
    "evidence twice in one key": """
SELECT key_id, act_no FROM memory_evidence GROUP BY 1, 2 HAVING count(*) > 1""",
}

__all__ = ["MICROSECOND", "ORIGIN", "Asked", "Denied", "Doors", "Retracted", "Written", "assert_sound", "day"]
