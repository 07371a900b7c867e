"""Queues whose owners list what waits: versions of procedures, what data subjects asked for, what is due for review.

Few of either wait at once, so their doors return them as lists, which are paged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from memory import promotion
from memory.legible import compared, pieces
from memory.rows import fetch
from policies.approvals import ANSWER_REASONS, Answer
from policies.catalogue import catalogue
from policies.vocabulary import Sensitivity
from retention import disposition, keeping, requests
from retention.desk.claims import digest_of
from retention.desk.queues import PAGE, REACH, Backlog, Choice, Item, Place, Row, holds_on
from tenants.actors import Actor, MemberRole
from tenants.errors import Forbidden
from tenants.words import gettext_lazy, in_words

#: So many are listed.
LISTED = 200

_CLAIMED = """
SELECT k.item_id, max(k.person_id::text) FILTER (WHERE k.ended_at IS NULL AND k.expires_at > statement_timestamp()),
  max(k.deferred_until) FILTER (WHERE k.deferred_until > statement_timestamp())
FROM retention_claim k WHERE k.tenant_id = %s AND k.item_id = ANY (%s::uuid[])
GROUP BY k.item_id
"""


def _with_claims(tenant: UUID, rows: Sequence[Row]) -> list[Row]:
    found = {row[0]: row[1:] for row in fetch(_CLAIMED, [tenant, [row.id for row in rows]])} if rows else {}
    return [
        Row(
            row.id,
            row.name,
            row.level,
            row.subject,
            row.words,
            row.due_at,
            None if (person := found.get(row.id, (None, None))[0]) is None else UUID(person),
            found.get(row.id, (None, None))[1],
        )
        for row in rows
    ]


def _backlog(rows: Sequence[Row], now: datetime) -> Backlog:
    return Backlog(len(rows), rows[0].due_at if rows else None, sum(row.due_at <= now for row in rows))


def _after(rows: Sequence[Row], after: Place | None) -> list[Row]:
    return [row for row in rows if after is None or (row.due_at, row.id) > after]


def _words(codes: Sequence[str]) -> dict[str, str]:
    return {code: code.replace("_", " ") for code in codes}


# procedures -----------------------------------------------------------------------------------------------------------

_ANSWERS = (
    Choice("approve", "a", gettext_lazy("Approve"), _words(ANSWER_REASONS[Answer.APPROVE]), ends=True,
           hint=gettext_lazy("You put your name to it. Nothing is active by that: activating it is an act of its own, on its page.")),
    Choice("return", "q", gettext_lazy("Send back"), _words(ANSWER_REASONS[Answer.RETURN]), hint=gettext_lazy("It becomes a draft again.")),
    Choice("refuse", "d", gettext_lazy("Refuse"), _words(ANSWER_REASONS[Answer.REFUSE]), ends=True),
)  # fmt: skip


@dataclass(frozen=True)
class Procedures:
    """The queue of procedure versions that an approver decides on."""

    name: str = "procedures"
    title: str = gettext_lazy("Procedures")
    template: str = "plain"
    roles: frozenset[MemberRole] = frozenset({MemberRole.APPROVER})
    several: tuple[Choice, ...] = ()

    def _rows(self, tenant: UUID, now: datetime) -> list[Row]:
        return [
            Row(
                each.version,
                each.procedure,
                Sensitivity(each.sensitivity).label,
                None,
                (
                    _("version %(number)s") % {"number": each.number},
                    _("new") if each.first else _("change"),
                    in_words(each.tested.replace("_", " ")),
                ),
                each.due,
            )
            for each in promotion.queue(tenant, now=now, limit=LISTED)
        ]

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        return _backlog(self._rows(tenant, now), now)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, those first that may be decided the shortest."""
        return _with_claims(tenant, _after(self._rows(tenant, _EARLIEST), after)[: PAGE + 1])

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds."""
        rows = _with_claims(tenant, _after(self._rows(tenant, _EARLIEST), after))
        return [row.id for row in rows if row.claimed is None and row.deferred_until is None][:REACH]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return a version that waits, without its text."""
        found = next((e for e in promotion.queue(actor.tenant, now=_EARLIEST, limit=LISTED) if e.version == item), None)
        if found is None:
            return None
        own = found.proposed_by == actor.id and found.proposed_by_kind == "person"
        return Item(
            id=item,
            digest=found.digest,
            title=_("%(procedure)s · version %(number)s") % {"procedure": found.procedure, "number": found.number},
            level=Sensitivity(found.sensitivity),
            subject=None,
            due_at=found.due,
            choices=_ANSWERS,
            barred=_("You proposed it yourself: another approver decides.") if own else "",
            reveal=found.sensitivity > Sensitivity.PERSONAL,
            facts={
                "text_title": _("What would be done"),
                "has_text": True,
                "why": [_("A new version of a procedure was proposed. Agents act by it only once it was approved and activated.")],
                "pairs": [
                    (_("Scope"), found.scope),
                    (_("Proposed by"), found.proposed_by_kind),
                    (_("Proposed"), f"{found.proposed_at:%Y-%m-%d %H:%M} UTC"),
                    (_("Test"), found.tested.replace("_", " ")),
                    (_("Detection"), ", ".join(in_words(each.replace("_", " ")) for each in found.detected) or _("nothing found")),
                ],
                "effects": [
                    (_("If you approve"), [("ok", _("It may be made active while the approval lasts. What is active now stays so until then.")),
                                        ("", _("The former version can be brought back in one act."))]),
                    (_("If you refuse"), [("", _("What is active stays active."))]),
                ],
                "page": ("admin:memory_procedureversion_change", item),
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return the proposed text beside the active one, word by word, and record that it was shown."""
        shown = promotion.show(actor, item.id)
        if shown.body is None:
            return None
        if shown.base is None:
            return {"text": pieces(shown.body, around=20_000)}
        before, after = compared(shown.base, shown.body)
        return {"before": before, "text": after}

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Approve, send back or refuse, bound to the version's digest."""
        if item.barred:
            raise Forbidden("own_request")
        promotion.decide(actor, item.id, Answer(act), shown=item.digest, reason=reason, now=now)
        return {"approve": _("Approved"), "return": _("Sent back"), "refuse": _("Refused")}[act] + f": {item.title}."


# requests of data subjects --------------------------------------------------------------------------------------------


def _escalated(found: requests.Waiting) -> tuple[str, ...]:
    """Return who was told that the day of a request is near, or past, in words; nothing while nobody was."""
    if found.escalated_to is None:
        return ()
    return (_("escalated: %(role)s") % {"role": str(in_words(found.escalated_to)).replace("_", " ")},)


@dataclass(frozen=True)
class Requests:
    """The queue of what data subjects asked for."""

    name: str = "requests"
    title: str = gettext_lazy("Subject requests")
    template: str = "plain"
    roles: frozenset[MemberRole] = requests.HANDLERS
    several: tuple[Choice, ...] = ()

    def _rows(self, tenant: UUID, now: datetime) -> list[Row]:
        return [
            Row(
                each.id,
                in_words(each.kind),
                "",
                each.subject_id,
                (_("identity %(identity)s") % {"identity": in_words(each.identity)}, *((_("extended"),) if each.extended else ()), *((_("asked again"),) if each.repeats else ()), *_escalated(each)),
                each.due_at,
            )
            for each in requests.queue(tenant, now=now, limit=LISTED)
        ]  # fmt: skip

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        return _backlog(self._rows(tenant, now), now)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, those first that are due first."""
        return _with_claims(tenant, _after(self._rows(tenant, _EARLIEST), after)[: PAGE + 1])

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds."""
        rows = _with_claims(tenant, _after(self._rows(tenant, _EARLIEST), after))
        return [row.id for row in rows if row.claimed is None and row.deferred_until is None][:REACH]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return a request that is open."""
        found = next((e for e in requests.queue(actor.tenant, now=_EARLIEST, limit=LISTED) if e.id == item), None)
        if found is None:
            return None
        choices = []
        if found.identity != "confirmed":
            choices.append(Choice("identify", "a", _("Identity confirmed"), _words(requests.METHODS), keeps=True,
                                  hint=_("How you know that whoever asks is the subject. The document itself is never kept.")))  # fmt: skip
            choices.append(Choice("fail", "q", _("Identity not established"), _words(requests.METHODS), keeps=True))
        if not found.extended:
            choices.append(Choice("extend", "e", _("Extend"), _words(requests.EXTENSION_REASONS), keeps=True,
                                  hint=_("By two further months, once. The subject is told why.")))  # fmt: skip
        if MemberRole.PRIVACY_OFFICER in roles:
            if found.identity == "confirmed":
                # What is taken along is handed over on its page, and closed by that.
                outcomes = ("nothing_held",) if found.kind == requests.Kind.PORTABILITY else requests.OUTCOMES
                choices.append(Choice("complete", "a", _("Answered"), _words(outcomes), ends=True))
            choices.append(Choice("refuse", "d", _("Refuse"), _words(requests.GROUNDS), ends=True,
                                  hint=_("On a ground that the subject is told.")))  # fmt: skip
        return Item(
            id=item,
            digest=digest_of(["request", item, found.state, found.identity, found.due_at.astimezone(UTC), found.repeats, found.led_to_id]),
            title=f"{in_words(found.kind)} · {requests.Kind(found.kind).article}",
            level=Sensitivity.PUBLIC,
            subject=found.subject_id,
            due_at=found.due_at,
            choices=choices,
            classed=False,
            facts={
                "why": [(_("A data subject asks for %(kind)s. The answer is due %(day)s, extended once.") if found.extended
                         else _("A data subject asks for %(kind)s. The answer is due %(day)s."))
                        % {"kind": in_words(found.kind), "day": f"{found.due_at:%Y-%m-%d}"}],
                "pairs": [
                    (_("Received"), f"{found.received_at:%Y-%m-%d %H:%M} UTC"),
                    (_("Identity"), found.identity),
                    (_("State"), found.state.replace("_", " ")),
                    (_("Asked again"), str(found.repeats)),
                    (_("Told of its day"), ", ".join(_escalated(found)) or _("nobody yet")),
                    (_("Led to"), _("nothing yet") if found.led_to_kind is None else found.led_to_kind.replace("_", " ")),
                ],
                "effects": [
                    (_("If the identity is confirmed"), [("ok", _("What it asks for may be carried out, on its page."))]),
                    (_("If you refuse"), [("bad", _("The subject is told on what ground, and may complain to an authority."))]),
                ],
                "page": ("admin:retention_subjectrequest_change", item),
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return nothing in clear: what the subject wrote stands elsewhere."""
        return {}

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Carry out an act through the door of requests."""
        done = {
            "identify": requests.confirm_identity,
            "fail": requests.fail_identity,
            "extend": requests.extend,
            "complete": requests.complete,
            "refuse": requests.refuse,
        }[act]
        done(actor, item.id, reason, now=now)
        return {
            "identify": _("The identity is confirmed."),
            "fail": _("Recorded: the identity was not established."),
            "extend": _("Extended by two months."),
            "complete": _("Answered, and closed."),
            "refuse": _("Refused, and closed."),
        }[act]


# disposition ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disposition:
    """The queue of facts without an end, or kept longer, whose date of review has come."""

    name: str = "disposition"
    title: str = gettext_lazy("Disposition")
    template: str = "plain"
    roles: frozenset[MemberRole] = requests.HANDLERS
    several: tuple[Choice, ...] = ()

    def _rows(self, tenant: UUID, now: datetime) -> list[Row]:
        return [
            Row(each.fact, each.attribute, each.sensitivity, each.subject, (in_words(each.basis), _("%(evidence)s said") % {"evidence": each.evidence}), each.review_at)
            for each in disposition.queue(tenant, now=now, limit=LISTED)
        ]  # fmt: skip

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        return _backlog(self._rows(tenant, now), now)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, the longest overdue first."""
        return _with_claims(tenant, _after(self._rows(tenant, _clock()), after)[: PAGE + 1])

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds."""
        rows = _with_claims(tenant, _after(self._rows(tenant, _clock()), after))
        return [row.id for row in rows if row.claimed is None and row.deferred_until is None][:REACH]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return a fact whose review is due, without its value."""
        now = _clock()
        found = next((e for e in disposition.queue(actor.tenant, now=now, limit=LISTED) if e.fact == item), None)
        if found is None:
            return None
        again = catalogue(actor.tenant).policy.review_after.after(now)
        covered = holds_on(actor.tenant, {"fact": item})
        reasons = _words(keeping.REASONS)
        choices = [
            Choice(
                "keep",
                "a",
                _("Keep on"),
                reasons,
                hint=_("It comes before a person again on %(again)s.") % {"again": format(again, "%Y-%m-%d")},
                undo=gettext_lazy("Kept"),
            )
        ]
        if MemberRole.PRIVACY_OFFICER in roles:
            choices.append(
                Choice("end", "d", _("End"), reasons, ends=True, hint=_("Its value and quotes are removed for good."))
            )
        return Item(
            id=item,
            digest=digest_of(["fact", item, found.evidence, found.review_at.astimezone(UTC), covered]),
            title=found.attribute,
            level=Sensitivity[found.sensitivity.upper()],
            subject=found.subject,
            due_at=found.review_at,
            choices=choices,
            facts={
                "why": [_("It is kept without an end, or was kept longer, and the date on which somebody looks has come.")],
                "pairs": [
                    (_("Basis"), found.basis),
                    (_("Kept until"), _("no end") if found.expires_at is None else f"{found.expires_at:%Y-%m-%d}"),
                    (_("First written"), f"{found.created_at:%Y-%m-%d}"),
                    (_("Evidence"), str(found.evidence)),
                    (_("Confirmed"), _("by a person") if found.confirmed else _("no")),
                ],
                "effects": [
                    (_("If you keep it on"), [("ok", _("Agents read it as before. It is looked at again on %(again)s.") % {"again": format(again, '%Y-%m-%d')})]),
                    (_("If you end it"), [("bad", _("Its value and quotes are removed, and derived texts fall. Nobody brings it back."))]),
                ],
                "holds": covered,
                "page": ("admin:memory_fact_change", item),
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return nothing in clear: whether it may stay is decided by what it is, and since when."""
        return {}

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Keep it until its next review, or end it."""
        if act == "keep":
            again = catalogue(actor.tenant).policy.review_after.after(now)
            disposition.keep(actor, item.id, again, reason=reason, now=now)
            return _("Kept: %(title)s. It is looked at again on %(again)s.") % {
                "title": item.title,
                "again": format(again, "%Y-%m-%d"),
            }
        if disposition.end(actor, item.id, reason=reason, now=now):
            return _("Ended: %(title)s.") % {"title": item.title}
        return _("A legal hold keeps it: nothing was removed, and the attempt is recorded.")


def _clock() -> datetime:
    now: datetime = fetch("SELECT statement_timestamp()", [])[0][0]
    return now


#: What is listed is open whatever the hour: what is over is refused by the doors.
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

PROCEDURES = Procedures()
REQUESTS = Requests()
DISPOSITION = Disposition()
