"""How an evaluation reaches the doors: in process, or over HTTP as any agent does. Bodies are the API's in both cases."""

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID

from memory import recall, remember, rows
from memory.contracts import EpisodeBody, FactBody, parse
from memory.outcomes import Asked, Denied, EpisodeKept, Outcome, Repeat, Retracted, Written
from tenants.actors import Actor
from tenants.errors import Problem
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import keyring

#: What an answer holds where the database shows that there is a fact and not what it says.
HIDDEN = object()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one write: `code` is empty where it stands."""

    code: str = ""
    fact: UUID | None = None
    evidence: UUID | None = None
    episode: UUID | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One exact read."""

    subject: str = field(repr=False)
    attribute: str
    valid_at: datetime | None
    known_at: datetime | None


@dataclass(slots=True)
class Ledger:
    """What is stored of one subject: by attribute the stretches believed now, and how much evidence there is."""

    stretches: dict[str, list[tuple[Any, datetime, datetime | None]]] = field(default_factory=dict, repr=False)
    evidence: int = 0


class Reach(Protocol):
    """The doors as an evaluation needs them. No method raises for a refusal: it is part of the answer."""

    def keep(self, episode: Mapping[str, Any]) -> Answer:
        """Keep one episode."""

    def write(self, facts: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Write up to 1,000 sayings in their order, in one transaction."""

    def write_once(self, fact: Mapping[str, Any], key: str) -> Answer:
        """Write one saying; the same key again is the same request."""

    def take_back(self, evidence: UUID, recorded_at: datetime) -> Answer:
        """Retract one piece of evidence."""

    def ask(self, asks: Sequence[Ask]) -> list[list[Any]]:
        """Return for each question the values that hold."""

    def ledgers(self, facts: Mapping[str, Mapping[str, UUID]]) -> dict[str, Ledger]:
        """Return what is stored of each subject, given a fact of each of its attributes."""


_STRETCHES = """
SELECT w.place::int, a.name, b.valid_from, b.valid_to, f.id, p.clear
FROM unnest(%s::bytea[]) WITH ORDINALITY AS w (digest, place)
  JOIN memory_subjectidentifier i ON i.tenant_id = %s::uuid AND i.digest = w.digest
  JOIN memory_factkey k ON k.tenant_id = i.tenant_id AND k.subject_id = i.subject_id
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_belief b ON b.tenant_id = k.tenant_id AND b.key_id = k.id AND b.believed_to IS NULL
  LEFT JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id
  LEFT JOIN memory_payload p ON p.tenant_id = f.tenant_id AND p.id = f.payload_id
WHERE b.fact_id IS NOT NULL
ORDER BY w.place, a.name, b.valid_from
"""
_EVIDENCE = """
SELECT w.place::int, count(*)
FROM unnest(%s::bytea[]) WITH ORDINALITY AS w (digest, place)
  JOIN memory_subjectidentifier i ON i.tenant_id = %s::uuid AND i.digest = w.digest
  JOIN memory_factkey k ON k.tenant_id = i.tenant_id AND k.subject_id = i.subject_id
  JOIN memory_evidence e ON e.tenant_id = k.tenant_id AND e.key_id = k.id
GROUP BY w.place
"""


class InProcess:
    """The doors themselves, each act in a transaction of its own as a request has; reads that go together share one."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def _writing(self, act: Callable[[], list[Outcome]]) -> list[Answer]:
        actor = self._actor
        try:
            with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
                return [_answer(each) for each in act()]
        except Problem as problem:
            return [Answer(code=problem.code)]

    def keep(self, episode: Mapping[str, Any]) -> Answer:
        """See `Reach`."""
        return self._writing(lambda: [remember.episode(self._actor, parse(EpisodeBody, episode))])[0]

    def write(self, facts: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """See `Reach`."""
        try:
            bodies = [parse(FactBody, each) for each in facts]
        except Problem:
            # One that is refused at the boundary would hide the others: each on its own then.
            return [self.write([each])[0] for each in facts] if len(facts) > 1 else [Answer(code="malformed")]
        answers = self._writing(lambda: remember.facts(self._actor, bodies, batch=True))
        return answers if len(answers) == len(facts) else answers * len(facts)

    def write_once(self, fact: Mapping[str, Any], key: str) -> Answer:
        """See `Reach`."""
        repeat = Repeat(key, "POST api/v1/facts/", json.dumps(fact).encode())
        return self._writing(lambda: remember.facts(self._actor, [parse(FactBody, fact)], repeat=repeat))[0]

    def take_back(self, evidence: UUID, recorded_at: datetime) -> Answer:
        """See `Reach`."""
        return self._writing(
            lambda: [
                remember.retract(self._actor, evidence=evidence, reason="recorded_wrongly", recorded_at=recorded_at)
            ]
        )[0]

    def ask(self, asks: Sequence[Ask]) -> list[list[Any]]:
        """See `Reach`."""
        actor = self._actor
        with tenant_transaction(
            Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id, durable=False
        ):
            return [
                [
                    fact["value"]
                    for fact in recall.facts(
                        actor,
                        subject=ask.subject,
                        attribute=ask.attribute,
                        valid_at=ask.valid_at,
                        known_at=ask.known_at,
                    ).results
                ]
                for ask in asks
            ]

    def ledgers(self, facts: Mapping[str, Mapping[str, UUID]]) -> dict[str, Ledger]:
        """See `Reach`: the stored stretches by one statement; those of a sealed value through the read door."""
        actor, names = self._actor, list(facts)
        found = {name: Ledger() for name in names}
        digests = [keyring().identifier(actor.tenant, name) for name in names]
        with tenant_transaction(
            Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id, durable=False
        ):
            sealed: dict[tuple[str, str], UUID] = {}
            for place, attribute, valid_from, valid_to, fact, clear in rows.fetch(_STRETCHES, [digests, actor.tenant]):
                name = names[place - 1]
                value = HIDDEN
                if clear is not None:
                    value = json.loads(clear)
                elif fact is not None:
                    sealed[name, attribute] = fact
                found[name].stretches.setdefault(attribute, []).append((value, valid_from, valid_to))
            for (name, attribute), fact in sealed.items():
                found[name].stretches[attribute] = _held(recall.history(actor, fact)["stretches"])
            for place, count in rows.fetch(_EVIDENCE, [digests, actor.tenant]):
                found[names[place - 1]].evidence = count
        return found


def _answer(outcome: Outcome) -> Answer:
    if isinstance(outcome, Written):
        return Answer(fact=outcome.fact, evidence=outcome.evidence)
    if isinstance(outcome, EpisodeKept):
        return Answer(episode=outcome.id)
    if isinstance(outcome, Retracted):
        return Answer(evidence=outcome.evidence[0])
    if isinstance(outcome, Asked):
        return Answer(code=outcome.verdict)
    return Answer(code=outcome.code if isinstance(outcome, Denied) else "unexpected")


def _held(stretches: Sequence[Mapping[str, Any]]) -> list[tuple[Any, datetime, datetime | None]]:
    return [
        (
            each["value"] if each["state"] == "held" else HIDDEN,
            _moment(each["valid_from"]),
            None if each["valid_to"] is None else _moment(each["valid_to"]),
        )
        for each in stretches
        if each["superseded_at"] is None and each["state"] != "ended"
    ]


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


class OverHttp:
    """The API of a running copy, on one connection. Raises `OSError` where it cannot be reached."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OSError(None, "not an http or https address")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=60)
        self._base = parts.path.rstrip("/").removesuffix("/api/v1") + "/api/v1"
        self._headers = {"Authorization": f"Api-Key {key}", "Accept": "application/json"}

    def _call(self, method: str, path: str, body: Any = None, *, once: str | None = None) -> tuple[int, dict[str, Any]]:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if once is not None:
            headers["Idempotency-Key"] = once
        try:
            self._connection.request(method, self._base + path, None if body is None else json.dumps(body), headers)
            answer = self._connection.getresponse()
            data = json.loads(answer.read() or b"{}")
        except (http.client.HTTPException, ValueError):
            self._connection.close()
            raise OSError(None, "the answer was not that of the API") from None
        return answer.status, data if isinstance(data, dict) else {}

    def keep(self, episode: Mapping[str, Any]) -> Answer:
        """See `Reach`."""
        status, data = self._call("POST", "/episodes/", episode)
        if status >= 400:
            return Answer(code=str(data.get("code", status)))
        return Answer(episode=UUID(data["id"]))

    def write(self, facts: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """See `Reach`."""
        status, data = self._call("POST", "/facts/batch/", {"items": facts})
        if status >= 400:
            return [Answer(code=str(data.get("code", status)))] * len(facts)
        items = data.get("items", data.get("results", ()))
        return [_told(int(each.get("status", 201)), each) for each in items]

    def write_once(self, fact: Mapping[str, Any], key: str) -> Answer:
        """See `Reach`."""
        return _told(*self._call("POST", "/facts/", fact, once=key))

    def take_back(self, evidence: UUID, recorded_at: datetime) -> Answer:
        """See `Reach`."""
        body = {"reason": "recorded_wrongly", "recorded_at": recorded_at.isoformat()}
        status, data = self._call("POST", f"/evidence/{evidence}/retract/", body)
        return Answer(evidence=evidence) if status == 200 else Answer(code=str(data.get("code", status)))

    def ask(self, asks: Sequence[Ask]) -> list[list[Any]]:
        """See `Reach`."""
        answers = []
        for ask in asks:
            query = {"subject": ask.subject, "attribute": ask.attribute}
            if ask.valid_at is not None:
                query["valid_at"] = ask.valid_at.isoformat()
            if ask.known_at is not None:
                query["known_at"] = ask.known_at.isoformat()
            status, data = self._call("GET", f"/facts/?{urlencode(query, quote_via=quote)}")
            answers.append([HIDDEN] if status >= 400 else [fact["value"] for fact in data["results"]])
        return answers

    def ledgers(self, facts: Mapping[str, Mapping[str, UUID]]) -> dict[str, Ledger]:
        """See `Reach`: by the history of each key."""
        found: dict[str, Ledger] = {}
        for subject, by_attribute in facts.items():
            ledger = found[subject] = Ledger()
            for attribute, fact in by_attribute.items():
                cursor: str | None = ""
                while cursor is not None:
                    path = f"/facts/{fact}/history/" + (f"?cursor={quote(cursor)}" if cursor else "")
                    status, data = self._call("GET", path)
                    if status >= 400:
                        break
                    ledger.evidence += len(data["results"])
                    if not cursor:
                        ledger.stretches[attribute] = _held(data["stretches"])
                    cursor = data.get("next")
        return found


def _told(status: int, data: Mapping[str, Any]) -> Answer:
    if status not in (200, 201):
        return Answer(code=str(data.get("verdict") or data.get("code") or status))
    fact = data.get("fact")
    if isinstance(fact, Mapping):
        fact = fact.get("id")
    return Answer(fact=None if fact is None else UUID(fact), evidence=UUID(data["evidence"]))
