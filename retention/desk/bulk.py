"""One act on several items, for one reason, under one id: looked at first, and then carried out as far as it was looked at.

Nothing is shown and nothing revealed by it, so only acts that need no sight of the item are offered. What an item comes to
is told for each; one that cannot be done does not stop the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from retention.desk import claims
from retention.desk.queues import Choice, Queue
from tenants.actors import Actor, MemberRole
from tenants.audit import Action, Event, append
from tenants.errors import Malformed, Problem, Refused

#: So many at most are selected, and so many are done in one transaction, which holds the audit chain while it lasts.
MOST = 500
CHUNK = 25

WILL_CHANGE = "will_change"
CHANGED = "changed"
HELD = "held"
ANOTHER = "needs_another_person"
CLAIMED = "claimed_by_another"
OUT_OF_DATE = "out_of_date"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Line:
    """What one item comes to; `digest` is what carrying it out is bound to, `code` why it was refused."""

    item: UUID
    outcome: str
    digest: bytes = b""
    code: str = ""


def choice_of(queue: Queue, choices: Sequence[Choice], act: str, reason: str) -> Choice:
    """Return the act of that name that may be done with several. Raises `Malformed`, `Refused("reason_missing")`."""
    found = next((each for each in choices if each.act == act and each.bulk), None)
    if found is None:
        raise Malformed
    if reason not in found.reasons:
        raise Refused("reason_missing")
    return found


def look(
    actor: Actor, queue: Queue, roles: Sequence[MemberRole], items: Sequence[UUID], act: str, reason: str
) -> list[Line]:
    """Return what would become of each item; nothing is changed or shown."""
    lines = []
    for each in items:
        item = queue.item(actor, roles, each)
        if item is None:
            lines.append(Line(each, OUT_OF_DATE))
        elif item.barred:
            lines.append(Line(each, ANOTHER))
        elif claims.of_another(actor, each):
            lines.append(Line(each, CLAIMED))
        elif act == "redact" and item.facts.get("holds"):
            lines.append(Line(each, HELD))
        else:
            choice_of(queue, item.choices, act, reason)
            lines.append(Line(each, WILL_CHANGE, item.digest))
    return lines


def carry_out(
    actor: Actor,
    queue: Queue,
    roles: Sequence[MemberRole],
    items: Mapping[UUID, bytes],
    act: str,
    reason: str,
    *,
    bulk: UUID,
    now: datetime,
) -> list[Line]:
    """Do it with each item that is as it was looked at; what cannot be done is left as it was, and told.

    At most `CHUNK` items; each is claimed and decided like one alone, and all carry the id `bulk`.
    """
    if len(items) > CHUNK:
        raise Malformed
    lines = [_one(actor, queue, roles, item, digest, act, reason, bulk, now) for item, digest in items.items()]
    done = sum(line.outcome == CHANGED for line in lines)
    event = Event(
        actor=actor,
        action=Action.BULK_DECIDED,
        target_kind="bulk",
        target_id=bulk,
        reason=reason,
        numbers={"changed": done, "left": len(lines) - done},
    )
    append([event])
    return lines


def _one(
    actor: Actor,
    queue: Queue,
    roles: Sequence[MemberRole],
    wanted: UUID,
    digest: bytes,
    act: str,
    reason: str,
    bulk: UUID,
    now: datetime,
) -> Line:
    held = claims.take(actor, queue.name, [wanted])
    if held is None or held.pending:
        return Line(wanted, CLAIMED)
    item = queue.item(actor, roles, wanted)
    if item is None or item.digest != digest:
        claims.release(actor, wanted)
        return Line(wanted, OUT_OF_DATE)
    if item.barred:
        claims.release(actor, wanted)
        return Line(wanted, ANOTHER)
    choice_of(queue, item.choices, act, reason)
    try:
        with transaction.atomic():
            if act == "ask_more":
                claims.defer(actor, held.id, reason=reason, now=now, bulk=bulk)
            else:
                claims.decided(actor, held.id, act=act, reason=reason, bulk=bulk)
                queue.decide(actor, item, act, reason, {}, now=now)
    except Problem as problem:
        claims.release(actor, wanted)
        return Line(wanted, REFUSED, code=problem.code)
    return Line(wanted, CHANGED)
