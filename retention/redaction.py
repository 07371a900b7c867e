"""Redaction: somebody proposes to take content out, which hides it at once; somebody else looks at what follows and does it.

The door. Each act runs in the caller's open tenant transaction under `Role.STAFF` with whoever acts in it, and takes the
roles that it needs for the length of a step. Locks are taken in the order of every door: the hold lock, the proposal,
subjects, episodes, keys. What is refused here with a code is refused by the database as well: who asked and who decided,
that they are two, and that what waits stays hidden.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_noop

from memory import erasure, rows, search, suppression
from memory import redacted as marks
from memory.subjects import opened, payload_context
from policies import approvals
from policies.detection import Group, Known, detect
from policies.values import canonical_text
from policies.vocabulary import Sensitivity
from retention import certificates, endings_log, holds, runs
from retention.models import RedactionItem, RedactionRequest
from retention.strategies import Span, Strategy, cut, declared, joined, leaves, redacted, touched, without
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed
from tenants.models import Membership
from tenants.secrets import keyring


class Kind(StrEnum):
    """What may be picked. Of evidence it is the quote; what it says is its fact's value."""

    FACT = "fact"
    EVIDENCE = "evidence"
    EPISODE = "episode"
    CANDIDATE = "candidate"


#: Why a redaction is proposed. Codes, since words would be content. `quote_fell` is the door's own.
REASONS = ("not_to_be_kept", "third_party", "excessive", "wrong_subject", "subject_request", "credential", "other")
QUOTE_FELL = "quote_fell"
#: Why it is decided as it is.
APPLY_REASONS = ("checked", "required_by_law", "other")
REFUSE_REASONS = ("needed", "wrong_record", "too_wide", "incomplete", "other")
#: A proposal names so many records, and so many spans of one.
MOST_PICKS = 50
MOST_SPANS = 200
#: So many of a subject's other texts are looked through for what is to be taken out.
LOOKED_THROUGH = 500
#: A list is shown up to here.
SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """What to take out of one record, and what to leave: the whole, `fields` of a fact's value, or `spans` of an episode."""

    kind: Kind
    target: UUID
    strategy: Strategy = Strategy.NULL
    fields: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing of the record is kept as it was."""
        return not self.fields and not self.spans

    def as_json(self) -> dict[str, Any]:
        """Return the pick as the API and the pages show it."""
        return {
            "kind": self.kind.value,
            "id": self.target,
            "strategy": self.strategy.value,
            "fields": list(self.fields),
            "spans": [list(span) for span in self.spans],
        }


@dataclass(frozen=True, slots=True)
class Line:
    """One record that changes. `kind` is a `Kind`, or `saying`: one that a candidate stands for."""

    kind: str
    target: UUID
    payload: UUID | None


#: What the numbers of a preview count, in words: of one, and of more.
_CALLED = {
    "facts": (gettext_noop("fact ends, with all that it says"), gettext_noop("facts end, with all that they say")),
    "quotes": (gettext_noop("quote goes"), gettext_noop("quotes go")),
    "episodes": (gettext_noop("episode changes"), gettext_noop("episodes change")),
    "candidates": (gettext_noop("proposal of the same goes"), gettext_noop("proposals of the same go")),
    "derived": (gettext_noop("derived text is thrown away"), gettext_noop("derived texts are thrown away")),
    "entries": (gettext_noop("entry of the index of words goes"), gettext_noop("entries of the index of words go")),
}


@dataclass(frozen=True, slots=True)
class Preview:
    """All that follows from a redaction, as ids and counts.

    `follows`: what falls with what was picked (quotes, proposals); `unsupported`: facts that lose their last quote and go to
    a person; `elsewhere`: other records of the same subject that say the same, which stay unless they are picked too;
    `held`: which holds are in the way of which record. `digest` is of all that an application changes, and of the holds.
    """

    picks: tuple[Pick, ...]
    lines: tuple[Line, ...]
    follows: tuple[Line, ...]
    unsupported: tuple[UUID, ...]
    derived: int
    entries: int
    held: Mapping[tuple[str, UUID], tuple[UUID, ...]]
    elsewhere: tuple[tuple[str, UUID], ...]
    digest: bytes
    subjects: tuple[UUID, ...] = ()
    keys: tuple[UUID, ...] = ()
    texts: tuple[UUID, ...] = field(default=(), repr=False)

    def count(self, kind: str) -> int:
        """Return how many records of a kind change."""
        return sum(line.kind == kind for line in (*self.lines, *self.follows))

    @property
    def counts(self) -> dict[str, int]:
        """What changes, as numbers."""
        told = {
            "facts": self.count("fact"),
            "quotes": sum(line.payload is not None for line in self.follows if line.kind in ("evidence", "saying"))
            + sum(line.kind == "evidence" for line in self.lines),
            "episodes": self.count("episode"),
            "candidates": self.count("candidate"),
            "unsupported": len(self.unsupported),
            "derived": self.derived,
            "entries": self.entries,
        }
        return {name: number for name, number in told.items() if number}

    @property
    def told(self) -> list[tuple[str, int]]:
        """What changes, for a page: what it is called, and how many."""
        return [(_CALLED[name][number != 1], number) for name, number in self.counts.items() if name in _CALLED]

    @property
    def stopped(self) -> list[tuple[tuple[str, UUID], tuple[UUID, ...]]]:
        """The records that holds keep, each with those holds."""
        return sorted(self.held.items())

    def as_json(self) -> dict[str, Any]:
        """Return the preview as the API and the pages show it: ids, codes and counts."""
        return {
            "items": [pick.as_json() for pick in self.picks],
            "follows": [{"kind": line.kind, "id": line.target} for line in self.follows[:SHOWN]],
            "unsupported": list(self.unsupported[:SHOWN]),
            "elsewhere": [{"kind": kind, "id": each} for kind, each in self.elsewhere[:SHOWN]],
            "held": [
                {"kind": kind, "id": each, "holds": list(found)} for (kind, each), found in sorted(self.held.items())
            ][:SHOWN],
            "counts": self.counts,
            "digest": self.digest.hex(),
        }


# looking --------------------------------------------------------------------------------------------------------------


def preview(actor: Actor, picks: Sequence[Pick]) -> Preview:
    """Return what redacting `picks` would change. Nothing is changed, and nothing of any content is told.

    Raises `Missing` for a record that is not there, `Refused("redaction_refused")` for a pick that makes no sense, naming
    its place, `Clash("already_redacted")` where nothing is left to take out, `Forbidden` for whoever may not propose.
    """
    _require_proposer(actor)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        return _foreseen(actor.tenant, _checked(actor.tenant, picks))


def examine(actor: Actor, proposal: UUID) -> Preview:
    """Return what applying a proposal that waits would change now. Raises `Missing`."""
    found = _request(actor.tenant, proposal)
    picks = _picks_of(found)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        return _foreseen(actor.tenant, picks)


_FACTS = """
SELECT f.id, f.payload_id, f.subject_id, f.key_id, f.redaction_state, f.redaction_fields, f.ended_by,
  p.clear IS NOT NULL OR p.sealed IS NOT NULL, v.definition->'schema', f.evidence_count
FROM memory_fact f
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
  CROSS JOIN LATERAL (SELECT * FROM policies_attributeversion x WHERE x.tenant_id = f.tenant_id
    AND x.id = f.attribute_version_id OFFSET 0) v
WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[])
"""
_EPISODES = """
SELECT e.id, e.payload_id, e.subject_id, p.clear, p.sealed, k.wrapped, k.version, e.mentioned_ids
FROM memory_episode e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[])
"""
_QUOTES = """
SELECT e.id, e.quote_id, e.fact_id, e.key_id, k.subject_id, q.clear IS NOT NULL OR q.sealed IS NOT NULL
FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT * FROM memory_factkey x WHERE x.tenant_id = e.tenant_id AND x.id = e.key_id OFFSET 0) k
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.quote_id OFFSET 0) q ON true
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[])
"""
_CANDIDATES = """
SELECT c.id, c.payload_id, c.subject_id, p.clear IS NOT NULL OR p.sealed IS NOT NULL
FROM memory_candidate c
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = c.tenant_id AND x.id = c.payload_id OFFSET 0) p ON true
WHERE c.tenant_id = %s::uuid AND c.id = ANY (%s::uuid[])
"""


def _checked(tenant: UUID, picks: Sequence[Pick]) -> tuple[Pick, ...]:
    """Return the picks in one order, each once. Raises as `preview` does."""
    if not 1 <= len(picks) <= MOST_PICKS:
        raise Refused("redaction_refused", errors=[FieldError("items", "out_of_range")])
    if len({(pick.kind, pick.target) for pick in picks}) != len(picks):
        raise Refused("redaction_refused", errors=[FieldError("items", "not_unique")])

    found: dict[tuple[Kind, UUID], Sequence[Any]] = {}
    for kind, statement in (
        (Kind.FACT, _FACTS),
        (Kind.EPISODE, _EPISODES),
        (Kind.EVIDENCE, _QUOTES),
        (Kind.CANDIDATE, _CANDIDATES),
    ):
        wanted = [pick.target for pick in picks if pick.kind is kind]
        if wanted:
            found |= {(kind, row[0]): row for row in rows.fetch(statement, [tenant, wanted])}
    checked = []
    for at, pick in enumerate(picks):
        row = found.get((pick.kind, pick.target))
        if row is None:
            raise Missing
        if pick.fields and pick.kind is not Kind.FACT:
            raise Refused("redaction_refused", errors=[FieldError(f"items[{at}].fields", "not_for_this_kind")])
        if pick.spans and pick.kind is not Kind.EPISODE:
            raise Refused("redaction_refused", errors=[FieldError(f"items[{at}].spans", "not_for_this_kind")])
        if pick.strategy is not Strategy.NULL and pick.kind in (Kind.EVIDENCE, Kind.CANDIDATE):
            raise Refused("redaction_refused", errors=[FieldError(f"items[{at}].strategy", "not_for_this_kind")])
        if pick.kind is Kind.FACT:
            # What ended for another cause is somebody else's to remove.
            if not row[7] or row[6] not in (None, "redacted"):
                raise Clash("already_redacted" if row[6] == "redacted" else "nothing_to_redact")
            schema = json.loads(row[8]) if isinstance(row[8], str) else row[8]
            for place, path in enumerate(pick.fields):
                if declared(schema, path) is None:
                    raise Refused(
                        "redaction_refused", errors=[FieldError(f"items[{at}].fields[{place}]", "not_declared")]
                    )
        elif pick.kind is Kind.EPISODE:
            text = _text(tenant, row[1], row[3:7])
            if text is None:
                raise Clash("nothing_to_redact")
            if len(pick.spans) > MOST_SPANS:
                raise Refused("redaction_refused", errors=[FieldError(f"items[{at}].spans", "out_of_range")])
            for place, (start, end) in enumerate(pick.spans):
                if not 0 <= start < end <= len(text):
                    raise Refused(
                        "redaction_refused", errors=[FieldError(f"items[{at}].spans[{place}]", "out_of_range")]
                    )
        elif not row[5 if pick.kind is Kind.EVIDENCE else 3]:
            raise Clash("nothing_to_redact")
        checked.append(
            Pick(
                kind=pick.kind,
                target=pick.target,
                strategy=pick.strategy,
                fields=tuple(sorted(set(pick.fields))),
                spans=tuple(joined(pick.spans)),
            )
        )
    return tuple(sorted(checked, key=lambda pick: (pick.kind.value, pick.target)))


def _text(tenant: UUID, payload: UUID, content: Sequence[Any], purpose: str = "episode") -> str | None:
    clear, sealed, wrapped, version = content
    return (
        None if clear is None and sealed is None else opened(tenant, payload, purpose, clear, sealed, wrapped, version)
    )


_SAID_OF_FACTS = """
SELECT e.id, e.quote_id, e.fact_id FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY (%s::uuid[])
"""
_PROPOSED = """
SELECT c.id, c.payload_id, c.subject_id FROM memory_fact f
  CROSS JOIN LATERAL (SELECT x.attribute_id FROM memory_factkey x WHERE x.tenant_id = f.tenant_id AND x.id = f.key_id OFFSET 0) k
  CROSS JOIN LATERAL (SELECT * FROM memory_candidate x WHERE x.tenant_id = f.tenant_id AND x.subject_id = f.subject_id OFFSET 0) c
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[])
  AND (c.attribute_id = k.attribute_id AND c.value_digest = f.value_digest OR c.evidence_id = ANY (%(said)s::uuid[]))
"""
_SAID_IN = """
SELECT e.id, e.quote_id, e.fact_id, e.episode_id, q.clear, q.sealed, k.wrapped, k.version
FROM memory_evidence e
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.quote_id OFFSET 0) q ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = q.tenant_id AND x.id = q.key_id OFFSET 0) k ON true
WHERE e.tenant_id = %s::uuid AND e.episode_id = ANY (%s::uuid[])
"""
_PROPOSED_IN = """
SELECT s.id, s.quote_id, s.candidate_id, s.episode_id, q.clear, q.sealed, k.wrapped, k.version
FROM memory_candidatesaying s
  LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = s.tenant_id AND x.id = s.quote_id OFFSET 0) q ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = q.tenant_id AND x.id = q.key_id OFFSET 0) k ON true
WHERE s.tenant_id = %s::uuid AND s.episode_id = ANY (%s::uuid[])
"""
_SAYINGS_OF = """
SELECT s.id, s.quote_id, s.candidate_id FROM memory_candidatesaying s
WHERE s.tenant_id = %s::uuid AND s.candidate_id = ANY (%s::uuid[])
"""
# A fact stands on what was said and still is: not taken back, no end, and with its quote where it had one.
_STANDS_ON = """
SELECT f.id, f.subject_id, f.key_id,
  EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = f.tenant_id AND e.fact_id = f.id AND e.retracted_at IS NULL
    AND NOT e.is_end AND e.id <> ALL (%(lost)s::uuid[]) AND NOT e.redaction_fields @> '{quote}')
FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[]) AND f.ended_at IS NULL
"""
_MADE = """
SELECT d.payload_id FROM memory_derived d
WHERE d.tenant_id = %(tenant)s::uuid AND d.subject_id = ANY (%(subjects)s::uuid[]) AND d.payload_id IS NOT NULL
UNION
SELECT d.payload_id FROM memory_derivedsource w
  CROSS JOIN LATERAL (SELECT x.payload_id FROM memory_derived x WHERE x.tenant_id = w.tenant_id AND x.id = w.derived_id OFFSET 0) d
WHERE w.tenant_id = %(tenant)s::uuid AND w.fact_id = ANY (%(facts)s::uuid[]) AND d.payload_id IS NOT NULL
"""
_ENTRIES = "SELECT count(*) FROM memory_searchentry e WHERE e.tenant_id = %s::uuid AND e.payload_id = ANY (%s::uuid[])"
_COUNTED_OF = (
    "SELECT f.id, f.evidence_count FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[])"
)


def _foreseen(tenant: UUID, picks: tuple[Pick, ...]) -> Preview:
    """Return all that follows from `picks`, in statements whose number does not grow with them."""
    of_kind = {kind: [pick.target for pick in picks if pick.kind is kind] for kind in Kind}
    facts, episodes = of_kind[Kind.FACT], of_kind[Kind.EPISODE]
    lines: dict[tuple[str, UUID], Line] = {}
    follows: dict[tuple[str, UUID], Line] = {}
    subjects: set[UUID] = set()
    keys: set[UUID] = set()
    for row in rows.fetch(_FACTS, [tenant, facts]) if facts else ():
        lines[("fact", row[0])] = Line("fact", row[0], row[1])
        subjects.add(row[2])
        keys.add(row[3])
    texts: dict[UUID, tuple[str | None, tuple[Span, ...]]] = {}
    by_id = {pick.target: pick for pick in picks if pick.kind is Kind.EPISODE}
    for row in rows.fetch(_EPISODES, [tenant, episodes]) if episodes else ():
        lines[("episode", row[0])] = Line("episode", row[0], row[1])
        texts[row[0]] = _text(tenant, row[1], row[3:7]), by_id[row[0]].spans
        subjects.update([row[2]] if row[2] is not None else [])
    for row in rows.fetch(_QUOTES, [tenant, of_kind[Kind.EVIDENCE]]) if of_kind[Kind.EVIDENCE] else ():
        lines[("evidence", row[0])] = Line("evidence", row[0], row[1])
        subjects.add(row[4])
    for row in rows.fetch(_CANDIDATES, [tenant, of_kind[Kind.CANDIDATE]]) if of_kind[Kind.CANDIDATE] else ():
        lines[("candidate", row[0])] = Line("candidate", row[0], row[1])
        subjects.add(row[2])

    def follow(kind: str, target: UUID, payload: UUID | None) -> None:
        if (kind, target) not in lines:
            follows[(kind, target)] = Line(kind, target, payload)

    # What a fact's value was said in, and proposed as.
    said = rows.fetch(_SAID_OF_FACTS, [tenant, facts]) if facts else []
    for evidence, quote, _ in said:
        follow("evidence", evidence, quote)
    ended: set[UUID] = set(of_kind[Kind.CANDIDATE])
    if facts:
        given = {"tenant": tenant, "facts": facts, "said": [row[0] for row in said]}
        for candidate, payload, subject in rows.fetch(_PROPOSED, given):
            follow("candidate", candidate, payload)
            ended.add(candidate)
            subjects.add(subject)
    # What quotes an episode, where the quote says any of what is taken out.
    lost = {target for kind, target in lines if kind == "evidence"}
    if episodes:
        for evidence, quote, _, episode, *content in rows.fetch(_SAID_IN, [tenant, episodes]):
            if _falls(tenant, quote, content, *texts[episode]):
                lost.add(evidence)
                if quote is not None:
                    follow("evidence", evidence, quote)
        sayings: dict[UUID, set[UUID]] = {}
        for saying, quote, candidate, episode, *content in rows.fetch(_PROPOSED_IN, [tenant, episodes]):
            if _falls(tenant, quote, content, *texts[episode]):
                sayings.setdefault(candidate, set()).add(saying)
                if quote is not None:
                    follow("saying", saying, quote)
        # A proposal that rests on nothing else goes.
        resting: dict[UUID, set[UUID]] = {}
        for saying, _, candidate in rows.fetch(_SAYINGS_OF, [tenant, sorted(sayings)]) if sayings else ():
            resting.setdefault(candidate, set()).add(saying)
        gone = [candidate for candidate, all_of_it in resting.items() if all_of_it <= sayings[candidate]]
        for row in rows.fetch(_CANDIDATES, [tenant, sorted(gone)]) if gone else ():
            follow("candidate", row[0], row[1])
            ended.add(row[0])
            subjects.add(row[2])
    for saying, quote, _ in rows.fetch(_SAYINGS_OF, [tenant, sorted(ended)]) if ended else ():
        if quote is not None:
            follow("saying", saying, quote)
    unsupported: list[UUID] = []
    if lost:
        quoted = {row[2] for row in rows.fetch(_QUOTES, [tenant, sorted(lost)]) if row[2] is not None} - set(facts)
        for fact, subject, key, still in (
            rows.fetch(_STANDS_ON, {"tenant": tenant, "facts": sorted(quoted), "lost": sorted(lost)}) if quoted else ()
        ):
            subjects.add(subject)
            if not still:
                unsupported.append(fact)
                keys.add(key)
    texts_made = [
        row[0]
        for row in rows.fetch(_MADE, {"tenant": tenant, "subjects": sorted(subjects), "facts": [*facts, *unsupported]})
    ]
    payloads = [line.payload for line in (*lines.values(), *follows.values()) if line.payload is not None]
    entries = rows.fetch(_ENTRIES, [tenant, payloads])[0][0] if payloads else 0
    all_lines, all_follows = (
        tuple(lines[each] for each in sorted(lines)),
        tuple(follows[each] for each in sorted(follows)),
    )
    held = _held(tenant, (*all_lines, *all_follows))
    counted = dict(rows.fetch(_COUNTED_OF, [tenant, [*facts, *unsupported]])) if facts or unsupported else {}
    return Preview(
        picks=picks,
        lines=all_lines,
        follows=all_follows,
        unsupported=tuple(sorted(unsupported)),
        derived=len(texts_made),
        entries=entries,
        held=held,
        elsewhere=_elsewhere(
            tenant, picks, sorted(subjects), texts, {line.payload for line in (*all_lines, *all_follows)}
        ),
        digest=_digest(picks, all_lines, all_follows, sorted(unsupported), held, counted),
        subjects=tuple(sorted(subjects)),
        keys=tuple(sorted(keys)),
        texts=tuple(texts_made),
    )


def _falls(tenant: UUID, quote: UUID | None, content: Sequence[Any], text: str | None, spans: Sequence[Span]) -> bool:
    """Whether what was said in an episode falls with it, or with the spans of it."""
    if not spans:
        return True
    said = None if quote is None else _text(tenant, quote, content, "quote")
    return said is not None and text is not None and touched(text, said, spans)


def _held(tenant: UUID, lines: Iterable[Line]) -> dict[tuple[str, UUID], tuple[UUID, ...]]:
    by_kind: dict[str, list[UUID]] = {}
    for line in lines:
        if line.kind != "saying":
            by_kind.setdefault(line.kind, []).append(line.target)
    # A proposal that holds the same quote as evidence loses it as well.
    sharing = {candidate for _, candidate in erasure.sharing_quotes(tenant, by_kind.get("evidence", []))}
    if sharing:
        by_kind["candidate"] = sorted({*by_kind.get("candidate", []), *sharing})
    return {
        (kind, record): tuple(found)
        for kind, ids in by_kind.items()
        for record, found in holds.held(tenant, kind, ids).items()
    }


def _digest(
    picks: Sequence[Pick],
    lines: Sequence[Line],
    follows: Sequence[Line],
    unsupported: Sequence[UUID],
    held: Mapping[tuple[str, UUID], Sequence[UUID]],
    counted: Mapping[UUID, int],
) -> bytes:
    """Return what an application is bound to. What can be made again at any time is not of it: texts, entries, requests."""
    told = [
        [pick.as_json() for pick in picks],
        [[line.kind, line.target, line.payload] for line in (*lines, *follows)],
        list(unsupported),
        [[kind, each, *found] for (kind, each), found in sorted(held.items())],
        [[each, counted[each]] for each in sorted(counted)],
    ]
    return sha256(json.dumps(told, default=str, separators=(",", ":")).encode("ascii")).digest()


_OTHERS = """
SELECT w.kind, w.id, p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version FROM (
  SELECT 'fact' AS kind, f.id, f.payload_id FROM memory_fact f
    WHERE f.tenant_id = %(tenant)s::uuid AND f.subject_id = ANY (%(subjects)s::uuid[])
  UNION ALL
  SELECT 'episode', e.id, e.payload_id FROM memory_episode e
    WHERE e.tenant_id = %(tenant)s::uuid AND e.subject_id = ANY (%(subjects)s::uuid[])
  UNION ALL
  SELECT 'candidate', c.id, c.payload_id FROM memory_candidate c
    WHERE c.tenant_id = %(tenant)s::uuid AND c.subject_id = ANY (%(subjects)s::uuid[])
  UNION ALL
  SELECT 'evidence', e.id, e.quote_id FROM memory_factkey k
    JOIN memory_evidence e ON e.tenant_id = k.tenant_id AND e.key_id = k.id AND e.quote_id IS NOT NULL
    WHERE k.tenant_id = %(tenant)s::uuid AND k.subject_id = ANY (%(subjects)s::uuid[])
  ORDER BY 2 DESC LIMIT %(most)s) w
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = p.key_id OFFSET 0) k
    ON true
WHERE p.clear IS NOT NULL OR p.sealed IS NOT NULL
"""
_VALUES = """
SELECT f.id, p.id, p.clear, p.sealed, k.wrapped, k.version FROM memory_fact f
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[])
"""
#: What is shorter stands in too many texts to mean anything there.
_SHORTEST = 3


def _elsewhere(
    tenant: UUID,
    picks: Sequence[Pick],
    subjects: Sequence[UUID],
    texts: Mapping[UUID, tuple[str | None, tuple[Span, ...]]],
    changed: Collection[UUID | None],
) -> tuple[tuple[str, UUID], ...]:
    """Return the newest other records of the same subjects that say, to the letter but for case, what is taken out here."""
    said: set[str] = set()
    for text, spans in texts.values():
        said |= {(text or "")[start:end].strip().casefold() for start, end in spans}
    facts = [pick.target for pick in picks if pick.kind is Kind.FACT and pick.whole]
    for _, payload, *content in rows.fetch(_VALUES, [tenant, facts]) if facts else ():
        value = json.loads(_text(tenant, payload, content, "value") or "null")
        if isinstance(value, str):
            said.add(value.strip().casefold())
    said = {each for each in said if len(each) >= _SHORTEST}
    if not said or not subjects:
        return ()
    given = {"tenant": tenant, "subjects": list(subjects), "most": LOOKED_THROUGH}
    found = []
    for kind, record, payload, purpose, *content in rows.fetch(_OTHERS, given):
        if payload in changed:
            continue
        text = (_text(tenant, payload, content, purpose) or "").casefold()
        if any(each in text for each in said):
            found.append((kind, record))
    return tuple(sorted(found))


# asking ---------------------------------------------------------------------------------------------------------------


def propose(
    actor: Actor,
    picks: Sequence[Pick],
    *,
    reason: str,
    now: datetime,
    shown: bytes | None = None,
    cause: UUID | None = None,
) -> RedactionRequest:
    """Propose to redact `picks`: from the commit on no agent reads any of it, nor what falls with it, until it is decided.

    `shown` is the digest of the preview that the proposer saw, None for none; raises `Clash("changed_since_shown")` where
    another would be shown now. Raises as `preview` does, `Clash("already_required")` for a record that waits already, and
    `Refused` for a reason that is none. In the caller's transaction under `Role.STAFF`.
    """
    if cause is None:
        _require_proposer(actor)
        if reason not in REASONS:
            raise Refused("redaction_refused", errors=[FieldError("reason", "not_in_enum")])
    tenant = actor.tenant
    holds.share(tenant)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        foreseen = _foreseen(tenant, _checked(tenant, picks))
    _lock(tenant, foreseen)
    _require_free(tenant, foreseen)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        # What was said meanwhile counts: the locks have been had since.
        foreseen = _foreseen(tenant, foreseen.picks)
    if shown is not None and foreseen.digest != shown:
        raise Clash("changed_since_shown")
    proposal = RedactionRequest(
        tenant_id=tenant,
        reason=reason,
        cause_id=cause,
        requester_kind=actor.kind.value,
        requested_by=actor.id,
        requested_at=now,
    )
    proposal.save(force_insert=True)
    proposal.refresh_from_db()
    _keep_items(proposal, foreseen)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        every = (*foreseen.lines, *foreseen.follows)
        payloads = [line.payload for line in every if line.payload is not None]
        marks.hide(tenant, [(line.kind, line.target) for line in every], payloads)
        rows.throw_away(tenant, foreseen.texts)
    append([_event(actor, Action.REDACTION_REQUIRED, proposal, reason, **foreseen.counts)])
    return proposal


def withdraw(actor: Actor, proposal: UUID) -> RedactionRequest:
    """Take one's own proposal back: what it hid shows again. Raises `Missing`, `Forbidden("not_the_requester")`, `Clash`."""
    holds.share(actor.tenant)
    found = _waiting(actor.tenant, proposal)
    if found.requested_by != actor.id:
        raise Forbidden("not_the_requester")
    return _give_back(actor, found, "withdrawn", "withdrawn")


def refuse(actor: Actor, proposal: UUID, *, reason: str, now: datetime) -> RedactionRequest:
    """Refuse another's proposal: what it hid shows again. Raises as `apply` does, but for digests and holds."""
    if reason not in REFUSE_REASONS:
        raise Refused("decision_refused", errors=[FieldError("reason", "not_in_enum")])
    holds.share(actor.tenant)
    found = _waiting(actor.tenant, proposal)
    _require_decider(actor, found, now)
    return _give_back(actor, found, "refused", reason)


# What another proposal still asks for stays hidden.
_OTHERS_ASK = """
SELECT i.target_id, i.payload_id FROM retention_redactionitem i CROSS JOIN LATERAL (SELECT FROM retention_redactionrequest r
  WHERE r.tenant_id = i.tenant_id AND r.id = i.request_id AND r.state = 'required' OFFSET 0) r
WHERE i.tenant_id = %s::uuid AND (i.target_id = ANY (%s::uuid[]) OR i.payload_id = ANY (%s::uuid[]))
"""


def _give_back(actor: Actor, proposal: RedactionRequest, state: str, reason: str) -> RedactionRequest:
    proposal.state, proposal.decision_reason = state, reason
    proposal.save(update_fields=["state", "decision_reason"])
    proposal.refresh_from_db()
    lines = [Line(each.kind, each.target_id, each.payload_id) for each in _items(proposal)]
    payloads = [line.payload for line in lines if line.payload is not None]
    asked = rows.fetch(_OTHERS_ASK, [actor.tenant, [line.target for line in lines], payloads])
    stay = {each for row in asked for each in row}
    records = [(line.kind, line.target) for line in lines if line.target not in stay]
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        marks.show(actor.tenant, records, [each for each in payloads if each not in stay])
    action = Action.REDACTION_WITHDRAWN if state == "withdrawn" else Action.REDACTION_REFUSED
    append([_event(actor, action, proposal, reason)])
    return proposal


_LOCK_SUBJECTS = """
SELECT 1 FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = ANY (%s::uuid[]) ORDER BY s.id FOR UPDATE
"""
_LOCK_EPISODES = """
SELECT 1 FROM memory_episode e WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) ORDER BY e.id FOR UPDATE
"""
_LOCK_KEYS = """
SELECT 1 FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY (%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE
"""


def _lock(tenant: UUID, foreseen: Preview) -> None:
    """Wait for whoever writes about the same just now, and keep others out: what they add is seen, or what is hidden is."""
    episodes = [line.target for line in foreseen.lines if line.kind == "episode"]
    asked = ((_LOCK_SUBJECTS, foreseen.subjects), (_LOCK_EPISODES, episodes), (_LOCK_KEYS, foreseen.keys))
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        for statement, ids in asked:
            if ids:
                rows.fetch(statement, [tenant, list(ids)])


_WAITS_ALREADY = """
SELECT i.id FROM retention_redactionitem i CROSS JOIN LATERAL (SELECT FROM retention_redactionrequest r
  WHERE r.tenant_id = i.tenant_id AND r.id = i.request_id AND r.state = 'required' OFFSET 0) r
WHERE i.tenant_id = %s::uuid AND i.target_id = ANY (%s::uuid[]) AND i.picked LIMIT 1
"""


def _require_free(tenant: UUID, foreseen: Preview) -> None:
    if rows.fetch(_WAITS_ALREADY, [tenant, [line.target for line in foreseen.lines]]):
        raise Clash("already_required")


_ITEM = [
    ("id", "uuid"),
    ("kind", "text"),
    ("target_id", "uuid"),
    ("payload_id", "uuid"),
    ("picked", "boolean"),
    ("strategy", "text"),
    ("fields", "text[]"),
    ("spans", "integer[]"),
]
_ADD_ITEMS = f"""
INSERT INTO retention_redactionitem (tenant_id, request_id, {", ".join(name for name, _ in _ITEM)})
SELECT %(tenant)s::uuid, %(proposal)s::uuid, w.* FROM {rows.recordset("items", _ITEM)}
ON CONFLICT (tenant_id, request_id, kind, target_id) DO NOTHING
"""


def _keep_items(proposal: RedactionRequest, foreseen: Preview) -> None:
    """Record what the proposal is about, and what goes along; what is recorded already stays as it is."""
    picks = {(pick.kind.value, pick.target): pick for pick in foreseen.picks}
    items = []
    for line in (*foreseen.lines, *foreseen.follows):
        pick = picks.get((line.kind, line.target))
        spans = [] if pick is None else [place for span in pick.spans for place in span]
        fields = [] if pick is None else list(pick.fields)
        strategy = (Strategy.NULL if pick is None else pick.strategy).value
        items.append((new_id(), line.kind, line.target, line.payload, pick is not None, strategy, fields, spans))
    given = {"tenant": proposal.tenant_id, "proposal": proposal.id, "items": rows.as_json([n for n, _ in _ITEM], items)}
    rows.execute(_ADD_ITEMS, given)


# applying -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What deciding to apply came to: content was taken out, or holds stopped it (`held`), which is recorded."""

    proposal: RedactionRequest
    applied: bool
    held: Mapping[tuple[str, UUID], tuple[UUID, ...]]
    #: Proposals about facts that lost their last quote by it.
    asked: tuple[UUID, ...] = ()


def apply(actor: Actor, proposal: UUID, *, shown: bytes, reason: str, now: datetime) -> Outcome:
    """Take out what a proposal names, for good, as another than its proposer was shown it; all of it, or nothing.

    One transaction: cut off anywhere, it has happened or it has not, and what waits goes on waiting. Where a hold covers any
    of it nothing changes but that the attempt is recorded, so a face must commit that. What was taken out is suppressed:
    it does not come back from the same text, nor said anew as of before. Raises `Missing`, `Forbidden("own_request")`,
    `Forbidden("role_missing")`, `Clash("already_decided")`, `Clash("changed_since_shown")`, `Refused` for a reason that is
    none, `Unavailable` where the log of endings cannot be written.
    """
    if reason not in APPLY_REASONS:
        raise Refused("decision_refused", errors=[FieldError("reason", "not_in_enum")])
    tenant = actor.tenant
    holds.share(tenant)
    found = _waiting(tenant, proposal)
    _require_decider(actor, found, now)
    picks = _picks_of(found)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        foreseen = _foreseen(tenant, picks)
    _lock(tenant, foreseen)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        foreseen = _foreseen(tenant, picks)
    if foreseen.digest != shown:
        raise Clash("changed_since_shown")
    if foreseen.held:
        _record_held(actor, foreseen)
        return Outcome(found, False, foreseen.held)
    _keep_items(found, foreseen)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        left = _left(tenant, foreseen)
        suppressed = _suppress(tenant, found.id, foreseen, now)
    counts = {**foreseen.counts, "suppressed": suppressed}
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        run, certificate = _certify(actor, found, foreseen, counts, now)
    found.state, found.decision_reason, found.digest, found.counts = "applied", reason, foreseen.digest, counts
    found.run_id, found.certificate_id = run, certificate
    found.save(update_fields=["state", "decision_reason", "digest", "counts", "run_id", "certificate_id"])
    found.refresh_from_db()
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        rows.PAYLOADS.insert(tenant, [each.payload for each in left.values()])
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        rows.throw_away(tenant, foreseen.texts)
        _end(tenant, (*foreseen.lines, *foreseen.follows), now)
        _mark(tenant, foreseen, left)
        marks.forget(
            tenant, [line.payload for line in foreseen.lines if line.target in left and line.payload is not None]
        )
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        search.store(tenant, [each.found_by for each in left.values() if each.found_by is not None])
    asked = _ask_about(actor, found, foreseen.unsupported, now)
    _tell_outside(tenant, found, foreseen)
    changed = [line for line in (*foreseen.lines, *foreseen.follows) if line.kind != "saying"]
    append(
        [
            _event(actor, Action.REDACTION_APPLIED, found, reason, **found.counts),
            *(
                Event(actor=actor, action=Action.CONTENT_REDACTED, target_kind=line.kind, target_id=line.target, reason=found.reason)
                for line in changed
            ),
        ]
    )  # fmt: skip
    return Outcome(found, True, {}, asked)


def _record_held(actor: Actor, foreseen: Preview) -> None:
    by_kind: dict[str, list[UUID]] = {}
    for kind, record in foreseen.held:
        by_kind.setdefault(kind, []).append(record)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        for kind, ids in by_kind.items():
            holds.free(actor.tenant, kind, ids, actor=actor, act="redaction")


# what is left ---------------------------------------------------------------------------------------------------------

_CONTENT = "p.id, p.purpose, p.key_id, p.sensitivity, p.basis, p.expires_at, p.consent_ids, p.clear, p.sealed, k.wrapped, k.version"
_VALUES_WITH_KEYS = f"""
SELECT f.id, v.definition->'schema', o.wrapped, o.version, {_CONTENT}
FROM memory_fact f
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
  CROSS JOIN LATERAL (SELECT * FROM memory_subject x WHERE x.tenant_id = f.tenant_id AND x.id = f.subject_id OFFSET 0) s
  CROSS JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = s.tenant_id AND x.id = s.key_id OFFSET 0) o
  CROSS JOIN LATERAL (SELECT * FROM policies_attributeversion x WHERE x.tenant_id = f.tenant_id
    AND x.id = f.attribute_version_id OFFSET 0) v
WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[]) AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)
"""
_TEXTS_WITH_KEYS = f"""
SELECT e.id, e.subject_id, e.occurred_at, o.wrapped, o.version, {_CONTENT}
FROM memory_episode e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
  LEFT JOIN LATERAL (SELECT * FROM memory_subject x WHERE x.tenant_id = e.tenant_id AND x.id = e.subject_id OFFSET 0) s ON true
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = s.tenant_id AND x.id = s.key_id OFFSET 0) o ON true
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left of a record, as content of its own: as sensitive, as long and under the same key as what it was."""

    payload: rows.PayloadRow = field(repr=False)
    #: Of an episode, how its words are found again.
    found_by: search.Text | None = field(default=None, repr=False)


def _left(tenant: UUID, foreseen: Preview) -> dict[UUID, _Left]:
    """Return what the strategies leave of facts and episodes, by record; nothing for those of which nothing is left."""
    picks = {
        pick.target: pick for pick in foreseen.picks if pick.fields or pick.spans or pick.strategy is not Strategy.NULL
    }
    made: dict[UUID, _Left] = {}
    facts = [each for each, pick in picks.items() if pick.kind is Kind.FACT]
    for fact, schema, wrapped, version, *content in rows.fetch(_VALUES_WITH_KEYS, [tenant, facts]) if facts else ():
        pick, key = picks[fact], _data_key(tenant, wrapped, version)
        value = json.loads(_opened(tenant, content))
        if pick.fields:
            schema = json.loads(schema) if isinstance(schema, str) else schema
            ways = [way for way in (declared(schema, path) for path in pick.fields) if way is not None]
            rest = without(value, ways, pick.strategy, key)
        else:
            rest = redacted(value, pick.strategy, key)
        made[fact] = _Left(_payload(tenant, canonical_text(rest), content))
    episodes = [each for each, pick in picks.items() if pick.kind is Kind.EPISODE]
    for episode, subject, at, wrapped, version, *content in (
        rows.fetch(_TEXTS_WITH_KEYS, [tenant, episodes]) if episodes else ()
    ):
        pick, text = picks[episode], _opened(tenant, content)
        # An episode about nobody has a key of its own.
        key = _data_key(tenant, *((wrapped, version) if wrapped is not None else content[9:11]))
        rest = cut(text, pick.spans or [(0, len(text))], pick.strategy, key)
        row = _payload(tenant, rest, content)
        made[episode] = _Left(
            row,
            search.Text(
                "episode", episode, subject, row.id, at, rest, row.sensitivity, row.expires_at, row.consent_ids
            ),
        )
    return made


def _data_key(tenant: UUID, wrapped: Any, version: int | None) -> bytes:
    # What stands in clear about nobody has no key at all: its pseudonyms are under one that nobody keeps.
    return (
        secrets.token_bytes(32)
        if wrapped is None or version is None
        else keyring().unwrap(tenant, bytes(wrapped), version)
    )


def _opened(tenant: UUID, content: Sequence[Any]) -> str:
    return opened(tenant, content[0], content[1], *content[7:11])


def _payload(tenant: UUID, text: str, content: Sequence[Any]) -> rows.PayloadRow:
    _, purpose, key_id, sensitivity, basis, expires_at, consents, _, sealed, wrapped, version = content
    payload, clear = new_id(), None
    if sealed is None:
        clear, resealed = text, None
    else:
        key = keyring().unwrap(tenant, bytes(wrapped), version)
        resealed = keyring().seal(key, text.encode("utf-8"), payload_context(tenant, payload, purpose))
    # Written at no instant of the record's: that of its redaction tells nothing of what it was.
    return rows.PayloadRow(
        payload, purpose, key_id, clear, resealed, sensitivity, basis, expires_at, rows.uuids(consents), _now()
    )


def _now() -> datetime:
    now: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
    return now


# what does not come back ----------------------------------------------------------------------------------------------

_SAID = f"""
SELECT f.subject_id, a.id, a.name, {_CONTENT}
FROM memory_fact f
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
  CROSS JOIN LATERAL (SELECT * FROM memory_factkey x WHERE x.tenant_id = f.tenant_id AND x.id = f.key_id OFFSET 0) q
  CROSS JOIN LATERAL (SELECT * FROM policies_attribute x WHERE x.tenant_id = q.tenant_id AND x.id = q.attribute_id OFFSET 0) a
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[]) AND f.redaction_fields = '{{}}'
  AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)
UNION ALL
SELECT c.subject_id, a.id, a.name, {_CONTENT}
FROM memory_candidate c
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = c.tenant_id AND x.id = c.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
  CROSS JOIN LATERAL (SELECT * FROM policies_attribute x WHERE x.tenant_id = c.tenant_id AND x.id = c.attribute_id OFFSET 0) a
WHERE c.tenant_id = %(tenant)s::uuid AND c.id = ANY (%(candidates)s::uuid[]) AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)
"""
_SOURCES = f"""
SELECT e.turn_id, {_CONTENT}
FROM memory_episode e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND e.redaction_fields = '{{}}' AND (p.clear IS NOT NULL OR p.sealed IS NOT NULL)
"""


#: A shorter text is said by many: it is recognised with its turn alone.
_TELLING = 20


def _suppress(tenant: UUID, proposal: UUID, foreseen: Preview, now: datetime) -> int:
    """Remember, as digests, what is taken out: the values under their subjects' names, the texts with their turns."""
    wanted = []
    names: dict[UUID, list[bytes]] = {}
    given = {
        "tenant": tenant,
        "facts": [line.target for line in foreseen.lines if line.kind == "fact"],
        "candidates": [line.target for line in (*foreseen.lines, *foreseen.follows) if line.kind == "candidate"],
    }
    for subject, attribute, name, *content in rows.fetch(_SAID, given):
        if subject not in names:
            names[subject] = suppression.names_of(tenant, subject)
        value = _opened(tenant, content)
        wanted += [
            suppression.Suppressed(suppression.Key.SAYING, suppression.of_saying(tenant, each, name, value), attribute)
            for each in names[subject]
        ]
    episodes = [line.target for line in foreseen.lines if line.kind == "episode"]
    for turn, *content in rows.fetch(_SOURCES, [tenant, episodes]) if episodes else ():
        text = _opened(tenant, content)
        wanted.append(suppression.Suppressed(suppression.Key.SOURCE, suppression.of_source(tenant, turn, text)))
        if len(text) >= _TELLING:
            wanted.append(suppression.Suppressed(suppression.Key.TEXT, suppression.of_text(tenant, text)))
    return len(suppression.add(tenant, wanted, cause="redacted", target_kind="redaction", target=proposal, now=now))


# taking out -----------------------------------------------------------------------------------------------------------


def _of(lines: Iterable[Line], kind: str) -> list[UUID]:
    return [line.target for line in lines if line.kind == kind]


def _end(tenant: UUID, every: Sequence[Line], now: datetime) -> None:
    facts = _of(every, "fact")
    erasure.end_facts(tenant, facts, "redacted", now)
    of_facts = {row[0] for row in rows.fetch(_SAID_OF_FACTS, [tenant, facts])} if facts else set()
    erasure.end_quotes(tenant, [each for each in _of(every, "evidence") if each not in of_facts], "redacted")
    erasure.end_episodes(tenant, _of(every, "episode"), "redacted", now)
    erasure.end_candidates(tenant, _of(every, "candidate"), "redacted", now)
    erasure.erase_payloads(
        tenant, [line.payload for line in every if line.kind == "saying" and line.payload is not None]
    )


def _mark(tenant: UUID, foreseen: Preview, left: Mapping[UUID, _Left]) -> None:
    every = (*foreseen.lines, *foreseen.follows)

    def of(kind: Kind, name: str) -> list[marks.Mark]:
        return [
            marks.Mark(
                pick.target,
                left[pick.target].payload.id if pick.target in left else None,
                rows.words([f"{name}.{path}" for path in pick.fields] or [name]),
            )
            for pick in foreseen.picks
            if pick.kind is kind
        ]

    marks.mark(
        tenant,
        facts=of(Kind.FACT, "value"),
        episodes=of(Kind.EPISODE, "content"),
        candidates=_of(every, "candidate"),
        quotes=_of(every, "evidence"),
    )


def _ask_about(actor: Actor, cause: RedactionRequest, facts: Sequence[UUID], now: datetime) -> tuple[UUID, ...]:
    """Put before a person each fact that lost its last quote: hidden until somebody redacts it, or lets it stand."""
    asked = []
    for fact in facts:
        if rows.fetch(_WAITS_ALREADY, [actor.tenant, [fact]]):
            continue
        pick = Pick(kind=Kind.FACT, target=fact)
        asked.append(propose(actor, [pick], reason=QUOTE_FELL, now=now, cause=cause.id).id)
    return tuple(asked)


#: What a redaction of single records does not reach, since it destroys no key.
_NOT_REACHED = ("backups_until_they_age_out", "dead_rows_until_vacuum", "log_until_recycled", "what_readers_kept")


def _certify(
    actor: Actor, proposal: RedactionRequest, foreseen: Preview, counts: Mapping[str, int], now: datetime
) -> tuple[UUID, UUID]:
    """Have the redaction run in one step, and sign what was done by it; return run and certificate."""
    run, _ = runs.begin(actor, "redaction", target_kind="redaction", target_id=proposal.id, now=now)
    run = runs.finish(actor, runs.advance(actor.tenant, run, step="redact", counts=counts))
    body = {
        "redaction": proposal.id,
        "reason": proposal.reason,
        "requested_by": {"kind": proposal.requester_kind, "id": proposal.requested_by},
        "items": [[pick.kind.value, pick.target, pick.strategy.value] for pick in foreseen.picks],
        "shown": foreseen.digest.hex(),
        "counts": dict(counts),
        "method": "content_overwritten",
        "not_reached": list(_NOT_REACHED),
    }
    return run.id, certificates.issue(actor, "redaction", run, body, now).id


#: Records of one entry of the endings log.
_TOLD_AT_ONCE = 500


def _tell_outside(tenant: UUID, proposal: RedactionRequest, foreseen: Preview) -> None:
    """Owe the log of endings what a restored backup has to be rid of: records, and the payloads that held their content."""
    lines = [
        [line.kind, str(line.target), None if line.payload is None else str(line.payload)]
        for line in (*foreseen.lines, *foreseen.follows)
    ]
    for at in range(0, len(lines), _TOLD_AT_ONCE):
        record = {"reason": proposal.reason, "records": lines[at : at + _TOLD_AT_ONCE]}
        endings_log.owe(tenant, endings_log.Kind.REDACTION, proposal.id, record)


_THERE = """
SELECT x.id FROM memory_fact x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = ANY (%(ids)s::uuid[])
UNION ALL SELECT x.id FROM memory_evidence x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = ANY (%(ids)s::uuid[])
UNION ALL SELECT x.id FROM memory_episode x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = ANY (%(ids)s::uuid[])
UNION ALL SELECT x.id FROM memory_candidate x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = ANY (%(ids)s::uuid[])
UNION ALL SELECT x.id FROM memory_candidatesaying x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = ANY (%(ids)s::uuid[])
"""


def end_again(tenant: UUID, records: Sequence[Sequence[Any]], *, now: datetime) -> bool:
    """Take out again what the log of endings tells was taken out, in a restored database; return whether any of it was there.

    Nothing is left of it: what a strategy had left was not told outside. Harmless to repeat. Under `Role.WORKER`.
    """
    holds.share(tenant)
    lines = [Line(kind, UUID(record), None if payload is None else UUID(payload)) for kind, record, payload in records]
    there = {row[0] for row in rows.fetch(_THERE, {"tenant": tenant, "ids": [line.target for line in lines]})}
    lines = [line for line in lines if line.target in there]
    _end(tenant, lines, now)
    marks.mark(
        tenant,
        facts=[marks.Mark(each, None, rows.words(["value"])) for each in _of(lines, "fact")],
        episodes=[marks.Mark(each, None, rows.words(["content"])) for each in _of(lines, "episode")],
        candidates=_of(lines, "candidate"),
        quotes=_of(lines, "evidence"),
    )
    return bool(lines)


# what a person is shown ------------------------------------------------------------------------------------------------

_SHOWN = """
SELECT p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version, w.schema, w.subjects FROM ({record}) w
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.payload_id
    AND x.sensitivity <= %(most)s AND NOT x.restricted AND (x.expires_at IS NULL OR x.expires_at > statement_timestamp())
    AND (x.consent_ids IS NULL OR consent_stands(x.consent_ids)) AND (x.clear IS NOT NULL OR x.sealed IS NOT NULL) OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = p.key_id OFFSET 0) k
    ON true
"""
_RECORDS = {
    Kind.FACT: "SELECT f.payload_id, v.definition->'schema' AS schema, ARRAY[f.subject_id] AS subjects FROM memory_fact f"
    " JOIN policies_attributeversion v ON v.tenant_id = f.tenant_id AND v.id = f.attribute_version_id"
    " WHERE f.tenant_id = %(tenant)s::uuid AND f.id = %(id)s::uuid",
    Kind.EPISODE: "SELECT e.payload_id, NULL::jsonb AS schema, e.mentioned_ids || e.subject_id AS subjects FROM memory_episode e"
    " WHERE e.tenant_id = %(tenant)s::uuid AND e.id = %(id)s::uuid",
    Kind.EVIDENCE: "SELECT e.quote_id AS payload_id, NULL::jsonb AS schema, '{}'::uuid[] AS subjects FROM memory_evidence e"
    " WHERE e.tenant_id = %(tenant)s::uuid AND e.id = %(id)s::uuid",
    Kind.CANDIDATE: "SELECT c.payload_id, NULL::jsonb AS schema, '{}'::uuid[] AS subjects FROM memory_candidate c"
    " WHERE c.tenant_id = %(tenant)s::uuid AND c.id = %(id)s::uuid",
}
_NAMES = """
SELECT p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version FROM memory_subjectidentifier i
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = i.tenant_id AND x.id = i.payload_id
    AND (x.clear IS NOT NULL OR x.sealed IS NOT NULL) OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE i.tenant_id = %s::uuid AND i.subject_id = ANY (%s::uuid[]) LIMIT 200
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A record in clear, and what in it a person may want to pick: spans of a text with what was found there, or fields."""

    text: str = field(repr=False)
    found: tuple[tuple[Span, str], ...] = ()
    fields: tuple[str, ...] = ()


def show(actor: Actor, kind: Kind, target: UUID) -> Shown | None:
    """Return a record in clear for whoever proposes or decides, and write into the chain that it was shown.

    Nothing above `personal` is opened, nor what has ended; None then. In an episode the names that its subjects are known
    by and whatever detection finds are proposed as spans. In the caller's transaction under `Role.STAFF`. Raises `Forbidden`.
    """
    _require_role(actor, MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        shown = _shown(actor.tenant, kind, target)
    if shown is not None:
        append(
            [
                Event(
                    actor=actor,
                    action=Action.CONTENT_SHOWN,
                    target_kind=kind.value,
                    target_id=target,
                    reason="redaction",
                    numbers={"found": len(shown.found)},
                )
            ]
        )
    return shown


def _shown(tenant: UUID, kind: Kind, target: UUID) -> Shown | None:
    given = {"tenant": tenant, "id": target, "most": int(Sensitivity.PERSONAL)}
    found = rows.fetch(_SHOWN.format(record=_RECORDS[kind]), given)
    if not found:
        return None
    payload, purpose, *content, schema, subjects = found[0]
    text = opened(tenant, payload, purpose, *content)
    if kind is Kind.EPISODE:
        names = [opened(tenant, *row) for row in rows.fetch(_NAMES, [tenant, [each for each in subjects if each]])]
        proposed = detect(text, known=Known(names), omit=(Group.HIDDEN, Group.INSTRUCTION))
        return Shown(text, tuple(((each.start, each.end), each.detector) for each in proposed[:MOST_SPANS]))
    if kind is Kind.FACT and schema is not None:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return Shown(text, fields=tuple(leaves(schema)))
    return Shown(text)


def spans_of(actor: Actor, episode: UUID, words: str) -> list[Span]:
    """Return where the text of an episode says `words`, in whatever case; nothing of the text. Raises `Missing`, `Forbidden`."""
    _require_proposer(actor)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        found = rows.fetch(_EPISODES, [actor.tenant, [episode]])
        if not found:
            raise Missing
        text = _text(actor.tenant, found[0][1], found[0][3:7]) or ""
    pattern = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
    return [each.span() for each in pattern.finditer(text)][:MOST_SPANS] if words.strip() else []


# what waits -----------------------------------------------------------------------------------------------------------


def queue(tenant: UUID, *, after: UUID | None = None, limit: int = SHOWN) -> list[RedactionRequest]:
    """Return the proposals that wait for a privacy officer, oldest first; with `after`, those younger than it.

    Among them are the facts that lost their last quote (`quote_fell`). Under `Role.STAFF`.
    """
    found = RedactionRequest.objects.filter(tenant_id=tenant, state="required").order_by("id")
    return list((found if after is None else found.filter(id__gt=after))[:limit])


def picked(proposals: Sequence[RedactionRequest]) -> dict[UUID, tuple[Pick, ...]]:
    """Return what was picked by each proposal. Under `Role.STAFF`."""
    found: dict[UUID, list[Pick]] = {}
    items = RedactionItem.objects.filter(request_id__in=[each.id for each in proposals], picked=True)
    for each in items.order_by("kind", "target_id"):
        pick = Pick(
            kind=Kind(each.kind),
            target=each.target_id,
            strategy=Strategy(each.strategy),
            fields=tuple(each.fields),
            spans=tuple(zip(each.spans[::2], each.spans[1::2], strict=True)),
        )
        found.setdefault(each.request_id, []).append(pick)
    return {name: tuple(picks) for name, picks in found.items()}


# what the acts share --------------------------------------------------------------------------------------------------


def _require_proposer(actor: Actor) -> None:
    if actor.kind is ActorKind.AGENT:
        return
    _require_role(actor, MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER)


def _require_role(actor: Actor, *roles: MemberRole) -> None:
    held = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role__in=[role.value for role in roles])
    if actor.kind is not ActorKind.PERSON or not held.exists():
        raise Forbidden("role_missing")


def may_decide(actor: Actor, proposal: RedactionRequest, *, now: datetime) -> bool:
    """Whether the actor could decide on this proposal: another's, as a privacy officer, themselves or by delegation."""
    if actor.kind is not ActorKind.PERSON or proposal.requested_by == actor.id:
        return False
    role = MemberRole.PRIVACY_OFFICER.value
    if Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role=role).exists():
        return True
    handed = approvals.standing_delegations(actor.tenant, actor.id, now=now)
    givers = [each.given_by for each in handed if each.role == role and each.given_by != proposal.requested_by]
    return Membership.objects.filter(tenant_id=actor.tenant, user_id__in=givers, role=role).exists()


def _require_decider(actor: Actor, proposal: RedactionRequest, now: datetime) -> None:
    if proposal.requested_by == actor.id:
        raise Forbidden("own_request")
    if not may_decide(actor, proposal, now=now):
        raise Forbidden("role_missing")


def _request(tenant: UUID, proposal: UUID) -> RedactionRequest:
    found = RedactionRequest.objects.filter(tenant_id=tenant, id=proposal).first()
    if found is None:
        raise Missing
    return found


def _items(proposal: RedactionRequest) -> list[RedactionItem]:
    found = RedactionItem.objects.filter(tenant_id=proposal.tenant_id, request_id=proposal.id)
    return list(found.order_by("kind", "target_id"))


def _picks_of(proposal: RedactionRequest) -> tuple[Pick, ...]:
    return picked([proposal]).get(proposal.id, ())


def _waiting(tenant: UUID, proposal: UUID) -> RedactionRequest:
    """Return a proposal that waits, locked. Raises `Missing`, `Clash("already_decided")`."""
    found = RedactionRequest.objects.select_for_update().filter(tenant_id=tenant, id=proposal).first()
    if found is None:
        raise Missing
    if found.state != "required":
        raise Clash("already_decided")
    return found


def _event(actor: Actor, action: Action, proposal: RedactionRequest, reason: str, **numbers: int) -> Event:
    digest = None if proposal.digest is None else bytes(proposal.digest)
    return Event(
        actor=actor, action=action, target_kind="redaction", target_id=proposal.id, reason=reason, digest=digest,
        numbers={**numbers},
    )  # fmt: skip
