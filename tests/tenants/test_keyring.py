"""The keyring: what seals, what refuses, what survives a race, a crash and a curious reader."""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tenants.keyring import (
    DirectoryKeys,
    Keyring,
    KeyUnavailable,
    LogDamaged,
    SignedLog,
    Unsealable,
)

ACME = UUID("01900000-0000-7000-8000-00000000000a")
BOLT = UUID("01900000-0000-7000-8000-00000000000b")
FRESH = multiprocessing.get_context("spawn")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def keys(home: Path) -> DirectoryKeys:
    provider = DirectoryKeys(home)
    provider.create_tenant(ACME)
    provider.create_tenant(BOLT)
    return provider


@pytest.fixture
def ring(keys: DirectoryKeys) -> Keyring:
    return Keyring(keys)


@pytest.fixture
def log(tmp_path: Path, keys: DirectoryKeys) -> SignedLog:
    return SignedLog(tmp_path / "checkpoints.log", keys)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(KeyUnavailable) as caught:
        act()
    return caught.value.code


def version_file(home: Path, version: int, tenant: UUID = ACME) -> Path:
    return home / "tenants" / str(tenant) / f"{version}.key"


# Tenants and their keys


def test_a_new_tenant_has_version_one_a_pepper_and_an_idempotency_key_all_different(
    keys: DirectoryKeys,
) -> None:
    version, key = keys.tenant_key(ACME)
    assert version == 1
    assert len({key, keys.pepper(ACME), keys.idempotency_key(ACME), keys.tenant_key(BOLT)[1]}) == 4
    assert len(key) == len(keys.pepper(ACME)) == len(keys.idempotency_key(ACME)) == 32


def test_creating_a_tenant_again_keeps_its_keys(keys: DirectoryKeys) -> None:
    before = keys.tenant_key(ACME), keys.pepper(ACME), keys.idempotency_key(ACME)
    keys.create_tenant(ACME)
    assert (keys.tenant_key(ACME), keys.pepper(ACME), keys.idempotency_key(ACME)) == before


def test_creating_a_tenant_again_never_replaces_a_lost_pepper(keys: DirectoryKeys, home: Path) -> None:
    (home / "tenants" / str(ACME) / "pepper.key").unlink()
    assert refusal(lambda: keys.create_tenant(ACME)) == "missing"


def test_keys_outlive_the_process(keys: DirectoryKeys, home: Path) -> None:
    again = DirectoryKeys(home)
    assert again.tenant_key(ACME) == keys.tenant_key(ACME)
    assert again.pepper(ACME) == keys.pepper(ACME)
    assert again.public_key_pem() == keys.public_key_pem()


def test_a_crash_before_the_last_step_of_creation_leaves_no_tenant_and_can_be_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = DirectoryKeys(home)

    def fail(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", fail)
        assert refusal(lambda: keys.create_tenant(ACME)) == "unreadable"
    assert refusal(lambda: keys.tenant_key(ACME)) == "unknown_tenant"
    assert os.listdir(home / "tenants") == []
    keys.create_tenant(ACME)
    assert keys.tenant_key(ACME)[0] == 1


def test_an_unknown_tenant_is_refused_by_every_question(keys: DirectoryKeys) -> None:
    stranger = UUID(int=7)
    assert refusal(lambda: keys.tenant_key(stranger)) == "unknown_tenant"
    assert refusal(lambda: keys.tenant_key(stranger, 1)) == "unknown_tenant"
    assert refusal(lambda: keys.pepper(stranger)) == "unknown_tenant"
    assert refusal(lambda: keys.idempotency_key(stranger)) == "unknown_tenant"
    assert refusal(lambda: keys.new_version(stranger)) == "unknown_tenant"
    assert refusal(lambda: keys.delete_version(stranger, 1)) == "unknown_tenant"


# Versions


def test_a_new_version_is_current_and_the_old_one_still_answers(keys: DirectoryKeys) -> None:
    _, old = keys.tenant_key(ACME)
    assert keys.new_version(ACME) == 2
    version, new = keys.tenant_key(ACME)
    assert version == 2
    assert new != old
    assert keys.tenant_key(ACME, 1) == (1, old)
    assert keys.tenant_key(BOLT)[0] == 1


def test_a_version_added_elsewhere_is_current_here_at_once(keys: DirectoryKeys, home: Path) -> None:
    assert keys.tenant_key(ACME)[0] == 1
    DirectoryKeys(home).new_version(ACME)
    assert keys.tenant_key(ACME)[0] == 2


def test_a_version_deleted_elsewhere_is_refused_here_although_cached(keys: DirectoryKeys, home: Path) -> None:
    keys.new_version(ACME)
    keys.tenant_key(ACME, 1)
    DirectoryKeys(home).delete_version(ACME, 1)
    assert refusal(lambda: keys.tenant_key(ACME, 1)) == "deleted_version"
    assert keys.tenant_key(ACME)[0] == 2


def test_a_version_file_removed_by_hand_is_noticed(keys: DirectoryKeys, home: Path) -> None:
    keys.new_version(ACME)
    keys.tenant_key(ACME, 1)
    version_file(home, 1).unlink()
    assert refusal(lambda: keys.tenant_key(ACME, 1)) == "unknown_version"


def test_a_deleted_version_leaves_no_key_byte_in_any_file(keys: DirectoryKeys, home: Path) -> None:
    _, key = keys.tenant_key(ACME)
    keys.new_version(ACME)
    with version_file(home, 1).open("rb") as held_open:
        keys.delete_version(ACME, 1)
        assert held_open.read() == b""
    assert not any(key in file.read_bytes() for file in home.rglob("*") if file.is_file())


def test_deleting_twice_is_the_same_as_once(keys: DirectoryKeys) -> None:
    keys.new_version(ACME)
    keys.delete_version(ACME, 1)
    keys.delete_version(ACME, 1)
    assert refusal(lambda: keys.tenant_key(ACME, 1)) == "deleted_version"


def test_a_deletion_killed_half_way_leaves_no_usable_key_and_can_be_finished(
    keys: DirectoryKeys, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.new_version(ACME)
    _, key = keys.tenant_key(ACME, 1)

    def killed(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", killed)
        assert refusal(lambda: keys.delete_version(ACME, 1)) == "unreadable"
    assert key not in version_file(home, 1).read_bytes()
    assert refusal(lambda: DirectoryKeys(home).tenant_key(ACME, 1)) == "corrupt"
    keys.delete_version(ACME, 1)
    assert refusal(lambda: keys.tenant_key(ACME, 1)) == "deleted_version"


def test_the_current_version_may_not_be_deleted(keys: DirectoryKeys) -> None:
    assert refusal(lambda: keys.delete_version(ACME, 1)) == "current_version"
    assert keys.tenant_key(ACME)[0] == 1


def test_the_number_of_a_deleted_version_is_never_used_again(keys: DirectoryKeys) -> None:
    keys.new_version(ACME)
    keys.new_version(ACME)
    keys.delete_version(ACME, 2)
    keys.delete_version(ACME, 1)
    assert keys.new_version(ACME) == 4


@pytest.mark.parametrize("version", [-1, 0, 2, 99])
def test_a_version_that_never_was_is_unknown(keys: DirectoryKeys, version: int) -> None:
    assert refusal(lambda: keys.tenant_key(ACME, version)) == "unknown_version"
    assert refusal(lambda: keys.delete_version(ACME, version)) == "unknown_version"


# Files


def test_folders_are_0700_and_files_0600_under_any_umask(home: Path) -> None:
    before = os.umask(0)
    try:
        keys = DirectoryKeys(home)
        keys.create_tenant(ACME)
        keys.new_version(ACME)
        keys.signing_key()
    finally:
        os.umask(before)
    for entry in [home, *home.rglob("*")]:
        assert stat.S_IMODE(entry.stat().st_mode) == (0o700 if entry.is_dir() else 0o600), entry


def test_a_directory_in_use_that_others_may_enter_is_refused(keys: DirectoryKeys, home: Path) -> None:
    home.chmod(0o750)
    assert refusal(lambda: DirectoryKeys(home)) == "open_permissions"


def test_an_empty_directory_of_our_own_is_closed_to_others(home: Path) -> None:
    home.mkdir(mode=0o755)
    DirectoryKeys(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_key_file_that_others_may_read_is_refused(keys: DirectoryKeys, home: Path) -> None:
    version_file(home, 1).chmod(0o640)
    assert refusal(lambda: DirectoryKeys(home).tenant_key(ACME)) == "open_permissions"


def test_a_key_file_that_is_a_link_is_refused(keys: DirectoryKeys, home: Path) -> None:
    version_file(home, 1).rename(home / "elsewhere")
    version_file(home, 1).symlink_to(home / "elsewhere")
    assert refusal(lambda: keys.tenant_key(ACME)) == "unreadable"


def test_a_key_file_with_any_byte_altered_is_corrupt(keys: DirectoryKeys, home: Path) -> None:
    file = version_file(home, 1)
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        assert refusal(lambda: DirectoryKeys(home).tenant_key(ACME, 1)) == "corrupt"


def test_a_key_file_cut_short_or_grown_is_corrupt(keys: DirectoryKeys, home: Path) -> None:
    file = version_file(home, 1)
    sound = file.read_bytes()
    for content in [*(sound[:length] for length in range(1, len(sound))), sound + b"\n"]:
        file.write_bytes(content)
        assert refusal(lambda: keys.tenant_key(ACME, 1)) == "corrupt"


def test_an_empty_pepper_is_corrupt_and_not_a_deleted_version(keys: DirectoryKeys, home: Path) -> None:
    (home / "tenants" / str(ACME) / "pepper.key").write_bytes(b"")
    assert refusal(lambda: keys.pepper(ACME)) == "corrupt"


def test_a_key_file_copied_from_another_tenant_is_corrupt(keys: DirectoryKeys, home: Path) -> None:
    version_file(home, 1, BOLT).write_bytes(version_file(home, 1, ACME).read_bytes())
    assert refusal(lambda: keys.tenant_key(BOLT)) == "corrupt"


def test_a_key_replaced_under_a_cache_is_read_again(keys: DirectoryKeys, home: Path, tmp_path: Path) -> None:
    keys.pepper(ACME)
    other = DirectoryKeys(tmp_path / "other")
    other.create_tenant(ACME)
    os.replace(tmp_path / "other/tenants" / str(ACME) / "pepper.key", home / "tenants" / str(ACME) / "pepper.key")
    assert keys.pepper(ACME) == DirectoryKeys(home).pepper(ACME)


# Races


def _create_and_tell(home: Path, start: Any, told: Any) -> None:
    provider = DirectoryKeys(home)
    start.wait()
    seen = []
    for number in range(20):
        tenant = UUID(int=number + 1)
        provider.create_tenant(tenant)
        seen.append((provider.tenant_key(tenant), provider.pepper(tenant), provider.idempotency_key(tenant)))
    told.put((seen, provider.public_key_pem()))


def _rotate_and_tell(home: Path, start: Any, told: Any) -> None:
    provider = DirectoryKeys(home)
    start.wait()
    told.put([provider.new_version(ACME) for _ in range(20)])


def _append_and_tell(home: Path, start: Any, told: Any) -> None:
    log = SignedLog(home.parent / "checkpoints.log", DirectoryKeys(home))
    start.wait()
    for number in range(25):
        log.append({"by": os.getpid(), "number": number, "filler": "x" * 5000})
    told.put(os.getpid())


def _race(act: Callable[[Path, Any, Any], None], home: Path) -> list[Any]:
    start, told = FRESH.Barrier(2), FRESH.Queue()
    racers = [FRESH.Process(target=act, args=(home, start, told)) for _ in range(2)]
    for racer in racers:
        racer.start()
    results = [told.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    return results


def test_two_processes_creating_the_same_tenants_see_the_same_keys(home: Path) -> None:
    one, other = _race(_create_and_tell, home)
    assert one == other
    assert not [name for name in os.listdir(home / "tenants") if name.startswith(".new")]


def test_two_processes_rotating_at_once_never_share_a_version(keys: DirectoryKeys, home: Path) -> None:
    one, other = _race(_rotate_and_tell, home)
    assert sorted(one + other) == list(range(2, 42))
    assert keys.tenant_key(ACME)[0] == 41


def test_two_processes_appending_at_once_leave_one_whole_chain(log: SignedLog, home: Path) -> None:
    writers = _race(_append_and_tell, home)
    assert log.verify().lines == 50
    records = list(log.records())
    for writer in writers:
        assert [record["number"] for record in records if record["by"] == writer] == list(range(25))


# Sealing


@pytest.mark.parametrize("plaintext", [b"", b"x", b"caf\xc3\xa9" * 100, bytes(range(256)) * 64])
def test_what_is_sealed_opens(ring: Keyring, plaintext: bytes) -> None:
    key, _, _ = ring.new_data_key(ACME)
    sealed = ring.seal(key, plaintext, b"aad")
    assert len(sealed) == len(plaintext) + 28
    assert ring.open(key, sealed, b"aad") == plaintext


def test_the_same_plaintext_never_seals_to_the_same_bytes(ring: Keyring) -> None:
    key, _, _ = ring.new_data_key(ACME)
    assert len({ring.seal(key, b"same", b"") for _ in range(1000)}) == 1000


def test_altering_any_byte_of_sealed_data_makes_it_unsealable(ring: Keyring) -> None:
    key, _, _ = ring.new_data_key(ACME)
    sealed = ring.seal(key, b"a payload of some length", b"aad")
    for at in range(len(sealed)):
        for flip in (1, 0x80):
            with pytest.raises(Unsealable):
                ring.open(key, sealed[:at] + bytes([sealed[at] ^ flip]) + sealed[at + 1 :], b"aad")


def test_sealed_data_cut_short_or_grown_is_unsealable(ring: Keyring) -> None:
    key, _, _ = ring.new_data_key(ACME)
    sealed = ring.seal(key, b"a payload of some length", b"aad")
    for altered in [*(sealed[:length] for length in range(len(sealed))), sealed + b"\0"]:
        with pytest.raises(Unsealable):
            ring.open(key, altered, b"aad")


def test_another_aad_is_unsealable(ring: Keyring) -> None:
    key, _, _ = ring.new_data_key(ACME)
    sealed = ring.seal(key, b"payload", ACME.bytes + b"fact")
    for aad in (b"", ACME.bytes, ACME.bytes + b"quote", BOLT.bytes + b"fact"):
        with pytest.raises(Unsealable):
            ring.open(key, sealed, aad)


def test_another_key_is_unsealable(ring: Keyring) -> None:
    sealed = ring.seal(ring.new_data_key(ACME)[0], b"payload", b"")
    with pytest.raises(Unsealable):
        ring.open(ring.new_data_key(ACME)[0], sealed, b"")


@pytest.mark.parametrize("length", [0, 16, 24, 31, 33])
def test_a_key_that_is_not_32_bytes_is_refused(ring: Keyring, length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ring.seal(b"k" * length, b"payload", b"")
    with pytest.raises(ValueError, match="32 bytes"):
        ring.digest(b"k" * length, "value", b"")


# Data keys


def test_a_data_key_unwraps_to_itself(ring: Keyring) -> None:
    key, wrapped, version = ring.new_data_key(ACME)
    assert version == 1
    assert key not in wrapped
    assert ring.unwrap(ACME, wrapped, version) == key


def test_a_data_key_does_not_unwrap_for_another_tenant(ring: Keyring) -> None:
    _, wrapped, version = ring.new_data_key(ACME)
    with pytest.raises(Unsealable):
        ring.unwrap(BOLT, wrapped, version)


def test_a_wrap_does_not_move_between_tenants_even_under_one_key(ring: Keyring, keys: DirectoryKeys) -> None:
    _, wrapped, _ = ring.new_data_key(ACME)
    with pytest.raises(Unsealable):
        ring.open(keys.tenant_key(ACME)[1], wrapped, b"muniment:dek:" + BOLT.bytes)


def test_a_data_key_does_not_unwrap_under_another_version(ring: Keyring, keys: DirectoryKeys) -> None:
    _, wrapped, _ = ring.new_data_key(ACME)
    keys.new_version(ACME)
    with pytest.raises(Unsealable):
        ring.unwrap(ACME, wrapped, 2)


def test_altering_any_byte_of_a_wrapped_key_makes_it_unsealable(ring: Keyring) -> None:
    _, wrapped, version = ring.new_data_key(ACME)
    for at in range(len(wrapped)):
        with pytest.raises(Unsealable):
            ring.unwrap(ACME, wrapped[:at] + bytes([wrapped[at] ^ 1]) + wrapped[at + 1 :], version)


def test_a_sealed_value_that_is_no_key_does_not_unwrap(ring: Keyring, keys: DirectoryKeys) -> None:
    wrapped = ring.seal(keys.tenant_key(ACME)[1], b"short", b"muniment:dek:" + ACME.bytes)
    with pytest.raises(Unsealable):
        ring.unwrap(ACME, wrapped, 1)


def test_rotation_keeps_the_rewrapped_and_destroys_the_rest(ring: Keyring, keys: DirectoryKeys, home: Path) -> None:
    kept, kept_wrapped, version = ring.new_data_key(ACME)
    _, erased_wrapped, _ = ring.new_data_key(ACME)
    keys.new_version(ACME)
    kept_wrapped, new_version = ring.rewrap(ACME, kept_wrapped, version)
    keys.delete_version(ACME, version)
    assert new_version == 2
    assert ring.unwrap(ACME, kept_wrapped, new_version) == kept
    assert refusal(lambda: ring.unwrap(ACME, erased_wrapped, version)) == "deleted_version"
    assert refusal(lambda: Keyring(DirectoryKeys(home)).unwrap(ACME, erased_wrapped, version)) == "deleted_version"


# Digests


def test_digests_tell_key_purpose_and_data_apart(ring: Keyring) -> None:
    one, other = ring.new_data_key(ACME)[0], ring.new_data_key(ACME)[0]
    digests = [
        ring.digest(one, "value", b"a"),
        ring.digest(one, "value", b"b"),
        ring.digest(one, "receipt", b"a"),
        ring.digest(other, "value", b"a"),
    ]
    assert len(set(digests)) == 4
    assert {len(digest) for digest in digests} == {32}
    assert ring.digest(one, "value", b"a") == digests[0]


def test_a_digest_is_the_same_in_every_release(ring: Keyring) -> None:
    assert ring.digest(b"k" * 32, "value", b"data").hex() == (
        "94e33888cf1cbb45de2851715a7600423c1a55313aa5f92c5bf90e7634f5c931"
    )


def test_an_identifier_is_stable_per_tenant_and_survives_rotation(ring: Keyring, keys: DirectoryKeys) -> None:
    before = ring.identifier(ACME, "person:ada")
    keys.new_version(ACME)
    keys.delete_version(ACME, 1)
    assert ring.identifier(ACME, "person:ada") == before
    assert ring.identifier(BOLT, "person:ada") != before


def test_an_identifier_is_compared_in_nfc_and_otherwise_exactly(ring: Keyring) -> None:
    assert ring.identifier(ACME, "Zoe\u0308") == ring.identifier(ACME, "Zo\u00eb")
    assert len({ring.identifier(ACME, text) for text in ("ada", "Ada", "ada ", "\uff41da")}) == 4


def test_an_identifier_that_is_not_unicode_is_refused_without_its_text(ring: Keyring) -> None:
    with pytest.raises(ValueError, match="not valid Unicode") as caught:
        ring.identifier(ACME, "secret-name\ud800")
    assert caught.value.__context__ is None
    assert "secret-name" not in str(caught.value)


def test_digests_under_the_pepper_are_apart_by_purpose(ring: Keyring) -> None:
    assert ring.peppered(ACME, "suppression:source", b"x") != ring.peppered(ACME, "suppression:saying", b"x")
    assert ring.peppered(ACME, "suppression:source", b"x") != ring.peppered(BOLT, "suppression:source", b"x")


def test_a_request_digest_keeps_route_body_and_tenant_apart(ring: Keyring) -> None:
    digests = {
        ring.request_digest(ACME, "a", b"bc"),
        ring.request_digest(ACME, "ab", b"c"),
        ring.request_digest(ACME, "abc", b""),
        ring.request_digest(BOLT, "a", b"bc"),
    }
    assert len(digests) == 4
    assert ring.request_digest(ACME, "a", b"bc") in digests


# Silence


def _spellings(key: bytes) -> Iterator[str]:
    yield key.hex()
    yield repr(key)[2:-1]
    yield base64.b64encode(key).decode()


def test_no_key_is_shown_by_repr_str_pickle_or_exceptions(ring: Keyring, keys: DirectoryKeys, home: Path) -> None:
    keys.new_version(ACME)
    data_key, wrapped, version = ring.new_data_key(ACME)
    secret = [keys.tenant_key(ACME)[1], keys.tenant_key(ACME, 1)[1], keys.pepper(ACME), data_key]
    secret += [keys.idempotency_key(ACME), keys.signing_key().private_bytes_raw()]
    shown = [
        repr(keys),
        str(keys),
        repr(ring),
        str(ring),
        repr(keys._cache),
        pickle.dumps(keys).decode("latin-1"),
    ]
    file = version_file(home, 1)
    sound = file.read_bytes()
    refused: list[Callable[[], object]] = [
        lambda: ring.open(data_key, wrapped, b""),
        lambda: ring.unwrap(BOLT, wrapped, 1),
        lambda: ring.unwrap(ACME, wrapped, 9),
        lambda: keys.delete_version(ACME, version),
        lambda: (file.write_bytes(sound[:-1]), keys.tenant_key(ACME, 1)),
        lambda: (file.write_bytes(b""), keys.tenant_key(ACME, 1)),
    ]
    for act in refused:
        with pytest.raises((KeyUnavailable, Unsealable)) as caught:
            act()
        shown += [repr(caught.value), str(caught.value), repr(vars(caught.value))]
    for key in secret:
        for spelling in _spellings(key):
            assert not any(spelling in text for text in shown)


def test_a_refusal_names_its_code_and_the_key_it_is_about(keys: DirectoryKeys) -> None:
    with pytest.raises(KeyUnavailable) as caught:
        keys.tenant_key(ACME, 9)
    assert str(caught.value) == f"unknown_version: tenants/{ACME}/9.key"


# The signed log


def lines_of(tmp_path: Path) -> list[bytes]:
    return (tmp_path / "checkpoints.log").read_bytes().splitlines(keepends=True)


def write_lines(tmp_path: Path, lines: list[bytes]) -> None:
    (tmp_path / "checkpoints.log").write_bytes(b"".join(lines))


def damage(log: SignedLog) -> tuple[int, str]:
    with pytest.raises(LogDamaged) as caught:
        log.verify()
    with pytest.raises(LogDamaged) as again:
        list(log.records())
    assert (again.value.line, again.value.code) == (caught.value.line, caught.value.code)
    return caught.value.line, caught.value.code


def test_an_absent_log_is_an_empty_one(log: SignedLog) -> None:
    assert log.verify().lines == 0
    assert list(log.records()) == []


def test_records_come_back_in_order_and_as_they_were(log: SignedLog) -> None:
    records: list[dict[str, Any]] = [
        {"seq": 1, "at": "2026-01-01T00:00:00Z"},
        {"b": [1, 2.5, None, True], "a": {"é\u2028": "\n"}},
        {},
    ]
    for record in records:
        log.append(record)
    assert list(log.records()) == records
    state = log.verify()
    assert (state.lines, state.torn_bytes, state.repaired_at) == (3, 0, ())


def test_a_log_file_is_readable_by_its_owner_alone(log: SignedLog, tmp_path: Path) -> None:
    log.append({})
    assert stat.S_IMODE((tmp_path / "checkpoints.log").stat().st_mode) == 0o600


def test_each_line_is_json_and_its_signature_checks_with_the_public_key_alone(
    log: SignedLog, keys: DirectoryKeys, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    log.append({"seq": 1})
    line = json.loads(lines_of(tmp_path)[0])
    signed = json.dumps(line["entry"], sort_keys=True, separators=(",", ":")).encode()
    public: Any = load_pem_public_key(keys.public_key_pem())
    public.verify(base64.b64decode(line["signature"]), b"muniment:log:1\n" + signed)


def test_altering_any_byte_of_a_line_names_that_line(log: SignedLog, tmp_path: Path) -> None:
    for number in range(3):
        log.append({"seq": number})
    first, second, third = lines_of(tmp_path)
    for at in range(len(second) - 1):
        write_lines(tmp_path, [first, second[:at] + bytes([second[at] ^ 1]) + second[at + 1 :], third])
        with pytest.raises(LogDamaged) as caught:
            log.verify()
        assert caught.value.line == 2


@pytest.mark.parametrize(
    ("order", "bad"), [([0, 2], 2), ([1, 2], 1), ([0, 2, 1], 2), ([0, 1, 1, 2], 3), ([1, 0, 2], 1)]
)
def test_removed_moved_and_repeated_lines_are_named(log: SignedLog, tmp_path: Path, order: list[int], bad: int) -> None:
    for number in range(3):
        log.append({"seq": number})
    lines = lines_of(tmp_path)
    write_lines(tmp_path, [lines[at] for at in order])
    assert damage(log) == (bad, "out_of_sequence")


def test_a_line_signed_by_another_key_is_named(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    foreign = SignedLog(tmp_path / "foreign.log", DirectoryKeys(tmp_path / "foreign"))
    foreign.append({"seq": 1})
    (tmp_path / "foreign.log").replace(tmp_path / "checkpoints.log")
    assert damage(log) == (1, "bad_signature")


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"[]\n", b"nonsense\n", b'{"entry":{}}\n', b"[" * 100_000 + b"\n"])
def test_a_line_that_is_no_entry_is_named(log: SignedLog, tmp_path: Path, line: bytes) -> None:
    log.append({"seq": 1})
    write_lines(tmp_path, [*lines_of(tmp_path), line])
    assert damage(log) == (2, "malformed")


def test_nothing_is_appended_after_a_damaged_line(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    log.append({"seq": 2})
    write_lines(tmp_path, [lines_of(tmp_path)[0], b"{}\n"])
    before = lines_of(tmp_path)
    with pytest.raises(LogDamaged) as caught:
        log.append({"seq": 3})
    assert caught.value.line == 2
    assert lines_of(tmp_path) == before


def test_a_last_line_torn_anywhere_is_reported_and_costs_no_other_record(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    log.append({"seq": 2})
    first, second = lines_of(tmp_path)
    for length in range(1, len(second)):
        write_lines(tmp_path, [first, second[:length]])
        assert log.verify().torn_bytes == length
        assert list(log.records()) == [{"seq": 1}]


def test_a_first_line_torn_leaves_an_empty_log_that_can_go_on(log: SignedLog, tmp_path: Path) -> None:
    write_lines(tmp_path, [b'{"entry":'])
    assert (log.verify().lines, log.verify().torn_bytes) == (0, 9)
    log.append({"seq": 1})
    assert log.verify().repaired_at == (1,)


def test_a_last_line_of_which_a_page_was_lost_is_torn(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    log.append({"seq": 2, "filler": "x" * 9000})
    first, second = lines_of(tmp_path)
    write_lines(tmp_path, [first, second[:100] + bytes(4096) + second[4196:]])
    assert (log.verify().lines, log.verify().torn_bytes) == (1, len(second))


def test_the_next_append_cuts_a_torn_line_off_and_says_so_for_good(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    with (tmp_path / "checkpoints.log").open("ab") as file:
        file.write(b'{"entry":{"n":2')
    log.append({"seq": 2})
    log.append({"seq": 3})
    state = log.verify()
    assert (state.lines, state.torn_bytes, state.repaired_at) == (3, 0, (2,))
    assert list(log.records()) == [{"seq": 1}, {"seq": 2}, {"seq": 3}]


def test_an_append_that_fails_to_reach_the_disk_leaves_nothing(
    log: SignedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append({"seq": 1})
    before = lines_of(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            log.append({"seq": 2})
    assert lines_of(tmp_path) == before
    log.append({"seq": 2})
    assert log.verify().lines == 2


@pytest.mark.parametrize("record", [{1: "a", 10: "b", 9: "c"}, {"a": b"bytes"}, {"a": {1}}, {"a": float("nan")}])
def test_a_record_that_is_not_plain_json_is_refused_and_leaves_nothing(
    log: SignedLog, tmp_path: Path, record: dict[Any, Any]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        log.append(record)
    assert not (tmp_path / "checkpoints.log").exists()


def test_lines_cut_off_the_end_show_in_count_and_head(log: SignedLog, tmp_path: Path) -> None:
    log.append({"seq": 1})
    earlier = log.verify()
    log.append({"seq": 2})
    noted = log.verify()
    write_lines(tmp_path, lines_of(tmp_path)[:1])
    assert log.verify() == earlier != noted


def test_a_record_longer_than_the_tail_read_at_once_is_followed_correctly(log: SignedLog) -> None:
    log.append({"filler": "x" * 200_000})
    log.append({"seq": 2})
    assert log.verify().lines == 2
