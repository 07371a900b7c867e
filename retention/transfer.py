"""A tenant's memory as lines of JSON: taken out, and brought in by the write door.

What may be read goes with its content: subjects, consents, episodes, evidence with its times, retractions. What has ended
goes as a tombstone, without content. Suppressions and holds travel along, and are in force before anything else is
brought in. What comes in is judged by the policy of its new tenant, like every write: what has to wait for a person waits,
what is refused is told by line and code. A proposal that waits for a person or for recurrence waits for a person there as
well, whatever the policy says. A subject's restriction of processing is in force there before anything about them comes in,
a fact's and an episode's once all is in. Decided proposals, procedures, receipts and derived texts stay behind, counted in
the file with the reason (`left_out`).

Each key's acts come in the order in which they happened, so that every answer is the same as of any instant, known at any
instant.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

from django.db import connection
from psycopg import IsolationLevel

from memory import consent, remember, rows, suppression
from memory.contracts import ConsentBody, EpisodeBody, FactBody, SubjectBody, parse
from memory.outcomes import Asked, Denied, EpisodeKept, Repeat, Retracted, Written
from memory.subjects import opened
from policies.catalogue import catalogue
from policies.vocabulary import Outcome, Sensitivity
from retention import matters, restricting
from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, Malformed, Problem
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.models import Agent
from tenants.registry import OPERATOR, create_agent
from tenants.secrets import keyring

FORMAT = 1
_PAGE = 200
#: Sayings that one transaction brings in.
BATCH = 200
_AGENT = "import"
_ROUTE = "import_memory"


@dataclass(slots=True)
class Brought:
    """What an import came to. `refused` are (line, code); `left` counts lines that cannot be carried over, by why."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[int, str]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)


# taking out -----------------------------------------------------------------------------------------------------------

_ALIVE = "p.ended_at IS NULL AND p.redaction_state = 'none' AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)"
_KEPT = "(x.expires_at IS NULL OR x.expires_at > statement_timestamp())"
_SUBJECTS = f"""
SELECT s.id, s.kind, s.restricted, i.is_key, p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version
FROM (SELECT * FROM memory_subject x WHERE x.tenant_id = %(tenant)s::uuid AND x.id > %(after)s::uuid ORDER BY x.id LIMIT %(limit)s) s
  JOIN memory_subjectidentifier i ON i.tenant_id = s.tenant_id AND i.subject_id = s.id
  JOIN memory_payload p ON p.tenant_id = i.tenant_id AND p.id = i.payload_id AND {_ALIVE}
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
ORDER BY s.id, i.is_key DESC, i.id
"""
_CONSENTS = """
SELECT c.subject_id, c.ref, c.purposes, c.granted_at, c.withdrawn_at FROM policies_consent c
WHERE c.tenant_id = %s::uuid ORDER BY c.granted_at, c.id
"""
_EPISODES = f"""
SELECT x.id, x.kind, x.role, x.subject_id, x.session_id, x.turn_id, x.tool_call_id, x.occurred_at, x.recorded_at,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = x.tenant_id AND c.id = x.consent_id), x.contract_ref, x.sensitivity,
  x.basis, x.expires_at,
  {_ALIVE} AND {_KEPT} AND x.redaction_state = 'none' AND (x.consent_id IS NULL OR consent_stands(ARRAY[x.consent_id])),
  p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version, x.redaction_state
FROM memory_episode x
  LEFT JOIN memory_payload p ON p.tenant_id = x.tenant_id AND p.id = x.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE x.tenant_id = %(tenant)s::uuid AND x.id > %(after)s::uuid ORDER BY x.id LIMIT %(limit)s
"""
_KEYS = """
SELECT k.id, k.subject_id, a.name, a.cardinality = 'multi' FROM memory_factkey k
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
WHERE k.tenant_id = %(tenant)s::uuid AND k.id > %(after)s::uuid ORDER BY k.id LIMIT %(limit)s
"""
_EVIDENCE = f"""
SELECT e.id, e.is_end, e.valid_from, e.stated_to, e.recorded_at, e.confirmed, e.confidence, e.source, e.turn_id, e.tool_call_id,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id), e.session_id, e.contract_ref,
  e.episode_id, e.trust, e.corrects_id, e.retracted_at, e.retraction_reason, e.sensitivity, e.basis, e.expires_at,
  e.writer_kind, e.writer_id, e.written_at, x.id, coalesce(x.ended_by, x.redaction_state),
  {_ALIVE} AND {_KEPT} AND x.ended_at IS NULL AND x.redaction_state = 'none'
    AND (x.consent_ids IS NULL OR consent_stands(x.consent_ids)) AND (e.expires_at IS NULL OR e.expires_at > statement_timestamp()),
  p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version,
  q.id, q.purpose, q.clear, q.sealed, qk.wrapped, qk.version
FROM memory_evidence e
  LEFT JOIN memory_fact x ON x.tenant_id = e.tenant_id AND x.id = e.fact_id
  LEFT JOIN memory_payload p ON p.tenant_id = x.tenant_id AND p.id = x.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
  LEFT JOIN memory_payload q ON q.tenant_id = e.tenant_id AND q.id = e.quote_id AND q.ended_at IS NULL AND q.redaction_state = 'none'
  LEFT JOIN tenants_subjectkey qk ON qk.tenant_id = q.tenant_id AND qk.id = q.key_id
WHERE e.tenant_id = %(tenant)s::uuid AND e.key_id = %(key)s::uuid ORDER BY e.recorded_at, e.act_no, e.id
"""
# What waits and may be read: each saying of it in the order in which it was said.
_PROPOSALS = f"""
SELECT c.id, c.subject_id, a.name, c.is_end, c.state, c.target_id, s.valid_from, s.stated_to, s.confidence, s.source, s.turn_id,
  s.tool_call_id, (SELECT n.ref FROM policies_consent n WHERE n.tenant_id = s.tenant_id AND n.id = s.consent_id), s.session_id,
  s.contract_ref, s.episode_id, s.sensitivity, s.basis, s.expires_at, s.trust, s.said_at,
  p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version, q.id, q.purpose, q.clear, q.sealed, qk.wrapped, qk.version
FROM (SELECT * FROM memory_candidate x WHERE x.tenant_id = %(tenant)s::uuid AND x.id > %(after)s::uuid AND {{waits}}
    ORDER BY x.id LIMIT %(limit)s) c
  JOIN policies_attribute a ON a.tenant_id = c.tenant_id AND a.id = c.attribute_id
  JOIN memory_candidatesaying s ON s.tenant_id = c.tenant_id AND s.candidate_id = c.id
    AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
    AND (s.consent_id IS NULL OR consent_stands(ARRAY[s.consent_id]))
  LEFT JOIN memory_payload p ON p.tenant_id = c.tenant_id AND p.id = c.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
  LEFT JOIN memory_payload q ON q.tenant_id = s.tenant_id AND q.id = s.quote_id AND q.ended_at IS NULL AND q.redaction_state = 'none'
  LEFT JOIN tenants_subjectkey qk ON qk.tenant_id = q.tenant_id AND qk.id = q.key_id
WHERE c.payload_id IS NULL OR {_ALIVE}
ORDER BY c.id, s.id
"""
_WAITS = (
    "x.state IN ('asked', 'buffered') AND x.redaction_state = 'none' AND x.act IN ('fact', 'correction')"
    " AND x.attribute_id IS NOT NULL AND (x.expires_at IS NULL OR x.expires_at > statement_timestamp())"
)
_PROPOSALS = _PROPOSALS.format(waits=_WAITS)
_RESTRICTED = """
SELECT r.id, r.target_kind, r.target_id, r.ground FROM retention_restriction r
WHERE r.tenant_id = %s::uuid AND r.state = 'active' ORDER BY r.id
"""
_SUPPRESSIONS = """
SELECT s.key, s.digest, s.decided_at, s.cause, s.target_kind, s.target_id,
  (SELECT a.name FROM policies_attribute a WHERE a.tenant_id = s.tenant_id AND a.id = s.attribute_id)
FROM memory_suppression s WHERE s.tenant_id = %s::uuid AND s.lifted_at IS NULL ORDER BY s.id
"""
_HOLDS = """
SELECT h.id, m.reference, m.reason, s.record_kind, s.record_id, s.subject_id,
  (SELECT a.name FROM policies_attribute a WHERE a.tenant_id = s.tenant_id AND a.id = s.attribute_id),
  s.session_id, s.recorded_from, s.recorded_until
FROM retention_hold h JOIN retention_matter m ON m.tenant_id = h.tenant_id AND m.id = h.matter_id
  JOIN retention_holdscope s ON s.tenant_id = h.tenant_id AND s.hold_id = h.id
WHERE h.tenant_id = %s::uuid AND h.state = 'active' ORDER BY h.id, s.id
"""


# What stays behind, counted: each kind of row that is memory or decides about it, and that no line above carries.
_LEFT_OUT = f"""
SELECT 'subjects_without_names', count(*) FROM memory_subject x WHERE x.tenant_id = %(tenant)s::uuid AND NOT EXISTS (
  SELECT FROM memory_subjectidentifier i JOIN memory_payload p ON p.tenant_id = i.tenant_id AND p.id = i.payload_id AND p.ended_at IS NULL
    AND p.redaction_state = 'none' WHERE i.tenant_id = x.tenant_id AND i.subject_id = x.id)
UNION ALL SELECT 'evidence_of_such_subjects', count(*) FROM memory_evidence v
  JOIN memory_factkey k ON k.tenant_id = v.tenant_id AND k.id = v.key_id
  WHERE v.tenant_id = %(tenant)s::uuid AND NOT EXISTS (
    SELECT FROM memory_subjectidentifier i JOIN memory_payload p ON p.tenant_id = i.tenant_id AND p.id = i.payload_id
      AND p.ended_at IS NULL AND p.redaction_state = 'none' WHERE i.tenant_id = v.tenant_id AND i.subject_id = k.subject_id)
UNION ALL SELECT 'decided_proposals', count(*) FROM memory_candidate x
  WHERE x.tenant_id = %(tenant)s::uuid AND x.state NOT IN ('asked', 'buffered')
UNION ALL SELECT 'proposals_of_no_saying', count(*) FROM memory_candidate x
  WHERE x.tenant_id = %(tenant)s::uuid AND x.state IN ('asked', 'buffered') AND NOT ({_WAITS})
UNION ALL SELECT 'procedure_versions', count(*) FROM memory_procedureversion x WHERE x.tenant_id = %(tenant)s::uuid
UNION ALL SELECT 'derived_texts', count(*) FROM memory_derived x WHERE x.tenant_id = %(tenant)s::uuid AND x.payload_id IS NOT NULL
UNION ALL SELECT 'receipts', count(*) FROM memory_receipt x WHERE x.tenant_id = %(tenant)s::uuid
"""


#: Why it stays behind, as codes.
WHY_LEFT_OUT = {
    "subjects_without_names": "nobodys_any_more",
    "evidence_of_such_subjects": "nobodys_any_more",
    "decided_proposals": "what_came_of_it_travels",
    "proposals_of_no_saying": "decided_where_it_was_asked",
    "procedure_versions": "approved_by_two_of_its_tenant",
    "derived_texts": "derived_anew",
    "receipts": "record_of_its_tenant",
}


def write_out(actor: Actor, out: TextIO, *, now: datetime) -> Counter[str]:
    """Write the memory of the actor's tenant to `out`, a line each; return how many of which kind. Audited.

    With the operator's authority: every class is in it. Everything is as it stood at one instant, whatever is written
    meanwhile; while it runs, a rotation of the tenant's key waits. What stays behind is counted in a line of its own
    (`left_out`). Opens its own transactions. Raises `KeyUnavailable`.
    """
    written: Counter[str] = Counter()

    def line(what: str, /, **said: Any) -> None:
        written[what] += 1
        out.write(json.dumps({"line": what, **said}, ensure_ascii=False, default=_plain) + "\n")

    tenant = actor.tenant
    line("export", format=FORMAT, at=now, pepper=_pepper(tenant))
    with _one_snapshot(tenant):
        _all_out(tenant, line)
        left = dict(rows.fetch(_LEFT_OUT, {"tenant": tenant}))
    stays = {what: count for what, count in sorted(left.items()) if count}
    line("left_out", **stays, reasons={what: WHY_LEFT_OUT[what] for what in stays})
    line("end", lines=sum(written.values()) + 1)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        append([_event(actor, Action.MEMORY_EXPORTED, written)])
    return written


@contextmanager
def _one_snapshot(tenant: UUID) -> Iterator[None]:
    """Read all of a tenant as it stands at one instant, under `Role.WRITER`, whatever is written meanwhile."""
    connection.ensure_connection()
    driver = connection.connection
    before = driver.isolation_level
    driver.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with tenant_transaction(Role.STAFF, tenant=tenant), borrowed(Role.WRITER, back_to=Role.STAFF):
            yield
    finally:
        driver.isolation_level = before


def _all_out(tenant: UUID, line: Callable[..., None]) -> None:
    names: dict[UUID, str] = {}
    for page in _pages(tenant, _SUBJECTS):
        for subject, each in _grouped(page).items():
            told = [_text(tenant, row[4:]) for row in each]
            # The first is its key; a subject whose names have ended is nobody's any more.
            names[subject] = told[0]
            line("subject", id=subject, key=told[0], aliases=told[1:], kind=each[0][1], restricted=each[0][2])
    with borrowed(Role.STAFF, back_to=Role.WRITER):
        held = _grouped(rows.fetch(_HOLDS, [tenant]))
        restricted = rows.fetch(_RESTRICTED, [tenant])
    for key, digest, decided_at, cause, target_kind, target, attribute in rows.fetch(_SUPPRESSIONS, [tenant]):
        line(
            "suppression", key=key, digest=bytes(digest).hex(), decided_at=decided_at, cause=cause,
            target_kind=target_kind, target=target, attribute=attribute,
        )  # fmt: skip
    for subject, ref, purposes, granted_at, withdrawn_at in rows.fetch(_CONSENTS, [tenant]):
        if subject in names:
            line(
                "consent", subject=names[subject], ref=ref, purposes=purposes, granted_at=granted_at,
                withdrawn_at=withdrawn_at,
            )  # fmt: skip
    for page in _pages(tenant, _EPISODES):
        for row in page:
            _episode_out(tenant, row, names, line)
    for page in _pages(tenant, _KEYS):
        for key, subject, attribute, multi in page:
            if subject in names:
                _key_out(tenant, key, names[subject], attribute, multi, line)
    for page in _pages(tenant, _PROPOSALS):
        for row in page:
            if row[1] in names:
                _proposal_out(tenant, row, names[row[1]], line)
    for restriction, kind, target, ground in restricted:
        line("restriction", id=restriction, of=kind, target=target, subject=names.get(target), ground=ground)
    for scopes in held.values():
        line("hold", matter=scopes[0][1], reason=scopes[0][2], scopes=[_scope_out(row, names) for row in scopes])


def _pages(tenant: UUID, statement: str) -> Iterator[list[tuple[Any, ...]]]:
    after = UUID(int=0)
    while True:
        found = rows.fetch(statement, {"tenant": tenant, "after": after, "limit": _PAGE})
        if not found:
            return
        yield found
        after = max(row[0] for row in found)


def _grouped(found: Sequence[tuple[Any, ...]]) -> dict[UUID, list[tuple[Any, ...]]]:
    groups: dict[UUID, list[tuple[Any, ...]]] = {}
    for row in found:
        groups.setdefault(row[0], []).append(row)
    return groups


def _text(tenant: UUID, columns: Sequence[Any]) -> str:
    payload, purpose, clear, sealed, wrapped, version = columns
    return opened(tenant, payload, purpose, clear, sealed, wrapped, version)


def _episode_out(tenant: UUID, row: Sequence[Any], names: Mapping[UUID, str], line: Callable[..., None]) -> None:
    (episode, kind, role, subject, session, turn, call, occurred_at, recorded_at, ref, contract, sensitivity, basis,
     expires_at, alive, *payload, state) = row  # fmt: skip
    if not alive or (subject is not None and subject not in names):
        line("tombstone", of="episode", id=episode, state=state if state != "none" else "ended", at=occurred_at)
        return
    line(
        "episode", id=episode, kind=kind, role=role, subject=None if subject is None else names[subject],
        session_id=session, turn_id=turn, tool_call_id=call, occurred_at=occurred_at, recorded_at=recorded_at,
        consent_ref=ref, contract_ref=contract, sensitivity=Sensitivity(sensitivity).label, basis=basis,
        expires_at=expires_at, content=_text(tenant, payload),
    )  # fmt: skip


def _key_out(tenant: UUID, key: UUID, subject: str, attribute: str, multi: bool, line: Callable[..., None]) -> None:
    """Write the acts of one key in the order in which they happened."""
    found = rows.fetch(_EVIDENCE, {"tenant": tenant, "key": key})
    # What a correction took back is said by the correction.
    by_correction = {row[15] for row in found if row[15] is not None}
    acts: list[tuple[datetime, bool, int]] = []
    for place, row in enumerate(found):
        acts.append((row[4], False, place))
        if row[16] is not None and row[0] not in by_correction:
            acts.append((row[16], True, place))
    for at, retracted, place in sorted(acts):
        if retracted:
            line("retraction", evidence=found[place][0], reason=found[place][17], recorded_at=at)
        else:
            _saying_out(tenant, found[place], subject, attribute, multi, line)


def _saying_out(
    tenant: UUID, row: Sequence[Any], subject: str, attribute: str, multi: bool, line: Callable[..., None]
) -> None:
    (evidence, is_end, valid_from, stated_to, recorded_at, confirmed, confidence, source, turn, call, ref, session, contract,
     episode, trust, corrects, _, _, sensitivity, basis, expires_at, writer_kind, writer, written_at, fact, state, alive) = row[:27]  # fmt: skip
    value, quote = row[27:33], row[33:39]
    said = {
        "id": evidence, "subject": subject, "attribute": attribute, "valid_from": valid_from, "valid_to": stated_to,
        "recorded_at": recorded_at, "turn_id": turn, "trust": trust, "sensitivity": Sensitivity(sensitivity).label,
        "corrects": corrects, "fact": fact,
    }  # fmt: skip
    if fact is not None and not alive:
        state = state if state not in (None, "none") else "ended"
        line("tombstone", of="evidence", **said, state=state, multi=multi)
        return
    line(
        "evidence", **said, value=None if fact is None else json.loads(_text(tenant, value)), ended=is_end,
        confirmed=confirmed, confidence=confidence, source=source, tool_call_id=call, consent_ref=ref, session_id=session,
        contract_ref=contract, episode=episode, quote=None if quote[0] is None else _text(tenant, quote), basis=basis,
        expires_at=expires_at, writer={"kind": writer_kind, "id": writer}, written_at=written_at,
    )  # fmt: skip


def _proposal_out(tenant: UUID, row: Sequence[Any], subject: str, line: Callable[..., None]) -> None:
    (candidate, _, attribute, is_end, state, corrects, valid_from, stated_to, confidence, source, turn, call, ref, session,
     contract, episode, sensitivity, basis, expires_at, trust, said_at) = row[:21]  # fmt: skip
    value, quote = row[21:27], row[27:33]
    line(
        "proposal", id=candidate, subject=subject, attribute=attribute, state=state, corrects=corrects, valid_from=valid_from,
        valid_to=stated_to, said_at=said_at, value=None if value[0] is None else json.loads(_text(tenant, value)),
        ended=is_end, confidence=confidence, source=source, turn_id=turn, tool_call_id=call, consent_ref=ref,
        session_id=session, contract_ref=contract, episode=episode, quote=None if quote[0] is None else _text(tenant, quote),
        sensitivity=Sensitivity(sensitivity).label, basis=basis, expires_at=expires_at, trust=trust,
    )  # fmt: skip


def _scope_out(row: Sequence[Any], names: Mapping[UUID, str]) -> dict[str, Any]:
    _, _, _, record_kind, record, subject, attribute, session, recorded_from, recorded_until = row
    return {
        "record_kind": record_kind, "record": record, "subject": names.get(subject), "subject_id": subject,
        "attribute": attribute, "session_id": session, "recorded_from": recorded_from, "recorded_until": recorded_until,
    }  # fmt: skip


def _pepper(tenant: UUID) -> str:
    """Return what tells whether two tenants know names by the same digests, and nothing else."""
    return keyring().peppered(tenant, "export", b"").hex()


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


# bringing in ----------------------------------------------------------------------------------------------------------


def read_in(tenant: UUID, file: Path, *, now: datetime) -> Brought:
    """Bring the memory of an export into a tenant, by the write door; return what it came to. Audited.

    The tenant's attributes and policy are in force before. A file that is cut or of another form is refused as a whole,
    before anything is written. Cut off and called again within seven days it goes on: what was brought in is not brought
    in twice. Raises `Malformed` (`not_an_export`, `export_cut`), `KeyUnavailable`, and what the doors raise of the tenant
    (`no_policy`).
    """
    said, digest = _checked(file)
    with tenant_transaction(Role.STAFF, tenant=tenant):
        catalogue(tenant)
    return _Import(tenant, _importer(tenant, now), said, digest, now).run()


def _checked(file: Path) -> tuple[list[tuple[int, dict[str, Any]]], str]:
    content = file.read_bytes()
    try:
        said = [(number, json.loads(line)) for number, line in enumerate(content.splitlines(), 1)]
        first, last = said[0][1], said[-1][1]
        if first["line"] != "export" or first["format"] != FORMAT:
            raise Malformed("not_an_export")
    except (ValueError, IndexError, KeyError, TypeError):
        raise Malformed("not_an_export") from None
    if last.get("line") != "end" or last.get("lines") != len(said):
        raise Malformed("export_cut")
    return said, sha256(content).hexdigest()


def _importer(tenant: UUID, now: datetime) -> Actor:
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=OPERATOR.id):
        agent = Agent.objects.filter(tenant_id=tenant, name=_AGENT).first()
        if agent is None:
            agent = create_agent(tenant, _AGENT, clearance=3, by=OPERATOR, now=now)
    scopes = frozenset({Scope.READ, Scope.WRITE, Scope.IMPORT})
    return Actor(kind=ActorKind.AGENT, id=agent.id, tenant=tenant, clearance=3, trust=agent.trust, scopes=scopes)


@dataclass(frozen=True, slots=True)
class _Pending:
    number: int
    said: Mapping[str, Any]
    body: FactBody


class _Import:
    """One import under way: what the lines so far came to, and the sayings that go in together next."""

    def __init__(
        self, tenant: UUID, actor: Actor, said: Sequence[tuple[int, dict[str, Any]]], digest: str, now: datetime
    ) -> None:
        self._tenant, self._actor, self._said, self._digest, self._now = tenant, actor, said, digest, now
        self._done = Brought()
        self._evidence: dict[str, UUID] = {}
        self._facts: dict[str, UUID] = {}
        self._episodes: dict[str, UUID] = {}
        self._subjects: dict[str, UUID] = {}
        self._purposes: dict[str, frozenset[str]] = {}
        self._pending: list[_Pending] = []
        self._restricted: dict[str, str] = {}
        self._as: Actor = actor

    def run(self) -> Brought:
        """Do it."""
        said = self._said
        same = said[0][1]["pepper"] == _pepper(self._tenant)
        handlers: dict[str, Callable[[int, Mapping[str, Any]], None]] = {
            "subject": self._subject,
            "consent": self._consent,
            "episode": self._episode,
            "evidence": self._saying,
            "retraction": self._retraction,
            "tombstone": self._tombstone,
            "proposal": self._proposal,
        }
        for _, line in said:
            if line["line"] == "restriction" and line["of"] == "subject":
                self._restricted[line["subject"]] = line["ground"]
        # What may not come back is known before anything else comes.
        for number, line in said:
            if line["line"] == "suppression":
                self._suppression(number, line, same=same)
        for number, line in said:
            handler = handlers.get(line["line"])
            if handler is not None:
                try:
                    handler(number, line)
                except Problem as problem:
                    self._refuse(number, problem.code)
                except (KeyError, TypeError, ValueError):
                    self._refuse(number, "malformed")
        self._flush()
        for number, line in said:
            if line["line"] == "consent" and line["withdrawn_at"]:
                self._withdraw(line)
            if line["line"] == "restriction" and line["of"] != "subject":
                self._restriction(number, line)
            if line["line"] == "hold":
                self._hold(number, line)
        with tenant_transaction(Role.WORKER, tenant=self._tenant):
            operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=self._tenant)
            numbers = Counter({**self._done.counts, "refused": len(self._done.refused)})
            append([_event(operator, Action.MEMORY_IMPORTED, numbers)])
        return self._done

    def _refuse(self, number: int, code: str) -> None:
        self._done.refused.append((number, code))

    def _repeat(self, number: int, what: str) -> Repeat:
        return Repeat(f"{self._digest[:32]}.{number}.{what}", _ROUTE, self._digest.encode())

    def _suppression(self, number: int, line: Mapping[str, Any], *, same: bool) -> None:
        if not same:
            # The digests are another tenant's: here they say nothing.
            self._done.left["suppression_of_another_tenant"] += 1
            return
        with tenant_transaction(Role.WORKER, tenant=self._tenant):
            attribute = self._attribute(line["attribute"])
            record = {
                "keys": [[line["key"], line["digest"], attribute and str(attribute)]],
                "decided_at": line["decided_at"],
                "cause": line["cause"],
                "target_kind": line["target_kind"],
            }
            suppression.restore(self._tenant, UUID(line["target"]), record)
        self._done.counts["suppressions"] += 1

    def _subject(self, number: int, line: Mapping[str, Any]) -> None:
        body = parse(SubjectBody, {"key": line["key"], "kind": line["kind"], "aliases": line["aliases"]})
        with self._writing(self._actor):
            named = remember.subject(self._actor, body)
        self._subjects[line["key"]] = named.id
        self._done.counts["subjects"] += 1
        if line["key"] in self._restricted:
            # Before anything about them comes in: no agent sees any of it for a moment.
            self._restrict(number, "subject", named.id, self._restricted[line["key"]])

    def _consent(self, number: int, line: Mapping[str, Any]) -> None:
        given = {name: line[name] for name in ("subject", "ref", "purposes", "granted_at")}
        with self._writing(self._actor):
            consent.grant(self._actor, parse(ConsentBody, given))
        self._purposes[line["ref"]] = frozenset(line["purposes"])
        self._done.counts["consents"] += 1

    def _withdraw(self, line: Mapping[str, Any]) -> None:
        with tenant_transaction(Role.WRITER, tenant=self._tenant):
            found = rows.fetch(
                "SELECT id FROM policies_consent WHERE tenant_id = %s::uuid AND ref = %s::text",
                [self._tenant, line["ref"]],
            )
        if found:
            consent.withdraw_again(self._tenant, found[0][0], datetime.fromisoformat(line["withdrawn_at"]))

    def _episode(self, number: int, line: Mapping[str, Any]) -> None:
        given = {
            name: line[name]
            for name in ("kind", "role", "subject", "session_id", "turn_id", "tool_call_id", "occurred_at", "consent_ref",
                         "contract_ref", "sensitivity", "content")
            if line[name] is not None
        }  # fmt: skip
        given |= {"extract": "no", "retention": _retention(line)}
        actor = self._for(line)
        with self._writing(actor):
            kept = remember.episode(actor, parse(EpisodeBody, given), repeat=self._repeat(number, "episode"))
        if isinstance(kept, EpisodeKept):
            self._episodes[line["id"]] = kept.id
            self._done.counts["episodes"] += 1
        else:
            self._refuse(number, _code(kept))

    def _restriction(self, number: int, line: Mapping[str, Any]) -> None:
        found = {"fact": self._facts, "episode": self._episodes}[line["of"]].get(line["target"])
        if found is None:
            self._done.left["restriction_of_what_did_not_come"] += 1
        else:
            self._restrict(number, line["of"], found, line["ground"])

    def _restrict(self, number: int, kind: str, target: UUID, ground: str) -> None:
        actor = replace(self._actor, scopes=frozenset({Scope.ADMIN}))
        try:
            with tenant_transaction(Role.STAFF, tenant=self._tenant, clearance=3, actor=actor.id):
                restricting.restrict(actor, kind, target, ground=ground, now=self._now)
        except Clash:
            # An import that was cut off has restricted it already.
            return
        except Problem as problem:
            self._refuse(number, problem.code)
            return
        self._done.counts["restrictions"] += 1

    def _saying(self, number: int, line: Mapping[str, Any]) -> None:
        given, actor = self._said_again(line)
        self._add(number, line, {**given, "recorded_at": line["recorded_at"]}, actor)

    def _proposal(self, number: int, line: Mapping[str, Any]) -> None:
        """Let what waited wait: for a person, or as a weak signal for recurrence by the rule of the attribute here."""
        self._flush()
        given, actor = self._said_again(line)
        if line["corrects"] is not None:
            named = self._evidence.get(line["corrects"]) or self._facts.get(line["corrects"])
            if named is None:
                self._done.left["proposal_about_what_did_not_come"] += 1
                return
            given["corrects"] = str(named)
        waits = Outcome.BUFFER if line["state"] == "buffered" else Outcome.ASK
        with self._writing(actor):
            (outcome,) = remember.facts(
                actor, [parse(FactBody, given)], repeat=self._repeat(number, "proposal"), waits=waits
            )
        if isinstance(outcome, Asked | Written):
            self._done.counts["proposals"] += 1
        else:
            self._refuse(number, _code(outcome))

    def _said_again(self, line: Mapping[str, Any]) -> tuple[dict[str, Any], Actor]:
        """Return a saying of the file as a body without the time of its recording, and whose it is."""
        source, quote, episode = line["source"], line["quote"], self._episodes.get(line["episode"] or "")
        if episode is None:
            # Its episode has ended or did not come in: what it says comes from the file, as far as anybody can tell.
            quote, source = None, "file" if source == "quote" else source
        provenance = {
            name: value
            for name, value in {
                "turn_id": line["turn_id"], "tool_call_id": line["tool_call_id"], "consent_ref": line["consent_ref"],
                "session_id": line["session_id"], "contract_ref": line["contract_ref"],
                "source_episode": None if episode is None else str(episode), "quote": quote, "source": source,
            }.items()
            if value is not None
        }  # fmt: skip
        given = {
            **_times(line),
            "provenance": provenance,
            "sensitivity": line["sensitivity"],
            "retention": _retention(line),
        }
        if line["value"] is not None:
            given["value"] = line["value"]
        if line["ended"]:
            given["ended"] = True
        if line["confidence"] is not None:
            given["confidence"] = line["confidence"]
        kind = ActorKind.PERSON if source == "confirmation" else ActorKind.AGENT
        return given, replace(self._for(line), kind=kind, trust=line["trust"])

    def _tombstone(self, number: int, line: Mapping[str, Any]) -> None:
        if line["of"] != "evidence" or line["multi"]:
            # Nothing else of a chain of its own is read in its place.
            self._done.left["tombstone_that_hides_nothing"] += 1
            return
        given = {
            **_times(line),
            "recorded_at": line["recorded_at"],
            "ended": True,
            "provenance": {"turn_id": line["turn_id"], "source": "file"},
        }
        self._add(number, line, given, replace(self._actor, trust=line["trust"]))

    def _add(self, number: int, line: Mapping[str, Any], given: dict[str, Any], actor: Actor) -> None:
        corrects = line["corrects"]
        if (
            actor != self._as
            or len(self._pending) >= BATCH
            or any(each.said["id"] == corrects for each in self._pending)
        ):
            self._flush()
        if corrects in self._evidence:
            given["corrects"] = str(self._evidence[corrects])
        self._as = actor
        self._pending.append(_Pending(number, line, parse(FactBody, given)))

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        actor = self._as
        with self._writing(actor):
            outcomes = remember.facts(
                actor, [each.body for each in pending], repeat=self._repeat(pending[0].number, "facts"), batch=True
            )
        for each, outcome in zip(pending, outcomes, strict=True):
            if isinstance(outcome, Written):
                self._evidence[each.said["id"]] = outcome.evidence
                if outcome.fact is not None and each.said["fact"] is not None:
                    self._facts[each.said["fact"]] = outcome.fact
                self._done.counts["tombstones" if each.said["line"] == "tombstone" else "evidence"] += 1
            elif isinstance(outcome, Asked):
                self._done.counts[f"waiting_{outcome.verdict}"] += 1
            else:
                self._refuse(each.number, _code(outcome))

    def _retraction(self, number: int, line: Mapping[str, Any]) -> None:
        self._flush()
        evidence = self._evidence.get(line["evidence"])
        if evidence is None:
            self._done.left["retraction_of_what_did_not_come"] += 1
            return
        # Whoever took it back was let: trust is not asked for again.
        actor = replace(self._actor, kind=ActorKind.PERSON, trust=100)
        at = datetime.fromisoformat(line["recorded_at"])
        with self._writing(actor):
            outcome = remember.retract(
                actor, evidence=evidence, reason=line["reason"], recorded_at=at, repeat=self._repeat(number, "retract")
            )
        if isinstance(outcome, Retracted):
            self._done.counts["retractions"] += 1
        else:
            self._refuse(number, _code(outcome))

    def _hold(self, number: int, line: Mapping[str, Any]) -> None:
        operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=self._tenant)
        targets = []
        for scope in line["scopes"]:
            target = self._target(scope)
            if target is None:
                self._done.left["scope_of_what_did_not_come"] += 1
            else:
                targets.append(target)
        if not targets:
            return
        try:
            with tenant_transaction(Role.STAFF, tenant=self._tenant, actor=operator.id):
                matter, new = matters.open_matter(operator, line["matter"], line["reason"], now=self._now)
                if not new and self._is_held(matter.id, targets):
                    return
                matters.place(operator, matter.id, targets, now=self._now)
        except Problem as problem:
            self._refuse(number, problem.code)
            return
        self._done.counts["holds"] += 1

    def _is_held(self, matter: UUID, targets: Sequence[matters.Target]) -> bool:
        """Whether an import that was cut off has placed it already."""
        placed = rows.fetch(
            "SELECT s.hold_id, s.record_id, s.subject_id, s.session_id FROM retention_holdscope s"
            " JOIN retention_hold h ON h.tenant_id = s.tenant_id AND h.id = s.hold_id"
            " WHERE s.tenant_id = %s::uuid AND h.matter_id = %s::uuid AND h.state = 'active'",
            [self._tenant, matter],
        )
        return {(each.record_id, each.subject_id, each.session_id) for each in targets} <= {row[1:] for row in placed}

    def _target(self, scope: Mapping[str, Any]) -> matters.Target | None:
        kind, record, subject, attribute = scope["record_kind"], scope["record"], scope["subject"], None
        found: UUID | None = None
        if record is not None:
            known = {"evidence": self._evidence, "episode": self._episodes}.get(kind)
            found = None if known is None else known.get(record)
            if kind == "subject":
                found = self._subjects.get(scope.get("record_name") or subject or "")
            if found is None:
                return None
        about = None if scope["subject_id"] is None else self._subjects.get(subject or "")
        if scope["subject_id"] is not None and about is None:
            return None
        if scope["attribute"] is not None:
            with_name = self._attribute_of(scope["attribute"])
            if with_name is None:
                return None
            attribute = with_name
        since, until = (
            scope[name] and datetime.fromisoformat(scope[name]) for name in ("recorded_from", "recorded_until")
        )
        return matters.Target(kind, found, about, attribute, scope["session_id"], None, since, until)

    def _attribute_of(self, name: str) -> UUID | None:
        with tenant_transaction(Role.WRITER, tenant=self._tenant):
            return self._attribute(name)

    def _attribute(self, name: str | None) -> UUID | None:
        found = rows.fetch(
            "SELECT id FROM policies_attribute WHERE tenant_id = %s::uuid AND name = %s::text", [self._tenant, name]
        )
        return found[0][0] if found else None

    def _for(self, line: Mapping[str, Any]) -> Actor:
        """The importer with the purposes of the consent that a line rests on: what it may be used for stays as it was."""
        purposes = self._purposes.get(line.get("consent_ref") or "")
        return self._actor if purposes is None else replace(self._actor, purposes=purposes)

    def _writing(self, actor: Actor) -> Any:
        return tenant_transaction(Role.WRITER, tenant=self._tenant, clearance=actor.clearance, actor=actor.id)


def _times(line: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        "subject": line["subject"], "attribute": line["attribute"], "valid_from": line["valid_from"],
    }  # fmt: skip
    return given if line["valid_to"] is None else {**given, "valid_to": line["valid_to"]}


def _retention(line: Mapping[str, Any]) -> dict[str, Any]:
    kept = {"basis": line["basis"]}
    return kept if line["expires_at"] is None else {**kept, "expires_at": line["expires_at"]}


def _code(outcome: Any) -> str:
    if isinstance(outcome, Denied):
        return outcome.reasons[0] if outcome.reasons else outcome.code
    return "unknown"


def _event(actor: Actor, action: Action, counts: Mapping[str, int]) -> Event:
    numbers: dict[str, int | float | bool] = dict(sorted(counts.items())[:14])
    return Event(actor=actor, action=action, target_kind="tenant", target_id=actor.tenant, numbers=numbers)
