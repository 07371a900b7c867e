"""The chain attacked with raw SQL by somebody whom neither grants nor triggers bind."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tenants import secrets, verification
from tenants.audit import PLATFORM, Action, Event, append
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import LogDamaged, SignedLog
from tenants.registry import OPERATOR
from tenants.verification import Finding, export, verify_all


@pytest.fixture
def log(tmp_path: Path) -> SignedLog:
    return SignedLog(tmp_path / "checkpoints.jsonl", secrets.provider())


@pytest.fixture
def chain(tenant: Any) -> UUID:
    """A chain of at least 12 entries."""
    with tenant_transaction(Role.WRITER, tenant=tenant.id):
        event = Event(actor=OPERATOR, action=Action.WRITE_REFUSED, target_kind="test", target_id=tenant.id)
        append([event] * 10, chain=tenant.id)
    return UUID(str(tenant.id))


def verified(log: SignedLog, chain: UUID) -> Finding:
    with tenant_transaction(Role.FRONT, tenant=None):
        return verify_all(log, only=chain)[0]


@contextmanager
def unguarded(superuser: Any) -> Iterator[Callable[..., Any]]:
    """Statements past every trigger."""
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = 'replica'")
        yield superuser.execute


def test_an_untouched_chain_is_sound(log: SignedLog, chain: UUID) -> None:
    found = verified(log, chain)
    assert (found.bad, found.code) == (None, "sound")
    assert found.entries >= 12


def test_chunks_overlap_so_that_their_seams_are_judged_too(
    log: SignedLog, chain: UUID, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = verified(log, chain).entries
    for size in (2, 3, 5, 100):
        monkeypatch.setattr(verification, "_CHUNK", size)
        assert (verified(log, chain).bad, verified(log, chain).entries) == (None, whole)
    with unguarded(superuser) as execute:
        execute("UPDATE tenants_auditevent SET reason = 'duplicate' WHERE chain = %s AND seq = 7", [chain])
    for size in (2, 3, 5, 100):
        monkeypatch.setattr(verification, "_CHUNK", size)
        assert verified(log, chain).bad == 7


@pytest.mark.parametrize(
    "change",
    [
        "reason = 'other'",
        "at = at + interval '1 microsecond'",
        "actor_id = gen_random_uuid()",
        "target_id = gen_random_uuid()",
        "numbers = '{\"n\": 1}'",
        "digest = sha256('x')",
        "action = 'fact.written'",
        "prev = sha256('x')",
        "hash = sha256('x')",
    ],
)
def test_a_changed_column_is_found_at_its_entry(log: SignedLog, chain: UUID, superuser: Any, change: str) -> None:
    with unguarded(superuser) as execute:
        execute(f"UPDATE tenants_auditevent SET {change} WHERE chain = %s AND seq = 5", [chain])
    found = verified(log, chain)
    assert (found.bad, found.code) == (5, "altered")


def test_a_removed_entry_is_found_where_the_next_one_follows_nothing(
    log: SignedLog, chain: UUID, superuser: Any
) -> None:
    with unguarded(superuser) as execute:
        execute("DELETE FROM tenants_auditevent WHERE chain = %s AND seq = 5", [chain])
    assert verified(log, chain).bad == 6


def test_a_removed_beginning_is_found(log: SignedLog, chain: UUID, superuser: Any) -> None:
    with unguarded(superuser) as execute:
        execute("DELETE FROM tenants_auditevent WHERE chain = %s AND seq <= 3", [chain])
    assert verified(log, chain).bad is not None


def test_an_entry_cut_off_the_end_is_found_by_the_head(log: SignedLog, chain: UUID, superuser: Any) -> None:
    last = verified(log, chain).entries
    with unguarded(superuser) as execute:
        execute("DELETE FROM tenants_auditevent WHERE chain = %s AND seq = %s", [chain, last])
    found = verified(log, chain)
    assert (found.bad, found.code) == (last, "cut")


def cut(superuser: Any, chain: UUID, keep: int) -> None:
    """Cut the end off and move the head back, so that the chain alone is sound."""
    with unguarded(superuser) as execute:
        execute("DELETE FROM tenants_auditevent WHERE chain = %s AND seq > %s", [chain, keep])
        execute(
            "UPDATE tenants_auditchain c SET seq = e.seq, hash = e.hash FROM tenants_auditevent e"
            " WHERE c.chain = e.chain AND e.chain = %s AND e.seq = %s",
            [chain, keep],
        )


def test_a_tail_cut_off_with_its_head_is_found_by_the_checkpoint_alone(
    log: SignedLog, chain: UUID, superuser: Any
) -> None:
    from datetime import UTC, datetime

    assert export(log, [verified(log, chain)], now=datetime.now(UTC)) == 1
    cut(superuser, chain, 8)
    without = SignedLog(Path("/nonexistent-folder/checkpoints.jsonl"), secrets.provider())
    assert verified(without, chain).bad is None
    found = verified(log, chain)
    assert (found.bad, found.code) == (9, "cut")


def test_a_tail_that_was_cut_off_and_written_anew_is_found_by_the_checkpoint(
    log: SignedLog, chain: UUID, superuser: Any
) -> None:
    from datetime import UTC, datetime

    export(log, [verified(log, chain)], now=datetime.now(UTC))
    signed = verified(log, chain).entries
    cut(superuser, chain, 8)
    with tenant_transaction(Role.WRITER, tenant=chain):
        event = Event(actor=OPERATOR, action=Action.WRITE_REFUSED, target_kind="test", target_id=chain)
        append([event] * 10, chain=chain)
    found = verified(log, chain)
    assert (found.bad, found.code) == (signed, "rewritten")


def test_a_chain_that_is_gone_altogether_is_found(log: SignedLog, chain: UUID, superuser: Any) -> None:
    with unguarded(superuser) as execute:
        execute("DELETE FROM tenants_auditevent WHERE chain = %s", [chain])
        execute("DELETE FROM tenants_auditchain WHERE chain = %s", [chain])
    found = verified(log, chain)
    assert (found.bad, found.code) == (1, "no_chain")


def test_a_forged_checkpoint_is_not_believed(log: SignedLog, chain: UUID, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    export(log, [verified(log, chain)], now=datetime.now(UTC))
    file = tmp_path / "checkpoints.jsonl"
    file.write_text(re.sub(r'"seq":\d+', '"seq":1', file.read_text()))
    with pytest.raises(LogDamaged):
        verified(log, chain)


def test_a_checkpoint_holds_a_chain_a_number_a_hash_and_a_time_alone(
    log: SignedLog, chain: UUID, tmp_path: Path
) -> None:
    from datetime import UTC, datetime

    export(log, [verified(log, chain)], now=datetime(2026, 6, 1, 9, tzinfo=UTC))
    record = json.loads((tmp_path / "checkpoints.jsonl").read_text())["entry"]["record"]
    assert set(record) == {"chain", "seq", "hash", "at"}
    assert (record["chain"], record["at"]) == (str(chain), "2026-06-01T09:00:00Z")


def test_the_platforms_chain_is_verified_with_every_tenants(log: SignedLog, chain: UUID) -> None:
    with tenant_transaction(Role.FRONT, tenant=None):
        found = {finding.chain for finding in verify_all(log)}
    assert {PLATFORM, chain} <= found
