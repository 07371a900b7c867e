"""Whom a provider's word stands for: people that an admin or an operator named, by subject or, once, by verified address.

A subject and an address are kept as digests. An address is worth one sign-in: it ties the provider's subject to the person,
and from then on the subject alone counts, so that an address given to somebody else opens nothing. Nobody who exists
already is tied to a provider by a tenant's admin: that would let an admin sign in as them, in other tenants too.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db import IntegrityError, transaction

from tenants.actors import Actor, ActorKind
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Clash, FieldError, Missing, Refused
from tenants.identity import new_id
from tenants.models import Membership, SignInIdentity, User
from tenants.providers import Kept, Provider, Told, Why

_LONGEST = 255


class KnownBy(StrEnum):
    """By what a provider names somebody."""

    SUBJECT = "subject"
    EMAIL = "email"


@dataclass(frozen=True, slots=True)
class Known:
    """As whom a provider knows somebody."""

    provider: str
    known_by: KnownBy
    value: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        """What is kept of it. An address is the same however it is written; a subject is what it is to the letter."""
        text = self.value.strip().casefold() if self.known_by is KnownBy.EMAIL else self.value
        return hashlib.sha256("\0".join((self.provider, self.known_by.value, text)).encode()).digest()


def tie(user: UUID, named: Known, now: datetime) -> None:
    """Tie somebody to a provider, unaudited: the door that asks does that. Needs `Role.FRONT`.

    Raises `Refused` for no subject and no address, `Clash` (`identity_taken`) where it stands for somebody already.
    """
    text = named.value.strip()
    if not 0 < len(text) <= _LONGEST or "\0" in text or (named.known_by is KnownBy.EMAIL and "@" not in text[1:-1]):
        raise Refused("identity_refused", errors=[FieldError("known_as", "out_of_bounds")])
    row = SignInIdentity(
        id=new_id(),
        user_id=user,
        provider=named.provider,
        known_by=named.known_by.value,
        digest=named.digest,
        created_at=now,
    )
    try:
        # A savepoint: whoever asked goes on in the same transaction, to say that it was refused.
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Clash("identity_taken") from None


def name_identity(username: str, named: Known, *, by: Actor, now: datetime) -> UUID:
    """Tie a person who exists to a provider; return who it is. The operator's act. Needs `Role.FRONT`.

    Raises `Missing` where nobody has that name, `Clash` (`identity_taken`) where the provider's word stands for somebody.
    """
    person = User.objects.filter(username=username).only("id").first()
    if person is None:
        raise Missing("user_unknown")
    tie(person.id, named, now)
    append([_event(by, Action.IDENTITY_NAMED, person.id, named.known_by.value)], chain=PLATFORM)
    return person.id


def remove_identities(username: str, *, by: Actor) -> tuple[UUID, int]:
    """Untie a person from all providers; return who it is and how much there was. The operator's. Needs `Role.FRONT`."""
    person = User.objects.filter(username=username).only("id").first()
    if person is None:
        raise Missing("user_unknown")
    removed, _ = SignInIdentity.objects.filter(user_id=person.id).delete()
    event = Event(
        actor=by,
        action=Action.IDENTITIES_REMOVED,
        target_kind="user",
        target_id=person.id,
        numbers={"removed": removed},
    )
    append([event], chain=PLATFORM)
    return person.id, removed


def providers_of(user: UUID) -> frozenset[str]:
    """Return by which providers somebody may sign in. Needs `Role.FRONT`."""
    return frozenset(SignInIdentity.objects.filter(user_id=user).values_list("provider", flat=True))


def person_of(provider: Provider, told: Told) -> UUID | None:
    """Return whom a provider's subject stands for, without changing anything. Needs `Role.FRONT`."""
    found = SignInIdentity.objects.filter(digest=Known(provider.name, KnownBy.SUBJECT, told.subject).digest).first()
    return None if found is None else found.user_id


def admit(provider: Provider, told: Told, *, now: datetime) -> User:
    """Return the person whom a provider's word stands for, so that they sign in. Needs `Role.FRONT`.

    Raises `Kept`: `unknown_person` where nobody was named so, `person_ended` where that person has no role any more, or
    was put out. Nothing changes then. An account is made only where the provider's description says so, without a role.
    """
    subject = Known(provider.name, KnownBy.SUBJECT, told.subject)
    found = SignInIdentity.objects.filter(digest=subject.digest).first()
    if found is not None:
        return _still_there(provider, found.user_id)
    by_email = None
    if told.email is not None:
        email = Known(provider.name, KnownBy.EMAIL, told.email)
        # Locked: two sign-ins at once are not both the first.
        by_email = SignInIdentity.objects.select_for_update().filter(digest=email.digest, used_at=None).first()
    if by_email is None:
        if provider.creates_accounts:
            return _made(subject, now)
        raise Kept(Why.UNKNOWN_PERSON)
    person = _still_there(provider, by_email.user_id)
    by_email.used_at = now
    by_email.save(update_fields=["used_at"])
    tie(person.id, subject, now)
    themselves = Actor(kind=ActorKind.PERSON, id=person.id, tenant=PLATFORM)
    append([_event(themselves, Action.IDENTITY_NAMED, person.id, "first_sign_in")], chain=PLATFORM)
    return person


def _still_there(provider: Provider, number: UUID) -> User:
    person: User = User.objects.get(id=number)
    inside = person.is_superuser or provider.creates_accounts or Membership.objects.filter(user_id=number).exists()
    if not (person.is_active and person.is_staff and inside):
        raise Kept(Why.PERSON_ENDED, number)
    return person


def _made(subject: Known, now: datetime) -> User:
    """Make an account that may do nothing yet: an admin gives it a role, by the name that is made here."""
    person = User(id=new_id(), is_staff=True, date_joined=now)
    person.username = f"{subject.provider}-{person.id.hex[-12:]}"
    person.set_unusable_password()
    with transaction.atomic():
        person.save(force_insert=True)
        tie(person.id, subject, now)
    themselves = Actor(kind=ActorKind.PERSON, id=person.id, tenant=PLATFORM)
    append([_event(themselves, Action.IDENTITY_NAMED, person.id, "account_made")], chain=PLATFORM)
    return person


def _event(by: Actor, action: Action, person: UUID, reason: str) -> Event:
    return Event(actor=by, action=action, target_kind="user", target_id=person, reason=reason)
