"""What was rejected, redacted or erased does not come back unasked: it is remembered as digests, and writes are held against them.

A digest is an HMAC under the tenant's pepper, which never rotates; nothing of the content can be read from it. There are
four keys: a *source* (turn and text of an episode), a *text* under whatever turn, a *saying* (a subject's name, attribute,
canonical value) and, after an erasure, each name of the *subject*. A matching source is refused at any time. Anything else
that matches is refused where it is dated at or before the decision; what is newer may come in, but a direct fact, which
has no episode to date it, is put before a person. A person may lift a suppression (design, section 7).

A write asks once, in its opening statement, and again for values and texts only in a tenant that has suppressions.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from memory import outbox, rows
from memory.outcomes import Refusal
from tenants.actors import Actor
from tenants.audit import Action, Event
from tenants.errors import Missing
from tenants.identity import new_id
from tenants.secrets import keyring

#: The code of a refusal, and the reason of a question.
SUPPRESSED = "suppressed"

Cause = Literal["rejected", "redacted", "erased"]


class Key(StrEnum):
    """What a suppression recognises."""

    SOURCE = "source"
    TEXT = "text"
    SAYING = "saying"
    SUBJECT = "subject"


# digests --------------------------------------------------------------------------------------------------------------


def of_subject(tenant: UUID, name: bytes) -> bytes:
    """Return what a suppressed subject is known by; `name` is the look-up digest of a key or an alias."""
    return keyring().peppered(tenant, "suppressed.subject", name)


def of_saying(tenant: UUID, name: bytes, attribute: str, value: str) -> bytes:
    """Return what a saying is known by: `name` as above, the attribute's name, the canonical value."""
    named = attribute.encode("utf-8")
    # The length keeps attribute and value apart.
    data = name + len(named).to_bytes(4, "big") + named + value.encode("utf-8")
    return keyring().peppered(tenant, "suppressed.saying", data)


def of_text(tenant: UUID, text: str) -> bytes:
    """Return what an episode's text is known by, as it is kept: letters alike, however it is spaced and written."""
    return keyring().peppered(tenant, "suppressed.text", _plain(text))


def of_source(tenant: UUID, turn: str, text: str) -> bytes:
    """Return what an episode is known by: its turn and its text."""
    named = turn.encode("utf-8")
    data = len(named).to_bytes(4, "big") + named + _plain(text)
    return keyring().peppered(tenant, "suppressed.source", data)


def _plain(text: str) -> bytes:
    return " ".join(text.split()).casefold().encode("utf-8")


# looking up -----------------------------------------------------------------------------------------------------------

_FOUND = """(SELECT coalesce(json_object_agg(encode(s.digest, 'hex'), (extract(epoch FROM s.decided_at) * 1000000)::bigint), '{}')
  FROM memory_suppression s
  WHERE s.tenant_id = %(tenant)s::uuid AND s.digest = ANY (%(suppressible)s::bytea[]) AND s.lifted_at IS NULL)::text"""
#: An expression for the opening of a write: what stands of the digests `suppressible`; null in a tenant without suppressions.
OPENING = f"""CASE WHEN EXISTS (SELECT FROM memory_suppression s WHERE s.tenant_id = %(tenant)s::uuid AND s.lifted_at IS NULL)
  THEN {_FOUND} END"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Standing:
    """The suppressions that a write was held against so far, by digest, each with the latest decision; `any` whether
    its tenant has any at all."""

    any: bool = False
    decided: dict[bytes, datetime] = field(default_factory=dict)

    def take(self, found: str | None) -> None:
        """Read an answer to `OPENING` or to `query`."""
        if found is not None:
            self.any = True
            self.decided |= {
                bytes.fromhex(digest): _EPOCH + timedelta(microseconds=at) for digest, at in json.loads(found).items()
            }

    def since(self, digests: Iterable[bytes]) -> datetime | None:
        """Return the latest decision on any of `digests`, None where none is suppressed."""
        return max((self.decided[each] for each in digests if each in self.decided), default=None)


def query(tenant: UUID, digests: Collection[bytes]) -> rows.Query | None:
    """Return what asks which of `digests` are suppressed; None for none. Read the answer by `read`."""
    return (f"SELECT {_FOUND}", {"tenant": tenant, "suppressible": sorted(digests)}) if digests else None


def look_up(tenant: UUID, standing: Standing, digests: Collection[bytes]) -> None:
    """Hold `digests` against what stands, in one statement; none where the tenant has no suppression."""
    if standing.any:
        for (found,) in rows.fetch_all([query(tenant, digests)])[0]:
            standing.take(found)


def standing(tenant: UUID, names: Iterable[str]) -> Standing:
    """Return what stands on subjects of `names`, for a door that has no opening statement."""
    ring = keyring()
    digests = sorted(of_subject(tenant, ring.identifier(tenant, name)) for name in names)
    held = Standing()
    held.take(rows.fetch(f"SELECT {OPENING}", {"tenant": tenant, "suppressible": digests})[0][0])
    return held


def named(tenant: UUID, names: Iterable[str]) -> list[bytes]:
    """Return the digests by which subjects of `names` would be suppressed."""
    ring = keyring()
    return [of_subject(tenant, ring.identifier(tenant, name)) for name in names]


def refusal(*, status: int = 422) -> Refusal:
    """Return what is raised where something may not return."""
    return Refusal("suppressed", status=status, reasons=("suppressed",), rule="builtin.suppression")


# adding ---------------------------------------------------------------------------------------------------------------


class Suppressed(NamedTuple):
    """One suppression to be added."""

    key: Key
    digest: bytes
    attribute: UUID | None = None


#: So many stand in one entry of the endings log.
_TOLD_AT_ONCE = 400
_ADD = f"""
INSERT INTO memory_suppression AS s
  (tenant_id, id, key, digest, decided_at, cause, target_kind, target_id, attribute_id, created_at)
SELECT %(tenant)s::uuid, w.id, w.key, w.digest, %(now)s::timestamptz, %(cause)s::text, %(kind)s::text, %(target)s::uuid,
  w.attribute_id, clock_timestamp()
FROM {rows.recordset("added", [("id", "uuid"), ("key", "text"), ("digest", "bytea"), ("attribute_id", "uuid")])}
ORDER BY w.digest
ON CONFLICT (tenant_id, digest) WHERE lifted_at IS NULL DO UPDATE SET
  decided_at = greatest(s.decided_at, excluded.decided_at), cause = excluded.cause, target_kind = excluded.target_kind,
  target_id = excluded.target_id
RETURNING s.id
"""


def add(
    tenant: UUID, wanted: Iterable[Suppressed], *, cause: Cause, target_kind: str, target: UUID, now: datetime
) -> list[UUID]:
    """Suppress `wanted` from the decision `now` on; what is suppressed already is renewed. Return their ids.

    The endings log outside the database is told, with the commit. In the open transaction of the decision, which is `target` (a candidate, a redaction, a run of an erasure), under the
    writer's or the worker's role. Leaves no audit entry: the decision's own says how many (`numbers`).
    """
    once = {each.digest: each for each in wanted}
    if not once:
        return []
    added = [(new_id(), each.key.value, digest, each.attribute) for digest, each in once.items()]
    given = {
        "tenant": tenant,
        "now": now,
        "cause": cause,
        "kind": target_kind,
        "target": target,
        "added": rows.as_json(["id", "key", "digest", "attribute_id"], added),
    }
    ids = [row[0] for row in rows.fetch(_ADD, given)]
    told = [[each.key.value, digest.hex(), each.attribute and str(each.attribute)] for digest, each in once.items()]
    for start in range(0, len(told), _TOLD_AT_ONCE):
        record = {
            "cause": cause,
            "target_kind": target_kind,
            "decided_at": now.isoformat(),
            "keys": told[start : start + _TOLD_AT_ONCE],
        }
        outbox.endings_log().owe(tenant, "suppression", target, record)
    return ids


def restore(tenant: UUID, target: UUID, record: Mapping[str, Any]) -> None:
    """Suppress again what an entry of the endings log tells, after a backup was restored that may not know of it.

    Harmless to repeat. What was lifted later is not to be given to it.
    """
    keys = [(new_id(), key, bytes.fromhex(digest), attribute) for key, digest, attribute in record["keys"]]
    given = {
        "tenant": tenant,
        "now": datetime.fromisoformat(record["decided_at"]),
        "cause": record["cause"],
        "kind": record["target_kind"],
        "target": target,
        "added": rows.as_json(["id", "key", "digest", "attribute_id"], keys),
    }
    rows.fetch(_ADD, given)


def add_saying(
    tenant: UUID,
    names: Iterable[bytes],
    attribute: str,
    value: str,
    *,
    attribute_id: UUID | None,
    cause: Cause,
    target_kind: str,
    target: UUID,
    now: datetime,
) -> list[UUID]:
    """Suppress a saying under every name of its subject; `names` are look-up digests, `value` is canonical. As `add`."""
    wanted = [Suppressed(Key.SAYING, of_saying(tenant, name, attribute, value), attribute_id) for name in names]
    return add(tenant, wanted, cause=cause, target_kind=target_kind, target=target, now=now)


def add_sources(
    tenant: UUID,
    sources: Iterable[tuple[str, str]],
    *,
    cause: Cause,
    target_kind: str,
    target: UUID,
    now: datetime,
) -> list[UUID]:
    """Suppress episodes by (turn_id, text as it was kept). As `add`."""
    wanted = [
        each
        for turn, text in sources
        for each in (
            Suppressed(Key.SOURCE, of_source(tenant, turn, text)),
            Suppressed(Key.TEXT, of_text(tenant, text)),
        )
    ]
    return add(tenant, wanted, cause=cause, target_kind=target_kind, target=target, now=now)


def add_source(
    tenant: UUID, turn: str, text: str, *, cause: Cause, target_kind: str, target: UUID, now: datetime
) -> list[UUID]:
    """Suppress one episode. As `add`."""
    return add_sources(tenant, [(turn, text)], cause=cause, target_kind=target_kind, target=target, now=now)


def add_subject(
    tenant: UUID, names: Iterable[bytes], *, cause: Cause, target_kind: str, target: UUID, now: datetime
) -> list[UUID]:
    """Suppress a subject under every name that it has; `names` are look-up digests. As `add`."""
    wanted = [Suppressed(Key.SUBJECT, of_subject(tenant, name)) for name in names]
    return add(tenant, wanted, cause=cause, target_kind=target_kind, target=target, now=now)


_NAMES = "SELECT i.digest FROM memory_subjectidentifier i WHERE i.tenant_id = %s::uuid AND i.subject_id = %s::uuid"


def names_of(tenant: UUID, subject: UUID) -> list[bytes]:
    """Return the look-up digests of a subject's names; under a role that may read them."""
    return [bytes(row[0]) for row in rows.fetch(_NAMES, [tenant, subject])]


# lifting --------------------------------------------------------------------------------------------------------------

_LIFT = """
UPDATE memory_suppression SET lifted_at = clock_timestamp(), lifted_by = %(by)s::uuid, lift_reason = %(reason)s::text
WHERE tenant_id = %(tenant)s::uuid AND id = ANY (%(ids)s::uuid[]) AND lifted_at IS NULL
RETURNING id, digest
"""


def lift(actor: Actor, suppressions: Collection[UUID], *, reason: str) -> tuple[list[UUID], list[Event]]:
    """Lift suppressions in a person's name; they stay as rows that say who lifted them and why. Return the lifted, and
    what is to be audited of it as the last act of the transaction.

    Under the staff's role, at most 500 at once. The database refuses anybody but a privacy officer of the tenant. Raises
    `Missing` where none of them stands.
    """
    given = {"tenant": actor.tenant, "by": actor.id, "ids": sorted(suppressions), "reason": reason}
    found = rows.fetch(_LIFT, given)
    if not found:
        raise Missing
    digests = [bytes(digest).hex() for _, digest in found]
    outbox.endings_log().owe(actor.tenant, "suppression_lifted", found[0][0], {"digests": digests})
    events = [
        Event(
            actor=actor, action=Action.SUPPRESSION_LIFTED, target_kind="suppression", target_id=each, reason=reason[:60]
        )
        for each, _ in found
    ]
    return [each for each, _ in found], events


# counting -------------------------------------------------------------------------------------------------------------

_COUNT = """
INSERT INTO memory_preventedreturn AS c (tenant_id, id, day, refused, asked)
VALUES (%(tenant)s::uuid, %(id)s::uuid, (clock_timestamp() AT TIME ZONE 'UTC')::date, %(refused)s::bigint, %(asked)s::bigint)
ON CONFLICT (tenant_id, day) DO UPDATE SET refused = c.refused + excluded.refused, asked = c.asked + excluded.asked
"""


def count(tenant: UUID, *, refused: int = 0, asked: int = 0) -> None:
    """Count what was kept from coming back; nothing is sent for none. Right before the audit: the row is one a day."""
    if refused or asked:
        rows.execute(_COUNT, {"tenant": tenant, "id": new_id(), "refused": refused, "asked": asked})


_PREVENTED = """
SELECT coalesce(sum(refused), 0)::bigint, coalesce(sum(asked), 0)::bigint FROM memory_preventedreturn
WHERE tenant_id = %s::uuid AND day >= %s::date
"""


def prevented(tenant: UUID, since: datetime) -> Mapping[str, int]:
    """Return how often something was kept from coming back since that day (of UTC): `refused`, and `asked` about."""
    ((refused, asked),) = rows.fetch(_PREVENTED, [tenant, since.astimezone(UTC).date()])
    return {"refused": refused, "asked": asked}
