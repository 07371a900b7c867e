"""Decisions that can still be taken back: made under a claim, and carried out ten seconds later.

Until then nothing has happened but that the claim says what is to be done. It is carried out by whatever comes first: the
person's next decision, their page after ten seconds, or the background (`outbox`), so that a closed browser loses nothing. It is
bound to what was shown: what changed meanwhile is not decided, and waits again. Only acts that need nothing besides a code
wait like this; what a person typed is content and is never kept in a claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from memory import outbox
from memory.rows import execute, fetch
from retention.desk import claims
from retention.desk.queues import Choice
from retention.desk.tabs import QUEUES
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.audit import Action, Event, append
from tenants.errors import Clash, Problem
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.models import Membership

TOPIC = "desk.commit"


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of a decision: what is told of it, or the code by which it was not carried out and waits again."""

    item: UUID
    title: str
    told: str = ""
    code: str = ""


_PUT_OFF = """
UPDATE retention_claim SET act = %s, reason = %s, level = %s, commit_at = clock_timestamp() + %s,
  expires_at = least(clock_timestamp() + interval '15 minutes', taken_at + interval '12 hours')
WHERE tenant_id = %s AND id = %s
"""


def put_off(actor: Actor, held: claims.Held, *, act: str, reason: str, level: int | None) -> None:
    """Let a claim say what is to be done when `claims.UNDO` is over."""
    execute(_PUT_OFF, [act, reason, level, claims.UNDO, actor.tenant, held.id])
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        outbox.put_off(actor.tenant, TOPIC, held.id, after=claims.UNDO)


_TAKE_BACK = """
UPDATE retention_claim SET act = NULL, reason = NULL, level = NULL, commit_at = NULL
WHERE tenant_id = %s AND id = %s
"""
_MINE = """
SELECT c.id, c.item_id, c.queue, c.act, c.reason, c.level, c.digest, c.commit_at <= clock_timestamp(),
  c.expires_at > clock_timestamp()
FROM retention_claim c
WHERE c.tenant_id = %s AND c.person_id = %s AND c.ended_at IS NULL AND c.commit_at IS NOT NULL {and_}
ORDER BY c.id FOR UPDATE
"""


def take_back(actor: Actor, item: UUID) -> None:
    """Take back what was decided on an item: the claim goes on as if nothing had been. Raises `Clash("undo_over")`."""
    found = fetch(_MINE.format(and_="AND c.item_id = %s"), [actor.tenant, actor.id, item])
    if not found or not found[0][8]:
        raise Clash("undo_over")
    execute(_TAKE_BACK, [actor.tenant, found[0][0]])


_SAME = """
SELECT FROM retention_claim c JOIN memory_candidate o ON o.tenant_id = c.tenant_id AND o.id = c.item_id
  JOIN memory_candidate n ON n.tenant_id = o.tenant_id AND n.id <> o.id AND n.subject_id = o.subject_id
    AND n.attribute_id IS NOT DISTINCT FROM o.attribute_id
WHERE c.tenant_id = %s AND c.person_id = %s AND c.ended_at IS NULL AND c.commit_at IS NOT NULL AND n.id = %s
"""


def changes(actor: Actor, item: UUID) -> bool:
    """Return whether the actor has decided on another proposal about the same question, and it is not carried out yet."""
    return bool(fetch(_SAME, [actor.tenant, actor.id, item]))


def carry_out(
    actor: Actor, roles: Sequence[MemberRole], *, now: datetime, due: bool, claim: UUID | None = None
) -> list[Carried]:
    """Carry out what the actor has decided: what is `due` alone, or all of it; of one `claim`, where it is named.

    In the caller's transaction under `Role.STAFF`. What cannot be carried out any more is given back to the queue.
    """
    asked = [actor.tenant, actor.id, *([] if claim is None else [claim])]
    found = fetch(_MINE.format(and_="" if claim is None else "AND c.id = %s"), asked)
    return [_one(actor, roles, *row[:7], now=now) for row in found if row[8] and (row[7] or not due)]


def _one(
    actor: Actor,
    roles: Sequence[MemberRole],
    claim: UUID,
    wanted: UUID,
    queue: str,
    act: str,
    reason: str,
    level: int | None,
    digest: bytes | None,
    *,
    now: datetime,
) -> Carried:
    at = QUEUES[queue]
    item = at.item(actor, roles, wanted) if at.roles.intersection(roles) else None
    code = "changed_since"
    if item is not None and not item.barred and digest is not None and item.digest == bytes(digest):
        choice: Choice | None = next((each for each in item.choices if each.act == act and each.undo), None)
        try:
            with transaction.atomic():
                if choice is None:
                    raise Clash("changed_since")
                if act == "ask_more":
                    claims.defer(actor, claim, reason=reason, now=now)
                    event = Event(
                        actor=actor, action=Action.MORE_ASKED, target_kind="claim", target_id=claim, reason=reason
                    )
                    append([event])
                    return Carried(wanted, item.title, told=item.title)
                claims.decided(actor, claim, act=act, reason=reason)
                given = {} if level is None else {"level": str(level)}
                return Carried(wanted, item.title, told=at.decide(actor, item, act, reason, given, now=now))
        except Problem as problem:
            code = problem.code
    execute(_TAKE_BACK, [actor.tenant, claim])
    claims.release(actor, wanted)
    return Carried(wanted, "" if item is None else item.title, code=code)


# the background -------------------------------------------------------------------------------------------------------

_WHOSE = """
SELECT c.person_id, c.commit_at <= clock_timestamp(), statement_timestamp() FROM retention_claim c
WHERE c.tenant_id = %s AND c.id = %s AND c.ended_at IS NULL AND c.commit_at IS NOT NULL
"""


def work(tenant: UUID, claim: UUID) -> outbox.Settled | outbox.GivenUp:
    """Carry out a decision whose person has gone (the outbox's work). Opens its own transactions; harmless when repeated."""
    with tenant_transaction(Role.STAFF, tenant=tenant):
        found = fetch(_WHOSE, [tenant, claim])
    if not found:
        return outbox.Settled.DONE
    person, due, now = found[0]
    if not due:
        return outbox.Settled.AGAIN
    actor = Actor(kind=ActorKind.PERSON, id=person, tenant=tenant, clearance=3)
    with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=person):
        held = Membership.objects.filter(tenant_id=tenant, user_id=person).values_list("role", flat=True)
        roles = [MemberRole(role) for role in held]
        made = carry_out(actor, roles, now=now, due=True, claim=claim)
    # What was given back waits for a person: no further attempt would mend it.
    return outbox.GivenUp(made[0].code) if made and made[0].code else outbox.Settled.DONE
