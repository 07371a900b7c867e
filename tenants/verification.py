"""Whether the audit chains still say what was written, and signed proof outside the database of how far they had come.

A changed, added or removed entry is found from the chain alone. Entries cut off its end leave a chain that is sound: only
a checkpoint that was exported before can show that it was longer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from tenants.audit import PLATFORM
from tenants.keyring import SignedLog

_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a chain."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verification found of one chain.

    `bad` is the sequence number of the first entry that does not hold, None where all do; `code` says what is wrong:
    `altered` (the entry, or what it follows), `cut` (entries that were there are not any more), `rewritten` (not the
    chain that was signed), `no_chain`.
    """

    chain: UUID
    entries: int
    bad: int | None
    code: str
    head: Head | None


def chains() -> dict[UUID, Head]:
    """Return every chain with its head. Needs `Role.FRONT`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT chain, seq, hash FROM tenants_auditchain ORDER BY chain")
        return {chain: Head(seq, bytes(digest)) for chain, seq, digest in cursor.fetchall()}


def checkpoints(log: SignedLog) -> dict[UUID, Head]:
    """Return the newest checkpoint of every chain. Raises `LogDamaged`."""
    found: dict[UUID, Head] = {}
    for record in log.records():
        found[UUID(record["chain"])] = Head(record["seq"], bytes.fromhex(record["hash"]))
    return found


def export(log: SignedLog, sound: Iterable[Finding], *, now: datetime) -> int:
    """Append a signed checkpoint of every chain in `sound`; return how many. Raises `LogDamaged`, `OSError`."""
    return export_heads(log, {each.chain: each.head for each in sound if each.head is not None}, now=now)


def export_heads(log: SignedLog, heads: Mapping[UUID, Head], *, now: datetime, restored: bool = False) -> int:
    """Append a signed checkpoint of every chain; return how many. Raises `LogDamaged`, `OSError`.

    `restored` marks the head from which a chain goes on after a backup was restored: it takes the place of the newer ones
    before it, whose entries are gone with what was written since.
    """
    for chain, head in heads.items():
        record = {
            "chain": str(chain),
            "seq": head.seq,
            "hash": head.hash.hex(),
            "at": now.isoformat().replace("+00:00", "Z"),
        }
        log.append({**record, "restored": True} if restored else record)
    return len(heads)


def verify(chain: UUID, *, head: Head | None, signed: Head | None) -> Finding:
    """Walk one chain up to `head`, and hold it against its newest checkpoint. Needs `Role.FRONT`."""
    if head is None:
        entries = _entry_at(chain, 1) is not None
        return Finding(chain, 0, 1 if entries or signed is not None or chain != PLATFORM else None, "no_chain", None)
    checked, after = 0, 1
    digest = head.hash
    while head.seq > 0:
        # Chunks share an entry: each is judged against the one before it.
        wanted = min(_CHUNK, head.seq - after + 1)
        found, bad, last, digest = _part(chain, after, wanted)
        checked += found - (1 if after > 1 else 0)
        if bad is not None:
            return Finding(chain, checked, bad, "altered", head)
        if found < wanted:
            # The head is further than the last entry.
            return Finding(chain, checked, (last or 0) + 1, "cut", head)
        if last == head.seq:
            break
        after = last
    if bytes(digest) != head.hash:
        return Finding(chain, checked, head.seq, "altered", head)
    if signed is not None:
        if signed.seq > head.seq:
            return Finding(chain, checked, head.seq + 1, "cut", head)
        if _entry_at(chain, signed.seq) != signed.hash:
            return Finding(chain, checked, signed.seq, "rewritten", head)
    return Finding(chain, checked, None, "sound", head)


def _part(chain: UUID, after: int, limit: int) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT checked, bad, last_seq, last_hash FROM audit_first_bad(%s, %s, %s)", [chain, after, limit]
        )
        return cursor.fetchone()


def _entry_at(chain: UUID, seq: int) -> bytes | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT hash FROM tenants_auditevent WHERE chain = %s AND seq = %s", [chain, seq])
        row = cursor.fetchone()
    return None if row is None else bytes(row[0])


def verify_all(log: SignedLog, *, only: UUID | None = None, known: Mapping[UUID, str] | None = None) -> list[Finding]:
    """Verify every chain, or `only` one: of the platform, of every tenant in `known`, of every checkpoint."""
    heads, signed = chains(), checkpoints(log)
    wanted = [only] if only is not None else sorted({PLATFORM, *heads, *signed, *(known or {})})
    return [verify(chain, head=heads.get(chain), signed=signed.get(chain)) for chain in wanted]
