"""Certificates: content-free, signed proof of what ended, how, and what the ending does not reach.

A certificate is one JSON document, signed with the platform's key (Ed25519). It can be checked with the public key alone:
no database, no network. It names the head of the tenant's audit chain at its signing, so that whoever keeps it can also
tell whether the chain was altered since. It never changes: what comes true later (a key was destroyed) is told by a
further one that names it.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from memory import rows
from retention.runs import Run
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Missing
from tenants.identity import new_id
from tenants.secrets import provider

FORMAT = "muniment.certificate.1"
#: What is signed begins with this, so that no other signature of the same key can be taken for one of a certificate.
_SIGNED = b"muniment:certificate:1\n"
_LONGEST = 1_000_000
_CODE = re.compile(r"[A-Za-z0-9_.:+-]{1,128}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as stored. `document` is what was signed, as data."""

    id: UUID
    kind: str
    run: UUID | None
    follows: UUID | None
    issued_at: datetime
    document: dict[str, Any] = field(repr=False)
    signature: bytes = field(repr=False)
    key_digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a document is what was signed; if not, `code` says why: `malformed`, `other_key`, `bad_signature`.

    `certificate` is what it says, where it is sound.
    """

    sound: bool
    code: str
    certificate: dict[str, Any] | None = field(default=None, repr=False)


# pure -----------------------------------------------------------------------------------------------------------------


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the one form in which a document is signed: sorted keys, no spaces, ASCII, no floats that are no numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def instant(at: datetime) -> str:
    """Return an instant as certificates say it: UTC, to the microsecond."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def content_free(value: Any) -> Any:
    """Return `value` as what a certificate may hold: ids, instants, digests in hex, codes, numbers, lists and objects of them.

    Raises ValueError for anything else, without repeating it.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, str) and _CODE.fullmatch(value):
        return str(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in value):
        return {name: content_free(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [content_free(each) for each in value]
    raise ValueError("a certificate holds ids, instants, codes and numbers only")


def verify(document: bytes, public_pem: bytes) -> Verdict:
    """Say whether `document` is a certificate that the key of `public_pem` signed. Needs nothing but these two.

    Raises ValueError where `public_pem` is no Ed25519 public key.
    """
    try:
        public = serialization.load_pem_public_key(public_pem)
    except ValueError:
        raise ValueError("not a public key in PEM") from None
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("not an Ed25519 public key")
    try:
        if len(document) > _LONGEST:
            raise ValueError
        parsed = json.loads(document)
        certificate, signature = parsed["certificate"], base64.b64decode(parsed["signature"], validate=True)
        named = parsed["key"]
        if set(parsed) != {"certificate", "signature", "key"} or certificate["format"] != FORMAT:
            raise ValueError
        signed = _SIGNED + canonical(certificate)
    except (ValueError, TypeError, KeyError, RecursionError):
        return Verdict(False, "malformed")
    if named != fingerprint(public).hex():
        return Verdict(False, "other_key")
    try:
        public.verify(signature, signed)
    except InvalidSignature:
        return Verdict(False, "bad_signature")
    return Verdict(True, "sound", certificate)


def fingerprint(public: Ed25519PublicKey) -> bytes:
    """Return what a key is known by: SHA-256 of its public half."""
    return sha256(public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)).digest()


def export(certificate: Certificate) -> bytes:
    """Return a certificate as the one JSON document that `verify` takes."""
    return (
        json.dumps(
            {
                "certificate": certificate.document,
                "key": certificate.key_digest.hex(),
                "signature": base64.b64encode(certificate.signature).decode("ascii"),
            },
            sort_keys=True,
            indent=2,
        ).encode("ascii")
        + b"\n"
    )


# issuing --------------------------------------------------------------------------------------------------------------

_HEAD = """
SELECT e.seq, e.hash, clock_timestamp() FROM tenants_auditevent e WHERE e.chain = %s::uuid ORDER BY e.seq DESC LIMIT 1
"""
_INSERT = """
INSERT INTO retention_certificate (tenant_id, id, kind, run_id, follows_id, document, issued_by, issued_at, chain_seq, chain_hash,
  digest, signature, key_digest)
VALUES (%s::uuid, %s::uuid, %s, %s::uuid, %s::uuid, %s::jsonb, %s::uuid, %s::timestamptz, %s::bigint, %s::bytea, %s::bytea,
  %s::bytea, %s::bytea)
"""


def issue(
    actor: Actor,
    kind: str,
    run: Run | UUID | None,
    body: Mapping[str, Any],
    now: datetime,
    *,
    follows: UUID | None = None,
) -> Certificate:
    """Sign and store a certificate of what `body` says, in the transaction of what it speaks of; audited.

    Under `Role.WORKER`. `follows` names the certificate to which it adds. Raises ValueError for a body that holds anything
    but ids, instants, digests, codes and numbers, KeyUnavailable where the signing key cannot be had.
    """
    said = content_free(body)
    seq, head, _ = rows.fetch(_HEAD, [actor.tenant])[0]
    run_id = run.id if isinstance(run, Run) else run
    certificate = new_id()
    document = {
        "format": FORMAT,
        "id": str(certificate),
        "tenant": str(actor.tenant),
        "kind": kind,
        "run": None if run_id is None else str(run_id),
        "follows": None if follows is None else str(follows),
        "issued_at": instant(now),
        "issued_by": {"kind": actor.kind.value, "id": str(actor.id)},
        "chain": {"seq": seq, "hash": bytes(head).hex()},
        "body": said,
    }
    signer = provider().signing_key()
    signed = _SIGNED + canonical(document)
    signature, key = signer.sign(signed), fingerprint(signer.public_key())
    digest = sha256(signed).digest()
    rows.execute(
        _INSERT,
        [
            actor.tenant,
            certificate,
            kind,
            run_id,
            follows,
            json.dumps(document),
            actor.id,
            now,
            seq,
            bytes(head),
            digest,
            signature,
            key,
        ],
    )
    append(
        [
            Event(
                actor=actor,
                action=Action.CERTIFICATE_ISSUED,
                target_kind="certificate",
                target_id=certificate,
                reason=kind,
                digest=digest,
            )
        ]
    )
    return Certificate(certificate, kind, run_id, follows, now, document, signature, key)


_FIND = """
SELECT c.id, c.kind, c.run_id, c.follows_id, c.issued_at, c.document::text, c.signature, c.key_digest
FROM retention_certificate c WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid
"""


def find(tenant: UUID, certificate: UUID) -> Certificate:
    """Return a certificate of the tenant. Under worker, staff or agent. Raises `Missing`."""
    found = rows.fetch(_FIND, [tenant, certificate])
    if not found:
        raise Missing
    found_id, kind, run, follows, issued_at, document, signature, key = found[0]
    return Certificate(found_id, kind, run, follows, issued_at, json.loads(document), bytes(signature), bytes(key))


def of_run(tenant: UUID, run: UUID) -> list[UUID]:
    """Return the certificates of a run, the oldest first."""
    found = rows.fetch(
        "SELECT c.id FROM retention_certificate c WHERE c.tenant_id = %s::uuid AND c.run_id = %s::uuid ORDER BY c.id",
        [tenant, run],
    )
    return [row[0] for row in found]
