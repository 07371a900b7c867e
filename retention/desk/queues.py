"""What every queue of the desk is: what waits, oldest due first, what an item is about, and what may be done with it.

A queue reads under `Role.STAFF`, which sees no content; only `show` is called under `Role.WRITER`, once the item is
claimed. No count goes further than `COUNTED`, and pages go by key.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from django.utils.translation import gettext as _

from policies.vocabulary import Sensitivity
from retention import holds
from retention.models import Hold
from tenants.actors import Actor, MemberRole
from tenants.isolation import Role, assume

#: No count goes further: a tab says "1,000+".
COUNTED = 1_000
#: Rows of a page.
PAGE = 50
#: Of so many that come next, one that nobody holds is taken.
REACH = 20


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many wait, up to `COUNTED`, when the first is due, and how many are overdue."""

    count: int
    due_at: datetime | None
    overdue: int


#: Where a page goes on: after the item that is due then, and of that id.
Place = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True)
class Row:
    """One item as a line, without content. `claimed`: by nobody (None), or by whom."""

    id: UUID
    name: str
    level: str
    subject: UUID | None
    words: Sequence[str]
    due_at: datetime
    claimed: UUID | None = None
    deferred_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that may be done with an item, and why, as codes with their words.

    `form` names what has to be given besides a reason. An act that ends something is never one key alone.
    """

    act: str
    key: str
    words: str
    reasons: Mapping[str, str]
    form: str = ""
    ends: bool = False
    hint: str = ""
    #: The item waits on, and its claim goes on.
    keeps: bool = False
    #: It may be done with several at once, without having been shown them.
    bulk: bool = False
    #: What is said once it was done, of an act that needs nothing but codes and can be taken back for a while before that.
    undo: str = ""
    #: What it proposed is taken back by an act of its own.
    withdraw: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """An item without its content: what it is, what may be done with it, and the digest that a decision is bound to.

    `barred` says why the reader may not decide on it; `level` is the class of what it would show, and `reveal` whether
    that needs a reveal first. `facts` is what its template shows.
    """

    id: UUID
    digest: bytes
    title: str
    level: Sensitivity
    subject: UUID | None
    due_at: datetime
    choices: Sequence[Choice]
    barred: str = ""
    reveal: bool = False
    #: Whether it has a class of its own to show.
    classed: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)


class Queue(Protocol):
    """A queue of the desk. What it acts through are the doors of whoever owns the rows."""

    @property
    def name(self) -> str:
        """What it is called in addresses and claims."""
        ...

    @property
    def title(self) -> str:
        """What its tab says."""
        ...

    @property
    def template(self) -> str:
        """The folder of its templates."""
        ...

    @property
    def roles(self) -> frozenset[MemberRole]:
        """Who may claim from it."""
        ...

    @property
    def several(self) -> Sequence[Choice]:
        """What may be done with several items at once, unseen."""
        ...

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        ...

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, oldest due first: one more than `PAGE` where there are more."""
        ...

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next items that nobody holds and that a person of `roles` may decide, at most `REACH`."""
        ...

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return an item that waits in this queue, without content; None where there is none."""
        ...

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return what the item is about, in clear, for its template, and record that it was shown. Needs `Role.WRITER`."""
        ...

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Raise the `Problem` by which an act that is put off would be refused whatever happens meanwhile."""
        ...

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Carry out an act, and return what happened in a sentence. Raises `Problem`."""
        ...


#: Due within this is soon.
SOON = timedelta(hours=24)


def due_in(due_at: datetime, now: datetime) -> tuple[str, str]:
    """Return how long is left, in words, and how it looks: `ok`, `soon`, or `late`."""
    left = due_at - now
    look = "late" if left <= timedelta() else "soon" if left <= SOON else "ok"
    words = _span(abs(left))
    return (
        _("overdue %(words)s") % {"words": words} if look == "late" else _("due in %(words)s") % {"words": words}
    ), look


def _span(length: timedelta) -> str:
    minutes = int(length.total_seconds() // 60)
    if minutes < 60:
        return f"{max(minutes, 1)} min"
    if minutes < 36 * 60:
        return _("%(hours)s h") % {"hours": minutes // 60}
    return _("%(days)s d") % {"days": minutes // (24 * 60)}


@contextmanager
def as_writer(actor: Actor) -> Iterator[None]:
    """Take the write door's role for one act, with the settings that suit its joins, and the staff's again after it."""
    assume(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id)
    yield
    assume(Role.STAFF, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id)


def holds_on(tenant: UUID, records: Mapping[str, UUID]) -> list[str]:
    """Return the references of the matters whose holds cover any of the records, by kind."""
    found: set[UUID] = set()
    for kind, record in records.items():
        for ids in holds.held(tenant, kind, [record]).values():
            found.update(ids)
    if not found:
        return []
    matters = Hold.objects.filter(tenant_id=tenant, id__in=found).values_list("matter__reference", flat=True)
    return sorted(set(matters))
