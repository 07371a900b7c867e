"""Certificates: signed once, without content, and checked by anybody with the public key alone."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import Error

from memory import rows
from memory.endings import worker
from retention import certificates, runs
from retention.certificates import Certificate, verify
from tenants.audit import PLATFORM
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.database_plugin import ROOT

pytestmark = pytest.mark.usefixtures("database")
NOW = datetime(2026, 6, 1, 9, 30, tzinfo=UTC)


def issue(tenant: Any, body: dict[str, Any] | None = None, **more: Any) -> Certificate:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return certificates.issue(worker(tenant.id), "erasure", None, body or {"counts": {"facts": 3}}, NOW, **more)


def public_pem() -> bytes:
    return provider().public_key_pem()


def test_what_was_signed_is_found_sound_by_the_public_key_alone(tenant: Any) -> None:
    document = certificates.export(issue(tenant))
    verdict = verify(document, public_pem())
    assert (verdict.sound, verdict.code) == (True, "sound")
    assert verdict.certificate is not None
    assert verdict.certificate["body"] == {"counts": {"facts": 3}}
    assert verdict.certificate["issued_at"] == "2026-06-01T09:30:00.000000Z"
    reordered = json.dumps(dict(reversed(json.loads(document).items()))).encode()
    assert verify(reordered, public_pem()).sound, "the form of the file does not matter, what it says does"


def test_it_is_the_same_document_when_it_is_read_again(tenant: Any) -> None:
    made = issue(tenant, {"list": [1, None, True, "code"], "id": uuid4(), "at": NOW})
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert certificates.export(certificates.find(tenant.id, made.id)) == certificates.export(made)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["certificate"]["body"]["counts"].update(facts=4),
        lambda d: d["certificate"].update(issued_at="2026-06-02T09:30:00.000000Z"),
        lambda d: d["certificate"]["chain"].update(seq=0),
        lambda d: d["certificate"].update(more=1),
        lambda d: d["certificate"].pop("follows"),
    ],
)
def test_whatever_is_altered_is_found(tenant: Any, change: Any) -> None:
    document = json.loads(certificates.export(issue(tenant)))
    change(document)
    assert verify(json.dumps(document).encode(), public_pem()).code == "bad_signature"


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"certificate": {}, "signature": "x", "key": "y"}',
        b"[" * 100_000,
        b"1" * 2_000_000,
    ],
)
def test_what_is_no_certificate_is_malformed_and_never_an_error(document: bytes) -> None:
    assert verify(document, public_pem()).code == "malformed"


def test_another_key_is_named_as_such_and_no_key_is_an_error(tenant: Any) -> None:
    other = Ed25519PrivateKey.generate().public_key()
    pem = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert verify(certificates.export(issue(tenant)), pem).code == "other_key"
    with pytest.raises(ValueError, match="not a public key"):
        verify(b"{}", b"no key")


@pytest.mark.parametrize(
    "body", [{"words": "Mira lives in Oslo"}, {"name": 1.5}, {"A": 1}, {"x": b"bytes"}, {"mail": "a@b.c"}]
)
def test_a_certificate_holds_no_words(tenant: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="only"):
        issue(tenant, body)


def test_a_later_fact_makes_a_further_one_that_names_the_former(tenant: Any) -> None:
    first = issue(tenant)
    second = issue(tenant, {"sealed": {"state": "key_destroyed"}}, follows=first.id)
    verdict = verify(certificates.export(second), public_pem())
    assert verdict.certificate is not None
    assert verdict.certificate["follows"] == str(first.id)


def test_it_names_the_head_of_the_chain_and_stands_in_it_with_its_digest(tenant: Any) -> None:
    made = issue(tenant)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        ((seq, digest),) = rows.fetch(
            "SELECT seq, digest FROM tenants_auditevent WHERE action = 'certificate.issued' AND target_id = %s",
            [made.id],
        )
        ((stored,),) = rows.fetch("SELECT digest FROM retention_certificate WHERE id = %s", [made.id])
    assert seq == made.document["chain"]["seq"] + 1
    assert bytes(digest) == bytes(stored)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE retention_certificate SET document = document RETURNING id",
        "DELETE FROM retention_certificate RETURNING id",
        "DELETE FROM retention_run RETURNING id",
        "UPDATE retention_run SET started_at = now() RETURNING id",
    ],
)
def test_nobody_alters_or_removes_one_or_its_run(tenant: Any, role: Role, statement: str) -> None:
    issue(tenant)
    with pytest.raises(Error), tenant_transaction(role, tenant=tenant.id):
        rows.fetch(statement, [])


def test_even_the_owner_of_the_tables_alters_none(tenant: Any, superuser: Any) -> None:
    made = issue(tenant)
    with pytest.raises(Exception, match="refused"):
        superuser.execute("UPDATE retention_certificate SET kind = 'other' WHERE id = %s", [made.id])


# runs -----------------------------------------------------------------------------------------------------------------


def begun(tenant: Any) -> runs.Run:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return runs.begin(worker(tenant.id), "erasure", target_kind="subject", target_id=PLATFORM, now=NOW)[0]


def test_one_run_of_a_kind_is_open_about_one_thing(tenant: Any) -> None:
    first = begun(tenant)
    assert begun(tenant).id == first.id
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert runs.unfinished(tenant.id, "erasure") == [first.id]
        runs.finish(worker(tenant.id), first, "stopped", code="asked_to")
    assert begun(tenant).id != first.id


def test_sums_grow_and_an_ended_run_goes_on_no_more(tenant: Any) -> None:
    run = begun(tenant)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        run = runs.advance(tenant.id, run, step="one", counts={"facts": 2})
        run = runs.advance(tenant.id, run, step="two", cursor={"id": str(PLATFORM)}, counts={"facts": 3}, refused=1)
        assert (run.step, run.counts, run.refused_by_hold) == ("two", {"facts": 5}, 1)
        run = runs.finish(worker(tenant.id), run)
        assert not run.open
    with pytest.raises(Error), tenant_transaction(Role.WORKER, tenant=tenant.id):
        runs.advance(tenant.id, run, step="three")


@pytest.mark.parametrize("given", [{"cursor": {"text": "Mira lives in Oslo"}}, {"counts": {"facts": "three"}}])
def test_a_run_holds_no_words(tenant: Any, given: Any) -> None:
    run = begun(tenant)
    with pytest.raises((Error, TypeError)), tenant_transaction(Role.WORKER, tenant=tenant.id):
        runs.advance(tenant.id, run, step="one", **given)


# the command ----------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it where there is no database and there are no keys."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MUNIMENT_", "DATABASE"))}
    environment |= {
        "DATABASE_URL": "postgresql://muniment_app@/none?host=/nowhere",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "MUNIMENT_HOME": str(Path(arguments[0]).parent / "nothing"),
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "verify_certificate", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_the_command_needs_the_file_and_the_public_key_and_nothing_else(tenant: Any, tmp_path: Path) -> None:
    file, key = tmp_path / "certificate.json", tmp_path / "public.pem"
    file.write_bytes(certificates.export(issue(tenant)))
    key.write_bytes(public_pem())
    done = command(str(file), "--public-key", str(key), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sound"] is True
    assert command(str(file), "--public-key", str(key)).stdout.startswith("sound\n")
    file.write_bytes(file.read_bytes().replace(b'"facts": 3', b'"facts": 4'))
    altered = command(str(file), "--public-key", str(key), "--json")
    assert (altered.returncode, json.loads(altered.stdout)["code"]) == (1, "bad_signature")
    wrong = command(str(file), "--public-key", str(file))
    assert (wrong.returncode, "no Ed25519 key" in wrong.stderr) == (1, True)
