"""Proposals to take content out, which a second person applies or refuses (`retention.redaction`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from memory.rows import fetch
from policies.vocabulary import Sensitivity
from retention import redaction
from retention.desk.claims import digest_of
from retention.desk.queues import COUNTED, PAGE, REACH, Backlog, Choice, Item, Place, Row
from retention.models import RedactionRequest
from tenants.actors import Actor, MemberRole
from tenants.words import gettext_lazy, in_words

#: How soon somebody decides: what waits is hidden meanwhile, and may be needed.
WITHIN = timedelta(hours=72)

_THOSE = "FROM retention_redactionrequest r WHERE r.tenant_id = %(tenant)s AND r.state = 'required'"
_AFTER = " AND r.id > %(id)s::uuid"
_IN_ORDER = " ORDER BY r.id LIMIT %(limit)s"
_BACKLOG = f"SELECT count(*), min(x.requested_at), count(*) FILTER (WHERE x.requested_at <= %(overdue)s) FROM (SELECT r.requested_at {_THOSE}{_IN_ORDER}) x"
_PAGE = f"""
SELECT r.id, r.requested_at, r.reason, r.requester_kind, k.person_id,
  (SELECT count(*) FROM retention_redactionitem i WHERE i.tenant_id = r.tenant_id AND i.request_id = r.id AND i.picked)
FROM (SELECT r.* {_THOSE}{{after}}{_IN_ORDER}) r
  LEFT JOIN retention_claim k ON k.tenant_id = r.tenant_id AND k.item_id = r.id AND k.ended_at IS NULL
    AND k.expires_at > statement_timestamp()
ORDER BY r.id
"""
_FOLLOWING = f"""
SELECT r.id {_THOSE}{{after}} AND r.requested_by <> nullif(current_setting('muniment.actor', true), '')::uuid
  AND NOT EXISTS (SELECT FROM retention_claim k WHERE k.tenant_id = r.tenant_id AND k.item_id = r.id
    AND (k.ended_at IS NULL AND k.expires_at > statement_timestamp() OR k.deferred_until > statement_timestamp()))
{_IN_ORDER}
"""

_APPLY = Choice(
    *("apply", "a", gettext_lazy("Take it out")),
    {each: each.replace("_", " ") for each in redaction.APPLY_REASONS},
    ends=True,
    hint=gettext_lazy(
        "For good: rows, quotes, indexes and derived texts. Nobody brings it back. A certificate says what was done."
    ),
)
_REFUSE = Choice(
    *("refuse", "d", gettext_lazy("Give it back")),
    {each: each.replace("_", " ") for each in redaction.REFUSE_REASONS},
    hint=gettext_lazy("What was hidden is read again as before."),
)


@dataclass(frozen=True)
class Redactions:
    """The queue of redactions that a privacy officer decides on."""

    name: str = "redactions"
    title: str = gettext_lazy("Redactions")
    template: str = "plain"
    roles: frozenset[MemberRole] = frozenset({MemberRole.PRIVACY_OFFICER})
    several: tuple[Choice, ...] = ()

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        count, first, overdue = fetch(_BACKLOG, {"tenant": tenant, "overdue": now - WITHIN, "limit": COUNTED})[0]
        return Backlog(count, None if first is None else first + WITHIN, overdue)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, oldest first."""
        asked = {"tenant": tenant, "limit": PAGE + 1, **({} if after is None else {"id": after[1]})}
        return [
            Row(
                id,
                in_words(reason.replace("_", " ")),
                "",
                None,
                (_("%(picked)s picked") % {"picked": picked}, _("asked by %(kind)s") % {"kind": in_words(kind)}),
                at + WITHIN,
                claimed,
            )
            for id, at, reason, kind, claimed, picked in fetch(
                _PAGE.format(after="" if after is None else _AFTER), asked
            )
        ]

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds and that somebody else than the actor asked for."""
        asked = {"tenant": tenant, "limit": REACH, **({} if after is None else {"id": after[1]})}
        return [row[0] for row in fetch(_FOLLOWING.format(after="" if after is None else _AFTER), asked)]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return a proposal with all that follows from it, as ids and counts."""
        found = RedactionRequest.objects.filter(tenant_id=actor.tenant, id=item, state="required").first()
        if found is None:
            return None
        foreseen = redaction.examine(actor, item)
        barred = (
            _("You proposed it yourself: another privacy officer decides.") if found.requested_by == actor.id else ""
        )
        held = sorted({str(each)[-8:] for ids in foreseen.held.values() for each in ids})
        changed = [("bad", f"{number} {in_words(name.replace('_', ' '))}") for name, number in foreseen.counts.items()]
        if foreseen.unsupported:
            changed.append(
                (
                    "warn",
                    _("%(number)s facts lose their last quote and go to a person.")
                    % {"number": len(foreseen.unsupported)},
                )
            )
        if foreseen.elsewhere:
            changed.append(
                (
                    "warn",
                    _("%(number)s other records of the subject say the same, and stay.")
                    % {"number": len(foreseen.elsewhere)},
                )
            )
        if held:
            changed.append(
                (
                    "bad",
                    _("Held by %(listed)s: while that holds nothing can be taken out.") % {"listed": ", ".join(held)},
                )
            )
        return Item(
            id=item,
            digest=digest_of(["redaction", item, foreseen.digest]),
            title=_("Redaction: %(reason)s") % {"reason": in_words(found.reason.replace("_", " "))},
            level=Sensitivity.PUBLIC,
            subject=foreseen.subjects[0] if foreseen.subjects else None,
            due_at=found.requested_at + WITHIN,
            choices=(_APPLY, _REFUSE),
            barred=barred,
            classed=False,
            facts={
                "why": [_("Somebody asks to take this out. It has been hidden from agents since it was asked.")],
                "records": [
                    (each.kind.value, str(each.target), each.strategy.value,
                     ", ".join(each.fields) or (_("%(number)s spans") % {"number": len(each.spans)} if each.spans else _("all of it")))
                    for each in foreseen.picks
                ],
                "pairs": [
                    (_("Asked by"), found.requester_kind),
                    (_("Asked"), f"{found.requested_at:%Y-%m-%d %H:%M} UTC"),
                    (_("Reason"), found.reason.replace("_", " ")),
                ],
                "effects": [(_("If you take it out"), changed or [("", _("Nothing is left to change."))]),
                            (_("If you give it back"), [("", _("Agents read it again as before."))])],
                "preview": foreseen.digest,
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return nothing in clear: what goes is decided on by what it is and what follows."""
        return {}

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Apply it, bound to the preview that was shown, or refuse it."""
        if act == "apply":
            outcome = redaction.apply(actor, item.id, shown=item.facts["preview"], reason=reason, now=now)
            return _applied(outcome)
        redaction.refuse(actor, item.id, reason=reason, now=now)
        return _("Given back: agents read it again.")


def _applied(outcome: redaction.Outcome) -> str:
    if outcome.applied:
        return _("Taken out for good.")
    return _("A legal hold stands in the way: nothing was taken out, and the attempt is recorded.")


REDACTIONS = Redactions()
