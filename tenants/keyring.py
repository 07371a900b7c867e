"""Keys, kept outside the database, and the only code that seals, unseals and digests with them.

What must stay true: the versions of a tenant's key live in the provider and nowhere else, so that deleting a
version there makes every data key it wrapped, in any backup or replica, unreadable for good. A version number
is never used twice. No key byte appears in a `repr`, an exception or a log line.

A tenant key wraps data keys; a data key seals payloads and, through HKDF, keys the digests of their values,
so that those die with it. The pepper of a tenant keys look-ups and suppressions and never changes.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16

_MAGIC = b"MUNIKEY1"
_FILE_BYTES = len(_MAGIC) + KEY_BYTES + hashlib.sha256().digest_size
_VERSION_NAME = re.compile(r"([1-9][0-9]{0,8})\.key")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyUnavailable(Exception):
    """A key cannot be had. `code` says why; the message names the key (tenant id, version), never its bytes.

    Codes: `unknown_tenant`, `unknown_version`, `deleted_version`, `current_version` (it may not be deleted),
    `missing`, `corrupt`, `open_permissions` (others than the owner may read it), `unreadable`.
    """

    def __init__(self, code: str, name: str = "") -> None:
        super().__init__(f"{code}: {name}" if name else code)
        self.code = code
        self.name = name


class Unsealable(Exception):
    """Sealed bytes do not open: another key, another context, or altered. Says no more than that."""

    code = "unsealable"

    def __init__(self) -> None:
        super().__init__("sealed bytes do not open with this key and context")


class LogDamaged(Exception):
    """A line of a signed log is not what was appended. `line` counts from 1; `code` says what is wrong.

    Codes: `malformed`, `out_of_sequence` (a line before it is gone, added or moved), `bad_signature`.
    """

    def __init__(self, line: int, code: str) -> None:
        super().__init__(f"{code} at line {line}")
        self.line = line
        self.code = code


class KeyProvider(Protocol):
    """Where keys live: a directory (`DirectoryKeys`) or a key management service.

    Every method raises `KeyUnavailable` when the key cannot be had. A version deleted by any process is
    refused by every other from then on, whatever they have cached.
    """

    def create_tenant(self, tenant: UUID) -> None:
        """Make the keys of a tenant that has none; harmless for one that has."""

    def tenant_key(self, tenant: UUID, version: int | None = None) -> tuple[int, bytes]:
        """Return the tenant's key with its version: the current one, or the one asked for."""

    def versions(self, tenant: UUID) -> list[int]:
        """Return the versions of the tenant's key that have not been destroyed, the current one last."""

    def new_version(self, tenant: UUID) -> int:
        """Make a further version of the tenant's key, current from now on; return its number."""

    def delete_version(self, tenant: UUID, version: int) -> None:
        """Destroy one version of the tenant's key for good."""

    def pepper(self, tenant: UUID) -> bytes:
        """Return the tenant's pepper, which is never rotated."""

    def idempotency_key(self, tenant: UUID) -> bytes:
        """Return the tenant's key for digests of requests."""

    def signing_key(self) -> Ed25519PrivateKey:
        """Return the platform's key for checkpoints and certificates."""

    def public_key_pem(self) -> bytes:
        """Return the public half of the signing key, as PEM."""


@dataclass(frozen=True, slots=True)
class _Cached:
    key: bytes = field(repr=False)
    place: str
    inode: int
    modified_ns: int


class DirectoryKeys:
    """Keeps keys as files in one directory, readable by its owner alone (folders 0700, files 0600).

    `signing.key` is the platform's; `tenants/<id>/` holds `pepper.key`, `idempotency.key` and the versions as
    `1.key`, `2.key`, and so on. A file carries a checksum bound to its place, so a short, altered or swapped
    file is refused as `corrupt`. A deleted version leaves its empty file behind: that is how its number stays
    taken, and why "nothing follows N" proves that N is current without trusting timestamps.

    Needs a local POSIX file system with hard links. Keep it out of database backups, and never restore an
    older copy of it: that would bring deleted versions back.
    """

    __slots__ = ("_cache", "_newest", "_root", "_tenants")

    def __init__(self, path: Path) -> None:
        """Opens the directory, creating it where absent.

        Raises KeyUnavailable `open_permissions` for a directory in use that others may enter (an empty one of
        our own is closed to them instead), `unreadable` where it cannot be created.
        """
        self._root = Path(path)
        self._tenants = f"{self._root}/tenants"
        self._cache: dict[tuple[int | None, str], _Cached] = {}
        self._newest: dict[int, tuple[int, str]] = {}
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.stat(self._root)
            if found.st_mode & _OTHERS:
                if found.st_uid != os.geteuid() or os.listdir(self._root):
                    raise KeyUnavailable("open_permissions", "key directory")
                os.chmod(self._root, 0o700)
            os.makedirs(self._tenants, mode=0o700, exist_ok=True)
            _sync_directory(self._root)
            _sync_directory(self._root.parent)
        except OSError:
            raise KeyUnavailable("unreadable", "key directory") from None

    def __repr__(self) -> str:
        return f"DirectoryKeys({str(self._root)!r})"

    def __reduce__(self) -> tuple[type[DirectoryKeys], tuple[Path]]:
        return DirectoryKeys, (self._root,)

    def create_tenant(self, tenant: UUID) -> None:
        """Gives a tenant its first key version, pepper and idempotency key, all or none; durable on return.

        Idempotent: a tenant that exists keeps its keys. Raises KeyUnavailable if these are damaged, and never
        replaces them: a new pepper would silently forget every suppression.
        """
        home = f"{self._tenants}/{tenant}"
        if not os.path.isdir(home):
            draft = f"{self._tenants}/.new-{secrets.token_hex(8)}"
            try:
                os.mkdir(draft, 0o700)
                os.chmod(draft, 0o700)
                for name in ("1.key", "pepper.key", "idempotency.key"):
                    _write_key(f"{draft}/{name}", f"tenants/{tenant}/{name}")
                _sync_directory(draft)
                # Of several processes one rename wins: onto a directory that is not empty it fails, so a
                # loser drops its draft and uses the winner's keys.
                os.rename(draft, home)
            except OSError:
                if not os.path.isdir(home):
                    raise KeyUnavailable("unreadable", f"tenant {tenant}") from None
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        # The loser too: it must not answer before the winner's rename is on disk.
        _sync_directory(self._tenants)
        self.tenant_key(tenant)
        self.pepper(tenant)
        self.idempotency_key(tenant)

    def tenant_key(self, tenant: UUID, version: int | None = None) -> tuple[int, bytes]:
        """Returns (version, key) for the given version, or for the newest.

        Raises KeyUnavailable `unknown_tenant`, `unknown_version`, `deleted_version`, `corrupt`,
        `open_permissions` or `unreadable`.
        """
        if version is None:
            version = self._current(tenant)
            try:
                return version, self._read(tenant, f"{version}.key")
            except KeyUnavailable:
                # What was remembered as newest may be gone with its whole folder: look again before refusing.
                self._newest.pop(tenant.int, None)
                version = self._current(tenant)
        return version, self._read(tenant, f"{version}.key")

    def versions(self, tenant: UUID) -> list[int]:
        """Returns the versions that are not destroyed, in order; one whose destruction was cut off is among them.

        Raises KeyUnavailable `unknown_tenant`, `unreadable`.
        """
        self._newest.pop(tenant.int, None)
        newest = self._current(tenant)
        home = f"{self._tenants}/{tenant}"
        try:
            return [
                version
                for version in range(1, newest + 1)
                if os.path.exists(place := f"{home}/{version}.key") and os.path.getsize(place)
            ]
        except OSError:
            raise KeyUnavailable("unreadable", f"tenant {tenant}") from None

    def new_version(self, tenant: UUID) -> int:
        """Adds a version, current at once in every process, and returns its number; durable on return.

        Whoever rotates must re-wrap what older versions wrapped, writes in flight included, before deleting
        them. Raises KeyUnavailable `unknown_tenant`, `unreadable`.
        """
        home = f"{self._tenants}/{tenant}"
        version = self._current(tenant) + 1
        while not _link_new_key(f"{home}/{version}.key", f"tenants/{tenant}/{version}.key"):
            version += 1  # another process took that number meanwhile
        return version

    def delete_version(self, tenant: UUID, version: int) -> None:
        """Destroys a version: its bytes are overwritten and cut off. Durable on return, idempotent.

        Raises KeyUnavailable `current_version` for the newest, `unknown_version` for one that never was,
        `unreadable` when the file cannot be written. How far overwriting reaches below the file system
        (flash, copy on write, snapshots) is the deployment's to answer for.
        """
        if version == self._current(tenant):
            raise KeyUnavailable("current_version", _described(tenant, version))
        relative = f"tenants/{tenant}/{version}.key"
        try:
            handle = os.open(f"{self._root}/{relative}", os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise KeyUnavailable("unknown_version", _described(tenant, version)) from None
        except OSError:
            raise KeyUnavailable("unreadable", _described(tenant, version)) from None
        try:
            # Killed half way it is corrupt, hence already unusable, and a second call finishes it.
            _write_all(handle, secrets.token_bytes(max(_FILE_BYTES, os.fstat(handle).st_size)))
            os.fsync(handle)
            os.ftruncate(handle, 0)
            os.fsync(handle)
        except OSError:
            raise KeyUnavailable("unreadable", _described(tenant, version)) from None
        finally:
            os.close(handle)
            self._cache.pop((tenant.int, f"{version}.key"), None)

    def pepper(self, tenant: UUID) -> bytes:
        """Returns the tenant's pepper, which never changes. Raises KeyUnavailable."""
        return self._read(tenant, "pepper.key")

    def idempotency_key(self, tenant: UUID) -> bytes:
        """Returns the key of the tenant's request digests. Raises KeyUnavailable."""
        return self._read(tenant, "idempotency.key")

    def signing_key(self) -> Ed25519PrivateKey:
        """Returns the platform's signing key, made by whichever process asks first. Raises KeyUnavailable."""
        place = f"{self._root}/signing.key"
        if not os.access(place, os.F_OK):
            _link_new_key(place, "signing.key")
        return Ed25519PrivateKey.from_private_bytes(self._read(None, "signing.key"))

    def public_key_pem(self) -> bytes:
        """Returns the public half of the signing key as PEM, for auditors to keep. Raises KeyUnavailable."""
        public = self.signing_key().public_key()
        return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def _current(self, tenant: UUID) -> int:
        remembered = self._newest.get(tenant.int)
        if remembered is not None and not os.access(remembered[1], os.F_OK):
            return remembered[0]
        home = f"{self._tenants}/{tenant}"
        try:
            found = [int(match[1]) for name in os.listdir(home) if (match := _VERSION_NAME.fullmatch(name))]
        except FileNotFoundError:
            raise KeyUnavailable("unknown_tenant", f"tenant {tenant}") from None
        except OSError:
            raise KeyUnavailable("unreadable", f"tenant {tenant}") from None
        if not found:
            raise KeyUnavailable("missing", f"tenant {tenant}")
        newest = max(found)
        self._newest[tenant.int] = (newest, f"{home}/{newest + 1}.key")
        return newest

    def _read(self, tenant: UUID | None, name: str) -> bytes:
        held = (None if tenant is None else tenant.int, name)
        cached = self._cache.get(held)
        if cached is not None:
            # Asked of the file every time: another process may have deleted this version a moment ago.
            try:
                now = os.lstat(cached.place)
                if now.st_size == _FILE_BYTES and now.st_mtime_ns == cached.modified_ns and now.st_ino == cached.inode:
                    return cached.key
            except OSError:
                pass
            self._cache.pop(held, None)
        fresh = self._load(tenant, name)
        self._cache[held] = fresh
        return fresh.key

    def _load(self, tenant: UUID | None, name: str) -> _Cached:
        relative = name if tenant is None else f"tenants/{tenant}/{name}"
        place = f"{self._root}/{relative}"
        is_version = name[:-4].lstrip("-").isdigit()
        try:
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                found = os.fstat(handle)
                content = os.read(handle, _FILE_BYTES + 1)
            finally:
                os.close(handle)
        except FileNotFoundError:
            if tenant is not None and not os.path.isdir(os.path.dirname(place)):
                raise KeyUnavailable("unknown_tenant", f"tenant {tenant}") from None
            raise KeyUnavailable("unknown_version" if is_version else "missing", relative) from None
        except OSError:
            raise KeyUnavailable("unreadable", relative) from None
        if found.st_mode & _OTHERS:
            raise KeyUnavailable("open_permissions", relative)
        if is_version and not content:
            raise KeyUnavailable("deleted_version", relative)
        key = content[len(_MAGIC) : len(_MAGIC) + KEY_BYTES]
        if not hmac.compare_digest(content, _file_content(key, relative)):
            raise KeyUnavailable("corrupt", relative)
        return _Cached(key, place, found.st_ino, found.st_mtime_ns)


class Keyring:
    """Seals, unseals and digests with the keys of a provider. Holds no key itself."""

    __slots__ = ("_provider",)

    def __init__(self, provider: KeyProvider) -> None:
        self._provider = provider

    def new_data_key(self, tenant: UUID) -> tuple[bytes, bytes, int]:
        """Returns a fresh 32-byte data key, the same wrapped by the tenant's current key, and that version.

        Raises KeyUnavailable.
        """
        key = secrets.token_bytes(KEY_BYTES)
        wrapped, version = self._wrap(tenant, key)
        return key, wrapped, version

    def unwrap(self, tenant: UUID, wrapped: bytes, version: int) -> bytes:
        """Returns the data key.

        Raises KeyUnavailable if the version is gone, Unsealable if the wrap is altered or another tenant's.
        """
        _, tenant_key = self._provider.tenant_key(tenant, version)
        key = self.open(tenant_key, wrapped, _wrap_context(tenant))
        if len(key) != KEY_BYTES:
            raise Unsealable
        return key

    def rewrap(self, tenant: UUID, wrapped: bytes, version: int) -> tuple[bytes, int]:
        """Returns (wrapped, version) of the same data key under the tenant's current key, for rotation.

        Raises KeyUnavailable or Unsealable.
        """
        return self._wrap(tenant, self.unwrap(tenant, wrapped, version))

    def seal(self, key: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """Returns nonce, ciphertext and tag: 28 bytes more than the plaintext. Opening needs `aad` again."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + _cipher(key).encrypt(nonce, plaintext, aad)

    def open(self, key: bytes, sealed: bytes, aad: bytes) -> bytes:
        """Returns the plaintext. Raises Unsealable if key, aad or any byte is not the one of sealing."""
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            raise Unsealable
        try:
            return _cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], aad)
        except InvalidTag:
            raise Unsealable from None

    def digest(self, key: bytes, purpose: str, data: bytes) -> bytes:
        """Returns 32 bytes that tell equal data: HMAC-SHA256 under HKDF-Expand(key, purpose).

        The derived key is not kept, so nothing here outlives a destroyed data key.
        """
        if len(key) != KEY_BYTES:
            raise ValueError("a key is 32 bytes")
        derived = HKDFExpand(hashes.SHA256(), KEY_BYTES, b"muniment:digest:" + purpose.encode()).derive(key)
        return hmac.digest(derived, data, "sha256")

    def peppered(self, tenant: UUID, purpose: str, data: bytes) -> bytes:
        """Returns a digest under the tenant's pepper, for look-up and suppression. Raises KeyUnavailable."""
        return self.digest(self._provider.pepper(tenant), purpose, data)

    def identifier(self, tenant: UUID, text: str) -> bytes:
        """Returns the look-up digest of a subject's key or alias. Raises KeyUnavailable.

        The text is taken in Unicode NFC and otherwise exactly: case and spaces count, since a key's case
        may carry meaning. Raises ValueError, without the text, if it is not valid Unicode.
        """
        return self.peppered(tenant, "identifier", _encoded(unicodedata.normalize("NFC", text)))

    def request_digest(self, tenant: UUID, route: str, body: bytes) -> bytes:
        """Returns the digest by which a repeated request is recognised. Raises KeyUnavailable."""
        named = route.encode()
        # The length keeps route and body apart: ("a", b"bc") is not ("ab", b"c").
        data = len(named).to_bytes(4, "big") + named + body
        return self.digest(self._provider.idempotency_key(tenant), "request", data)

    def blinded(self, tenant: UUID, words: Sequence[bytes]) -> tuple[list[int], int]:
        """Returns what equal words of this tenant have in common, as numbers of 64 bits, and the key version behind it.

        HMAC-SHA256, cut to 8 bytes, under HKDF-Expand of the tenant's current key: once that version is destroyed, a
        word can be tried against an index no more. Raises KeyUnavailable.
        """
        version, tenant_key = self._provider.tenant_key(tenant)
        derived = HKDFExpand(hashes.SHA256(), KEY_BYTES, b"muniment:search").derive(tenant_key)
        return [int.from_bytes(hmac.digest(derived, word, "sha256")[:8], "big", signed=True) for word in words], version

    def _wrap(self, tenant: UUID, key: bytes) -> tuple[bytes, int]:
        version, tenant_key = self._provider.tenant_key(tenant)
        return self.seal(tenant_key, key, _wrap_context(tenant)), version


@dataclass(frozen=True, slots=True)
class LogState:
    """What a verified log holds: its lines, the digest of the last one, and what a crash left after it.

    `torn_bytes` counts bytes at the end that are no whole line; `repaired_at` lists lines that were appended
    after such bytes had been cut off.
    """

    lines: int
    head: str
    torn_bytes: int
    repaired_at: tuple[int, ...] = ()


class SignedLog:
    """An append-only file of JSON lines, each signed and naming the digest of the line before it.

    A changed, added, moved or removed line is found, wherever it is, except for whole lines cut off the end:
    compare `head` and `lines` with what was noted elsewhere. A line is
    `{"entry": {"n", "prev", "record", "torn"?}, "signature"}`, all of it in canonical JSON. Appends may come
    from many threads and processes. The folder must exist; the file is made with mode 0600.
    """

    __slots__ = ("_path", "_provider")

    def __init__(self, path: Path, provider: KeyProvider) -> None:
        self._path = Path(path)
        self._provider = provider

    def append(self, record: Mapping[str, Any]) -> int:
        """Appends a record and returns its line, from 1; it is on disk then, and not in the log if this raises.

        Raises TypeError or ValueError for a record that is not plain JSON, LogDamaged if the last line is not
        sound, KeyUnavailable, OSError. An unfinished line left by a crash, which no one was told of, is cut
        off first, and the new line says how many bytes that were (`torn`).
        """
        content = _plain_json(record)
        signer = self._provider.signing_key()
        with self._locked(os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as handle:
            end, last = _last_line(handle)
            number, previous = 0, ""
            if last:
                number = _claimed_number(last)
                try:
                    _checked(last, number, None, signer.public_key())
                except LogDamaged as damage:
                    raise LogDamaged(_read_span(handle, 0, end).count(b"\n"), damage.code) from None
                previous = _line_digest(last)
            entry: dict[str, Any] = {"n": number + 1, "prev": previous, "record": content}
            torn = os.fstat(handle).st_size - end
            if torn:
                os.ftruncate(handle, end)
                entry["torn"] = torn
            try:
                _write_all(handle, _line(entry, signer.sign(_signed_bytes(entry))) + b"\n")
                os.fsync(handle)
                if not number:
                    _sync_directory(self._path.parent)
            except OSError:
                # Refused to the caller, so it must not stay.
                os.ftruncate(handle, end)
                raise
        return number + 1

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the records in order, each line verified before it is yielded.

        Raises LogDamaged at the first bad line: call `verify` first where a part must not be acted on. Yields
        what was there when iteration began; an absent file holds nothing, an unfinished last line is skipped.
        """
        for entry, _ in self._entries(self._extent()[0]):
            yield entry["record"]

    def verify(self) -> LogState:
        """Checks every line and says what the log holds. Raises LogDamaged naming the first bad line."""
        end, torn = self._extent()
        lines, head, repaired = 0, "", []
        for lines, (entry, digest) in enumerate(self._entries(end), 1):
            head = digest
            if "torn" in entry:
                repaired.append(lines)
        return LogState(lines, head, torn, tuple(repaired))

    def digest_at(self, line: int) -> str | None:
        """Returns the digest of a line, None where there is no such line. Raises LogDamaged for a bad line up to it."""
        for number, (_, digest) in enumerate(self._entries(self._extent()[0]), 1):
            if number == line:
                return digest
        return None

    def _extent(self) -> tuple[int, int]:
        try:
            # The lock keeps a line that is being written from being taken for a torn one.
            with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as handle:
                end, _ = _last_line(handle)
                return end, os.fstat(handle).st_size - end
        except FileNotFoundError:
            return 0, 0

    def _entries(self, end: int) -> Iterator[tuple[dict[str, Any], str]]:
        if not end:
            return
        public = serialization.load_pem_public_key(self._provider.public_key_pem())
        if not isinstance(public, Ed25519PublicKey):
            raise KeyUnavailable("corrupt", "public key")
        previous, read = "", 0
        with self._path.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                read += len(raw)
                line = raw.removesuffix(b"\n")
                entry = _checked(line, number, previous, public)
                previous = _line_digest(line)
                yield entry, previous
                if read >= end:
                    return

    @contextmanager
    def _locked(self, flags: int, kind: int) -> Iterator[int]:
        handle = os.open(self._path, flags | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, kind)
            yield handle
        finally:
            os.close(handle)


def _described(tenant: UUID, version: int) -> str:
    return f"tenants/{tenant}/{version}.key"


def _wrap_context(tenant: UUID) -> bytes:
    return b"muniment:dek:" + tenant.bytes


def _cipher(key: bytes) -> AESGCM:
    if len(key) != KEY_BYTES:  # the library would quietly take 16 bytes for AES-128
        raise ValueError("a key is 32 bytes")
    return AESGCM(key)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    # Raised out here: the codec's error carries the text, and would ride along as the context of this one.
    raise ValueError("text is not valid Unicode")


def _file_content(key: bytes, relative: str) -> bytes:
    """The bytes of a key file; the checksum covers the place, so that a file moved elsewhere is refused."""
    return _MAGIC + key + hashlib.sha256(_MAGIC + relative.encode() + b"\0" + key).digest()


def _write_key(place: str, relative: str) -> None:
    """Writes a new random key to a new file, durably but for its directory entry."""
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(handle, 0o600)
        _write_all(handle, _file_content(secrets.token_bytes(KEY_BYTES), relative))
        os.fsync(handle)
    finally:
        os.close(handle)


def _link_new_key(place: str, relative: str) -> bool:
    """Puts a new key in place unless something is there; says whether it did. Durable either way.

    A file appears whole or not at all. Raises KeyUnavailable `unreadable`.
    """
    home = os.path.dirname(place)
    draft = f"{home}/.new-{secrets.token_hex(8)}"
    try:
        _write_key(draft, relative)
        try:
            os.link(draft, place)  # unlike a rename it never replaces: of several processes one wins
            won = True
        except FileExistsError:
            won = False
        os.unlink(draft)
        _sync_directory(home)
    except OSError:
        raise KeyUnavailable("unreadable", relative) from None
    return won


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _sync_directory(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _plain_json(record: Mapping[str, Any]) -> dict[str, Any]:
    text = _canonical(dict(record))
    content: dict[str, Any] = json.loads(text)
    if _canonical(content) != text:  # keys that are no strings sort otherwise, or collide
        raise TypeError("a record's keys are strings")
    return content


def _signed_bytes(entry: dict[str, Any]) -> bytes:
    return b"muniment:log:1\n" + _canonical(entry)


def _line(entry: dict[str, Any], signature: bytes) -> bytes:
    return _canonical({"entry": entry, "signature": base64.b64encode(signature).decode()})


def _line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _checked(line: bytes, number: int, previous: str | None, public: Ed25519PublicKey) -> dict[str, Any]:
    """Returns the entry of a line well signed, of this number, and following `previous` (unless None)."""
    try:
        parsed = json.loads(line)
        entry: dict[str, Any] = parsed["entry"]
        claimed, before = entry["n"], entry["prev"]
        signature = base64.b64decode(parsed["signature"], validate=True)
        sound = isinstance(entry["record"], dict) and _line(entry, signature) == line
    except (ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound:
        raise LogDamaged(number, "malformed")
    try:
        public.verify(signature, _signed_bytes(entry))
    except InvalidSignature:
        raise LogDamaged(number, "bad_signature") from None
    if claimed != number or (previous is not None and before != previous):
        raise LogDamaged(number, "out_of_sequence")
    return entry


def _claimed_number(line: bytes) -> int:
    """The number a last line gives itself; 0 where it gives none, which then fails its check as malformed."""
    try:
        number = json.loads(line)["entry"]["n"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return number if isinstance(number, int) else 0


def _last_line(handle: int) -> tuple[int, bytes]:
    """Returns where the last whole line ends, and that line without its newline (empty if there is none).

    What follows is torn. A last line with a NUL byte, which JSON never has, is torn too: a file system may
    have kept the length of a write and lost a page of it.
    """
    end = _after_last_newline(handle, os.fstat(handle).st_size)
    torn_allowed = True
    while end:
        start = _after_last_newline(handle, end - 1)
        line = _read_span(handle, start, end - 1)
        if not (torn_allowed and b"\0" in line):
            return end, line
        end, torn_allowed = start, False
    return 0, b""


def _after_last_newline(handle: int, limit: int) -> int:
    while limit:
        start = max(0, limit - 65536)
        at = _read_span(handle, start, limit).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        limit = start
    return 0


def _read_span(handle: int, start: int, end: int) -> bytes:
    parts = []
    while start < end and (part := os.pread(handle, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
