"""Reveals: what is masked, shown in clear for a minute, for a coded reason and a case, and never in bulk.

The row and its entry in the audit chain are written in the page's transaction, which commits before a byte of the answer
leaves (`config.requests.StaffTransaction`). That the person has shown lately who they are is the face's to ask.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from memory.rows import execute, fetch
from memory.subjects import known
from policies.identifiers import looks_like_identifier
from policies.vocabulary import Sensitivity
from tenants.actors import Actor, ActorKind
from tenants.audit import Action, Event, append
from tenants.errors import FieldError, Forbidden, Refused
from tenants.identity import new_id
from tenants.words import gettext_lazy

#: How long what was revealed may be seen.
LASTS = timedelta(seconds=60)
#: Why something is revealed. Codes, since words would be content.
REASONS = {
    "decision_needs_it": gettext_lazy("the decision needs it"),
    "subject_asked": gettext_lazy("the subject asked"),
    "complaint": gettext_lazy("a complaint"),
    "authority_asked": gettext_lazy("an authority asked"),
    "incident": gettext_lazy("an incident"),
    "other": "other",
}
_CASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,39}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Target:
    """What is revealed, of whom, and its class."""

    kind: str
    id: UUID
    subject: UUID | None
    sensitivity: Sensitivity
    fields: Sequence[str]


@dataclass(frozen=True, slots=True)
class Revealed:
    """Until when it may be seen, and how many more reveals the person has today (of UTC)."""

    until: datetime
    left: int


_TODAY = "SELECT count(*) FROM retention_reveal WHERE tenant_id = %s AND person_id = %s AND at >= %s"
# One person's reveals one after another, so that the budget holds however many are asked for at once.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended('reveal ' || %s::text, 0))"
_REVEAL = """
INSERT INTO retention_reveal (tenant_id, id, target_kind, target_id, subject_id, fields, sensitivity, reason, case_ref)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING expires_at
"""


def check(reason: str, case: str) -> None:
    """Raise `Refused` for a reason that is none, and for a case reference that is none or may name a person."""
    errors = []
    if reason not in REASONS:
        errors.append(FieldError("reason", "not_in_enum"))
    if _CASE.fullmatch(case) is None:
        errors.append(FieldError("case", "bad_shape"))
    elif looks_like_identifier(case) is not None:
        errors.append(FieldError("case", "personal_identifier"))
    if errors:
        raise Refused("request_refused", errors=errors)


def is_about(actor: Actor, subject: UUID, names: Sequence[str]) -> bool:
    """Return whether `subject` is known by one of the actor's own `names`. Needs `Role.WRITER`."""
    said = {name for each in names if each for name in (each, each.casefold())}
    return any(found.id == subject for found in known(actor.tenant, said).values()) if said else False


def reveal(actor: Actor, target: Target, *, reason: str, case: str, budget: int, now: datetime) -> Revealed:
    """Record that the actor sees `target` in clear for a minute. Needs `Role.STAFF`; to be called before it is opened.

    Raises `Forbidden("a_person_reveals")` for any actor that is no person, `Refused` as `check`, and
    `Forbidden("reveal_budget_spent")` where `budget` reveals were made today (of UTC).
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_reveals")
    check(reason, case)
    execute(_ONE_AT_A_TIME, [actor.id])
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spent = fetch(_TODAY, [actor.tenant, actor.id, midnight])[0][0]
    if spent >= budget:
        raise Forbidden("reveal_budget_spent")
    row = [
        *(actor.tenant, new_id(), target.kind, target.id, target.subject, list(target.fields)),
        *(int(target.sensitivity), reason, case),
    ]
    until = fetch(_REVEAL, row)[0][0]
    append(
        [
            Event(
                actor=actor,
                action=Action.CONTENT_REVEALED,
                target_kind=target.kind,
                target_id=target.id,
                reason=reason,
                numbers={"class": int(target.sensitivity), "today": spent + 1},
            )
        ]
    )
    return Revealed(until, budget - spent - 1)


@dataclass(frozen=True, slots=True)
class Past:
    """A reveal that was made."""

    id: UUID
    person: UUID
    target_kind: str
    target: UUID
    fields: Sequence[str]
    reason: str
    case: str
    at: datetime


_OF_SUBJECT = """
SELECT id, person_id, target_kind, target_id, fields, reason, case_ref, at FROM retention_reveal
WHERE tenant_id = %s AND subject_id = %s ORDER BY id DESC LIMIT %s
"""


def of_subject(tenant: UUID, subject: UUID, *, limit: int = 50) -> list[Past]:
    """Return the newest reveals of what is about a subject. Needs `Role.STAFF`."""
    return [Past(*row) for row in fetch(_OF_SUBJECT, [tenant, subject, limit])]
