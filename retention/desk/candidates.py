"""Proposals that wait for a person: sensitive facts to confirm, and conflicts between two sayings.

What is decided goes through the write door, in the person's name, bound under the key's lock to what they saw.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from memory import remember, sight
from memory.legible import Piece, compared, pieces, veiled
from memory.models import Candidate, CandidateSaying, Episode
from memory.outcomes import Denied, Instead, Seen
from memory.rows import fetch
from policies import wording
from policies.models import PolicyVersion
from policies.rules import PolicyDocument, policy_document
from policies.vocabulary import Basis, Sensitivity
from retention import matters, redaction
from retention.desk import redacting
from retention.desk.claims import digest_of
from retention.desk.queues import COUNTED, PAGE, REACH, Backlog, Choice, Item, Place, Row, as_writer, holds_on
from retention.models import Matter
from tenants.actors import Actor, MemberRole
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identity import uuid_or_missing
from tenants.models import Agent
from tenants.words import gettext_lazy, in_words

_CONFLICTS = "c.reasons && '{conflict_of_equals,conflict_for_review,confirmed_by_a_person}'::text[]"
_WAITS = "c.tenant_id = %(tenant)s AND c.state = 'asked' AND {those} AND c.redaction_state = 'none' AND (c.expires_at IS NULL OR c.expires_at > statement_timestamp())"
_AFTER = "(c.due_at, c.id) > (%(due)s::timestamptz, %(id)s::uuid)"

_BACKLOG = """
SELECT count(*), min(x.due_at), count(*) FILTER (WHERE x.due_at <= %(now)s)
FROM (SELECT c.due_at FROM memory_candidate c WHERE {waits} ORDER BY c.due_at, c.id LIMIT %(most)s) x
"""
_PAGE = """
SELECT c.id, c.due_at, c.act, c.is_end, c.sensitivity, c.subject_id, c.reasons, c.occurrences, a.name,
  k.person_id, d.deferred_until, EXISTS (SELECT FROM memory_factkey h JOIN memory_belief b ON b.tenant_id = h.tenant_id
    AND b.key_id = h.id AND b.believed_to IS NULL AND b.fact_id IS NOT NULL
    WHERE h.tenant_id = c.tenant_id AND h.subject_id = c.subject_id AND h.attribute_id = c.attribute_id)
FROM (SELECT * FROM memory_candidate c WHERE {waits} AND {on} ORDER BY c.due_at, c.id LIMIT %(limit)s) c
  LEFT JOIN policies_attribute a ON a.tenant_id = c.tenant_id AND a.id = c.attribute_id
  LEFT JOIN retention_claim k ON k.tenant_id = c.tenant_id AND k.item_id = c.id AND k.ended_at IS NULL
    AND k.expires_at > statement_timestamp()
  LEFT JOIN LATERAL (SELECT x.deferred_until FROM retention_claim x WHERE x.tenant_id = c.tenant_id AND x.item_id = c.id
    AND x.deferred_until > statement_timestamp() ORDER BY x.id DESC LIMIT 1) d ON true
ORDER BY c.due_at, c.id
"""
_FOLLOWING = """
SELECT c.id FROM memory_candidate c
WHERE {waits} AND {on} AND coalesce(c.confirm_by, 'reviewer') = ANY(%(roles)s)
  AND NOT EXISTS (SELECT FROM retention_claim k WHERE k.tenant_id = c.tenant_id AND k.item_id = c.id
    AND (k.ended_at IS NULL AND k.expires_at > statement_timestamp() OR k.deferred_until > statement_timestamp()))
ORDER BY c.due_at, c.id LIMIT %(limit)s
"""
_ACTS = """
SELECT coalesce((SELECT k.act_no FROM memory_factkey k
    WHERE k.tenant_id = c.tenant_id AND k.subject_id = c.subject_id AND k.attribute_id = c.attribute_id), 0),
  (SELECT count(*) FROM (SELECT FROM memory_derived d
    WHERE d.tenant_id = c.tenant_id AND d.subject_id = c.subject_id AND d.payload_id IS NOT NULL LIMIT 100) x),
  (SELECT count(*) FROM (SELECT FROM memory_candidate o WHERE o.tenant_id = c.tenant_id AND o.subject_id = c.subject_id
    AND o.state IN ('asked', 'buffered') AND o.id <> c.id LIMIT 100) x),
  (SELECT count(*) FROM (SELECT FROM memory_candidate o WHERE o.tenant_id = c.tenant_id AND o.attribute_id = c.attribute_id
    AND o.state = 'asked' AND o.id <> c.id LIMIT 100) x),
  (SELECT count(*) FROM (SELECT DISTINCT s.candidate_id FROM memory_candidatesaying s
    JOIN memory_candidate o ON o.tenant_id = s.tenant_id AND o.id = s.candidate_id AND o.state = 'asked'
    WHERE s.tenant_id = c.tenant_id AND s.candidate_id <> c.id AND s.episode_id IN
      (SELECT m.episode_id FROM memory_candidatesaying m WHERE m.tenant_id = c.tenant_id AND m.candidate_id = c.id)
    LIMIT 100) x)
FROM memory_candidate c WHERE c.tenant_id = %s AND c.id = %s
"""

#: Of the sayings behind a proposal so many are shown, the newest first.
SAYINGS = 5
_CONFIRM = Choice("confirm", "a", gettext_lazy("Confirm"), wording.DECIDING["confirm"], undo=gettext_lazy("Confirmed"))
_EDIT = Choice(
    *(
        "edit",
        "e",
        gettext_lazy("Edit"),
        {
            "evidence_supports": gettext_lazy("evidence supports"),
            "subject_confirmed": gettext_lazy("subject confirmed"),
        },
    ),
    form="value",
    hint=gettext_lazy("Another value is confirmed in place of the proposed one, as your own saying."),
)
_REJECT = Choice(
    "reject",
    "d",
    gettext_lazy("Reject"),
    wording.DECIDING["reject"],
    ends=True,
    bulk=True,
    undo=gettext_lazy("Rejected"),
)
_REDACT = redacting.choice(
    {"not_to_be_kept": gettext_lazy("not to be kept"), "third_party": gettext_lazy("about somebody else"), "excessive": gettext_lazy("more than is needed"),
     "wrong_subject": gettext_lazy("about the wrong subject"), "credential": gettext_lazy("a credential"), "other": "other"},
    bulk=True,
)  # fmt: skip
_HOLD = Choice(
    *("hold", "h", gettext_lazy("Hold"), {"hold": gettext_lazy("for the matter")}),
    form="matter",
    keeps=True,
    hint=gettext_lazy("What the hold covers does not end, whoever asks, until another person releases it."),
)
_MORE = Choice(
    *("ask_more", "q", gettext_lazy("Ask for more")),
    {"needs_source": gettext_lazy("needs a source"), "needs_subject": gettext_lazy("needs the subject's word"), "needs_consent": gettext_lazy("needs a consent"),
     "other": "other"},
    hint=gettext_lazy("It stays as it is, and comes back to everybody in a day."),
    bulk=True,
    undo=gettext_lazy("More is asked for"),
)  # fmt: skip


@dataclass(frozen=True)
class Candidates:
    """The queue of proposals of one kind: `those` says in SQL which."""

    name: str
    title: str
    those: str
    template: str = "candidate"
    roles: frozenset[MemberRole] = frozenset({MemberRole.REVIEWER})
    several: tuple[Choice, ...] = (_REJECT, _REDACT, _MORE)

    def _sql(self, text: str, after: Place | None = None) -> str:
        return text.format(waits=_WAITS.format(those=self.those), on="true" if after is None else _AFTER)

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        return Backlog(*fetch(self._sql(_BACKLOG), {"tenant": tenant, "now": now, "most": COUNTED})[0])

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, oldest due first."""
        found = fetch(self._sql(_PAGE, after), {"tenant": tenant, **_from(after), "limit": PAGE + 1})
        return [_row(*each) for each in found]

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds and that the policy leaves to one of `roles`."""
        asked = {"tenant": tenant, "roles": [role.value for role in roles], **_from(after), "limit": REACH}
        return [row[0] for row in fetch(self._sql(_FOLLOWING, after), asked)]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return a proposal that waits, without its content."""
        candidate = (
            Candidate.objects.filter(tenant_id=actor.tenant, id=item, state="asked", redaction_state="none")
            .select_related("attribute", "attribute_version", "policy_version")
            .first()
        )
        return None if candidate is None else _item(actor, roles, candidate)

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return the proposal and what holds now in clear, and record that it was shown."""
        shown = sight.show(actor, item.id, up_to=up_to)
        return None if shown is None else _opened(item, shown, whole=up_to > Sensitivity.PERSONAL)

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Refuse a class that one person may not give."""
        if act == "confirm":
            _class_given(given, item)

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Confirm, edit and confirm, or reject, through the write door; propose to redact it; hold it."""
        if item.barred:
            raise Forbidden("not_yours_to_decide")
        if act == "redact":
            return _propose_redaction(actor, item, reason, given, now)
        if act == "hold":
            return _place_hold(actor, item, given, now)
        instead = Instead(_typed(given.get("value", ""), item)) if act == "edit" else None
        with as_writer(actor):
            outcome = remember.decide_candidate(
                actor,
                item.id,
                accept=act != "reject",
                reason=reason,
                seen=item.facts["seen"],
                instead=instead,
                at_least=_class_given(given, item) if act != "reject" else Sensitivity.PUBLIC,
            )
        if isinstance(outcome, Denied):
            errors = outcome.errors
            raise (
                Clash(outcome.code, errors=errors) if outcome.status == 409 else Refused(outcome.code, errors=errors)
            )
        return {"confirm": _("Confirmed"), "edit": _("Confirmed as edited"), "reject": _("Rejected")}[
            act
        ] + f": {item.title}."


def _class_given(given: Mapping[str, str], item: Item) -> Sensitivity:
    level = given.get("level", str(int(item.level)))
    if level not in {str(int(each)) for each in Sensitivity}:
        raise Refused("request_refused", errors=[FieldError("level", "not_in_enum")])
    if int(level) < item.level:
        raise Forbidden("needs_second_person")
    return Sensitivity(int(level))


def _propose_redaction(actor: Actor, item: Item, reason: str, given: Mapping[str, str], now: datetime) -> str:
    redacting.propose(actor, item, reason, given, now=now)
    return _("Hidden, and proposed for redaction: %(title)s.") % {"title": item.title}


def _place_hold(actor: Actor, item: Item, given: Mapping[str, str], now: datetime) -> str:
    try:
        matter = uuid_or_missing(given.get("matter", ""))
    except Missing:
        raise Refused("request_refused", errors=[FieldError("matter", "required")]) from None
    target = matters.Target(record_kind="candidate", record_id=item.id)
    if given.get("scope") == "subject" and item.subject is not None:
        target = matters.Target(subject_id=item.subject)
    matters.place(actor, matter, [target], now=now)
    return f"Held: {item.title}."


FACTS = Candidates("facts", gettext_lazy("Sensitive facts"), f"NOT ({_CONFLICTS})")
CONFLICTS = Candidates("conflicts", gettext_lazy("Conflicts"), _CONFLICTS)


def _from(after: Place | None) -> dict[str, Any]:
    return {} if after is None else {"due": after[0], "id": after[1]}


def _row(
    id: UUID,
    due_at: datetime,
    act: str,
    is_end: bool,
    level: int,
    subject: UUID,
    reasons: Sequence[str],
    occurrences: int,
    name: str | None,
    claimed: UUID | None,
    deferred: datetime | None,
    known: bool,
) -> Row:
    said = [_what(act, is_end, known)]
    if occurrences > 1:
        said.append(_("said %(number)s times") % {"number": occurrences})
    said += [_SHORT[reason] for reason in reasons if reason in _SHORT][:1]
    return Row(id, name or _("not defined"), Sensitivity(level).label, subject, said, due_at, claimed, deferred)


def _what(act: str, is_end: bool, known: bool) -> str:
    if act in ("correction", "retraction"):
        return {"correction": _("correction"), "retraction": _("take back")}[act]
    return _("end") if is_end else _("update") if known else _("new")


#: Why a proposal waits, in a word or two.
_SHORT = {
    "inferred": gettext_lazy("inferred"),
    "inferred_restricted": gettext_lazy("inferred"),
    "quarantined": gettext_lazy("speaks to the agent"),
    "weak_signal": gettext_lazy("unsure"),
    "class_raised": gettext_lazy("class raised"),
    "unknown_attribute": gettext_lazy("no such attribute"),
    "conflict_of_equals": gettext_lazy("of equal weight"),
    "conflict_for_review": gettext_lazy("for review"),
    "confirmed_by_a_person": gettext_lazy("against a confirmed one"),
}


def _item(actor: Actor, roles: Sequence[MemberRole], candidate: Candidate) -> Item:
    tenant, level = actor.tenant, Sensitivity(candidate.sensitivity)
    sayings = list(
        CandidateSaying.objects.filter(tenant_id=tenant, candidate_id=candidate.id)
        .select_related("consent")
        .order_by("-id")[:SAYINGS]
    )
    writers = dict(Agent.objects.filter(id__in={each.writer_id for each in sayings}).values_list("id", "name"))
    episodes = Episode.objects.in_bulk({each.episode_id for each in sayings if each.episode_id is not None})
    held = sight.held(tenant, candidate.id)
    act_no, derived, *alike = fetch(_ACTS, [tenant, candidate.id])[0]
    policy = _policy_of(candidate.policy_version)
    rule = next((each for each in wording.rules(policy) if each.id == candidate.rule), None)
    life = policy.lifetime(Basis(candidate.basis), level)
    barred = ""
    if candidate.confirm_by is not None and candidate.confirm_by not in {role.value for role in roles}:
        barred = _("The policy leaves this to a %(role)s.") % {"role": in_words(candidate.confirm_by.replace("_", " "))}
    choices: list[Choice] = [_CONFIRM, _REJECT, _REDACT, _MORE]
    covered = holds_on(tenant, {"candidate": candidate.id, "subject": candidate.subject_id})
    open_matters: list[tuple[str, str]] = []
    if MemberRole.PRIVACY_OFFICER in roles:
        found = (
            Matter.objects.filter(tenant_id=tenant, state="open").order_by("-id").values_list("id", "reference")[:50]
        )
        open_matters = [(str(id), reference) for id, reference in found]
    if open_matters:
        choices.insert(3, _HOLD)
    if candidate.act == "fact" and not candidate.is_end and candidate.attribute_id is not None:
        choices.insert(1, _EDIT)
    seen = Seen(candidate.occurrences, act_no)
    name = _("an attribute that nobody has defined") if candidate.attribute is None else candidate.attribute.name
    return Item(
        id=candidate.id,
        digest=digest_of(
            ["candidate", candidate.id, candidate.occurrences, act_no, candidate.sensitivity, candidate.value_digest,
             None if held is None else [held.fact, held.evidence, held.sensitivity], sorted(covered)]
        ),
        title=name,
        level=level,
        subject=candidate.subject_id,
        due_at=candidate.due_at or candidate.created_at,
        choices=choices,
        barred=barred,
        reveal=level > Sensitivity.PERSONAL,
        facts={
            "candidate": candidate,
            "seen": seen,
            "held": held,
            "held_level": None if held is None else Sensitivity(held.sensitivity).label,
            "what": _what(candidate.act, candidate.is_end, held is not None),
            "first": sayings[0] if sayings else None,
            "sayings": [
                {
                    "row": each,
                    "writer": writers.get(each.writer_id, f"{each.writer_kind} {str(each.writer_id)[-8:]}"),
                    "episode": episodes.get(each.episode_id) if each.episode_id is not None else None,
                    "level": Sensitivity(each.sensitivity).label,
                    "detected": [in_words(code.replace("_", " ")) for code in each.detected],
                }
                for each in sayings
            ],
            "reasons": [wording.asked(reason) for reason in candidate.reasons],
            "rule": rule,
            "built_in": wording.decisive(candidate.rule),
            "policy": candidate.policy_version,
            "lifetime": "" if life is None else wording.lifetime(life),
            "holds": covered,
            "matters": open_matters,
            "levels": [(int(each), each.label, each >= level) for each in Sensitivity],
            redacting.OFFERED: redacting.Offered(
                redaction.Pick(kind=redaction.Kind.CANDIDATE, target=candidate.id),
                sorted({each.episode_id for each in sayings if each.episode_id is not None}),
            ),
            "strategies": redacting.STRATEGIES,
            "readers": [] if held is None else sight.readers(tenant, held.fact),
            "derived": derived,
            "alike_subject": alike[0],
            "alike_attribute": alike[1],
            "alike_episode": alike[2],
        },
    )  # fmt: skip


@lru_cache(maxsize=64)
def _policy(version: UUID, rules: str) -> PolicyDocument:
    return policy_document(json.loads(rules))


def _policy_of(version: PolicyVersion) -> PolicyDocument:
    # A version never changes: its rules are read once.
    return _policy(version.id, json.dumps(version.rules))


def _opened(item: Item, shown: sight.Shown, *, whole: bool) -> Mapping[str, Any]:
    candidate = item.facts["candidate"]
    value, former, named = shown.value, shown.held, ""
    if candidate.attribute_id is None and value is not None:
        said = json.loads(value)
        named, value = said["attribute"], said["value"] if isinstance(said["value"], str) else json.dumps(said["value"])
    before: list[Piece] | None
    after: list[Piece] | None
    if value is not None and former is not None:
        before, after = compared(former, value)
    else:
        before = None if former is None else pieces(former)
        after = None if value is None else pieces(value)
    names = () if shown.subject is None else (shown.subject,)
    return {
        "value": after,
        "former": before,
        "plain": value,
        "named": named,
        "subject": None if shown.subject is None else pieces(shown.subject),
        "sources": {each.saying: _evidence(each, names, whole=whole) for each in shown.sources},
        # Words may be marked where the text stands, not its quote alone.
        "markable": {each.saying for each in shown.sources if each.text is not None},
        "rests_on": [found for each in shown.held_sources if (found := _evidence(each, names, whole=whole))],
        "whole": whole,
    }


def _evidence(source: sight.Quoted, names: Sequence[str], *, whole: bool) -> Any:
    """Return the text with its quote marked, or the quote alone. What is beside the quote is masked unless revealed."""
    if source.text is not None:
        if whole:
            return pieces(source.text, source.quote or "")
        return veiled(source.text, source.quote or "", names=names)
    return None if source.quote is None else pieces(source.quote, around=len(source.quote))


def _typed(text: str, item: Item) -> Any:
    """Return what a person typed as a value: text where the attribute's schema has text, else JSON."""
    version = item.facts["candidate"].attribute_version
    schema = {} if version is None else version.definition.get("schema", {})
    listed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not text.strip():
        raise Refused("value_missing", errors=[FieldError("value", "required")])
    if schema.get("type") == "string" or (listed and all(isinstance(each, str) for each in listed)):
        return text.strip()
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


__all__ = ["CONFLICTS", "FACTS", "Candidates"]
