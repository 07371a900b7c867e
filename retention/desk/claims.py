"""Claims: who has which waiting item in hand, and for how long.

The database fills in person and times, keeps one live claim an item, and lets nobody end another's before it has lapsed
(`retention/migrations`). Everything here runs in the page's transaction under `Role.STAFF`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from memory.rows import execute, fetch
from tenants.actors import Actor
from tenants.errors import Clash
from tenants.identity import new_id
from tenants.jsontext import dumps

#: How long a claim lasts unless it is renewed.
LASTS = timedelta(minutes=15)
#: How long a decision can be taken back before it is carried out.
UNDO = timedelta(seconds=10)
#: How long an item about which more was asked is offered to nobody.
DEFERRED = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Held:
    """A live claim of the person who acts. `digest` is of what was shown under it; None where nothing was.

    `pending`: something was decided under it that is not carried out yet.
    """

    id: UUID
    item: UUID
    expires_at: datetime
    digest: bytes | None
    revealed_until: datetime | None
    pending: bool = False


def digest_of(shown: Any) -> bytes:
    """Return what stands for what was shown: a SHA-256 of ids, counts and digests as JSON. Never of content."""
    return hashlib.sha256(dumps(shown)).digest()


_MINE = """
SELECT c.id, c.item_id, c.expires_at, c.digest, c.revealed_until, c.commit_at IS NOT NULL FROM retention_claim c
WHERE c.tenant_id = %s AND c.item_id = %s AND c.ended_at IS NULL AND c.person_id = %s AND c.expires_at > clock_timestamp()
FOR UPDATE
"""


def mine(actor: Actor, item: UUID) -> Held | None:
    """Return the actor's live claim on `item`, locked to the end of the transaction; None where they have none."""
    found = fetch(_MINE, [actor.tenant, item, actor.id])
    return Held(*found[0]) if found else None


def take(actor: Actor, queue: str, items: Sequence[UUID]) -> Held | None:
    """Claim the first of `items` that nobody holds, without waiting for anybody who reaches for one at the same time.

    None where all are held. One that the actor holds already is renewed and returned when it comes first.
    """
    if not items:
        return None
    held = mine(actor, items[0])
    if held is not None:
        return renew(actor, held.item)
    taken = fetch("SELECT claim_first(%s, %s, %s::uuid[])", [new_id(), queue, list(items)])[0][0]
    return None if taken is None else mine(actor, taken)


_RENEW = """
UPDATE retention_claim SET expires_at = clock_timestamp() + interval '15 minutes'
WHERE tenant_id = %s AND item_id = %s AND ended_at IS NULL AND person_id = %s AND expires_at > clock_timestamp()
  AND clock_timestamp() < taken_at + interval '11 hours'
"""


def renew(actor: Actor, item: UUID) -> Held:
    """Let a live claim last another quarter of an hour. Raises `Clash("claim_lapsed")` where there is none any more."""
    execute(_RENEW, [actor.tenant, item, actor.id])
    held = mine(actor, item)
    if held is None:
        raise Clash("claim_lapsed")
    return held


def require(actor: Actor, item: UUID, digest: bytes) -> Held:
    """Return the actor's live claim under which exactly `digest` was shown.

    Raises `Clash("claim_lapsed")` where there is none, `Clash("changed_since")` where something else was shown.
    """
    held = mine(actor, item)
    if held is None:
        raise Clash("claim_lapsed")
    if held.digest is None or bytes(held.digest) != digest:
        raise Clash("changed_since")
    return held


def showed(actor: Actor, claim: UUID, digest: bytes) -> None:
    """Bind a claim to the digest of what is shown under it."""
    execute("UPDATE retention_claim SET digest = %s WHERE tenant_id = %s AND id = %s", [digest, actor.tenant, claim])


def revealed(actor: Actor, claim: UUID, until: datetime) -> None:
    """Remember in a claim that what is masked under it was revealed, and until when."""
    execute(
        "UPDATE retention_claim SET revealed_until = %s WHERE tenant_id = %s AND id = %s", [until, actor.tenant, claim]
    )


_END = """
UPDATE retention_claim SET ended_at = clock_timestamp(), ended_by = %s, act = %s, reason = %s, deferred_until = %s,
  bulk_id = %s
WHERE tenant_id = %s AND id = %s
"""


def decided(actor: Actor, claim: UUID, *, act: str, reason: str, bulk: UUID | None = None) -> None:
    """End a claim with what was decided under it; `bulk` names the act on several of which it was one."""
    execute(_END, ["decided", act, reason, None, bulk, actor.tenant, claim])


def defer(actor: Actor, claim: UUID, *, reason: str, now: datetime, bulk: UUID | None = None) -> datetime:
    """End a claim because more was asked for; return until when the item is offered to nobody."""
    until = now + DEFERRED
    execute(_END, ["deferred", "ask_more", reason, until, bulk, actor.tenant, claim])
    return until


_RELEASE = """
UPDATE retention_claim SET ended_at = clock_timestamp(), ended_by = 'released'
WHERE tenant_id = %s AND item_id = %s AND person_id = %s AND ended_at IS NULL AND expires_at > clock_timestamp()
  AND commit_at IS NULL
"""


def release(actor: Actor, item: UUID) -> None:
    """Give an item back; nothing happens where it is not held, or was decided on."""
    execute(_RELEASE, [actor.tenant, item, actor.id])


_OF_ANOTHER = """
SELECT FROM retention_claim c WHERE c.tenant_id = %s AND c.item_id = %s AND c.ended_at IS NULL AND c.person_id <> %s
  AND c.expires_at > clock_timestamp()
"""


def of_another(actor: Actor, item: UUID) -> bool:
    """Return whether somebody else holds an item now."""
    return bool(fetch(_OF_ANOTHER, [actor.tenant, item, actor.id]))


@dataclass(frozen=True, slots=True)
class Progress:
    """What a person decided today (of UTC), and in how many seconds each at the median; what can be taken back counts."""

    done: int
    median: float | None


_PROGRESS = """
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM
  least(c.ended_at, c.commit_at - interval '10 seconds') - c.taken_at)::float)
FROM retention_claim c WHERE c.tenant_id = %s AND c.person_id = %s
  AND (c.ended_at >= %s AND c.ended_by = 'decided' OR c.ended_at IS NULL AND c.commit_at IS NOT NULL)
"""


def progress(actor: Actor, *, now: datetime) -> Progress:
    """Return what the actor has decided since midnight in UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Progress(*fetch(_PROGRESS, [actor.tenant, actor.id, midnight])[0])


def single_keys(actor: Actor) -> bool:
    """Return whether single keys act for the actor; they do until they are turned off."""
    found = fetch(
        "SELECT single_keys FROM retention_deskpreference WHERE tenant_id = %s AND person_id = %s",
        [actor.tenant, actor.id],
    )
    return bool(found[0][0]) if found else True


_PREFER = """
INSERT INTO retention_deskpreference (tenant_id, id, person_id, single_keys) VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant_id, person_id) DO UPDATE SET single_keys = excluded.single_keys
"""


def prefer(actor: Actor, *, single_keys: bool) -> None:
    """Keep whether single keys act for the actor."""
    execute(_PREFER, [actor.tenant, new_id(), actor.id, single_keys])
