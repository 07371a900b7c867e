"""Runs and certificates over HTTP and in the admin: read by whoever may, and downloaded as one file."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from memory import rows
from retention.certificates import verify
from tenants.actors import MemberRole, Scope
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.paths.ledger import Ledger


@pytest.fixture
def compacted(ledger: Ledger, tenant: Any) -> dict[str, Any]:
    """A run of the ledger's tenant that removed one fact, as the command printed it."""
    ledger.said("mira", "city", "Oslo")
    with tenant_transaction(Role.WRITER, tenant=tenant.id, clearance=3):
        for table in ("fact", "payload"):
            rows.execute(
                f"UPDATE memory_{table} SET expires_at = clock_timestamp() - interval '1 hour' WHERE basis <> 'indefinite'",
                [],
            )
    out = StringIO()
    call_command("compact", tenant.slug, json=True, stdout=out)
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


def test_the_command_says_what_it_removed(compacted: dict[str, Any]) -> None:
    assert compacted["done"] is True
    assert compacted["counts"]["values"] == 1


def test_a_run_is_read_with_its_sums_and_its_certificate(ledger: Ledger, compacted: dict[str, Any]) -> None:
    (run,) = ledger.ok("/runs/")["results"]
    assert (run["id"], run["kind"], run["state"]) == (compacted["run"], "compaction", "done")
    assert run["counts"] == compacted["counts"]
    assert run["certificates"] == [compacted["certificate"]]
    assert ledger.ok(f"/runs/{run['id']}/") == run
    assert ledger.ok("/runs/", kind="erasure")["results"] == []
    assert ledger.get("/runs/", kind="nonsense").status_code == 400


def test_a_certificate_is_downloaded_and_verified_by_the_public_key(ledger: Ledger, compacted: dict[str, Any]) -> None:
    (listed,) = ledger.ok("/certificates/", run=compacted["run"])["results"]
    answer = ledger.get(f"/certificates/{listed['id']}/")
    assert verify(answer.content, provider().public_key_pem()).sound


def test_only_a_key_with_the_scope_admin_reads_them(tenant: Any, compacted: dict[str, Any]) -> None:
    other = tenant.agent(scopes=frozenset(Scope) - {Scope.ADMIN}).api
    for path in (
        "/runs/",
        f"/runs/{compacted['run']}/",
        "/certificates/",
        f"/certificates/{compacted['certificate']}/",
    ):
        answer = other.get(f"/api/v1{path}")
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


def test_another_tenants_look_like_missing_ones(compacted: dict[str, Any], other_tenant: Any) -> None:
    foreign = other_tenant.agent().api
    for path in (f"/runs/{compacted['run']}/", f"/certificates/{compacted['certificate']}/"):
        assert foreign.get(f"/api/v1{path}").status_code == 404
    assert foreign.get("/api/v1/runs/").json()["results"] == []


def test_members_see_runs_and_download_certificates_in_the_admin(tenant: Any, compacted: dict[str, Any]) -> None:
    client = tenant.person(MemberRole.PRIVACY_OFFICER).signed_in()
    page = client.get("/admin/retention/run/")
    assert page.status_code == 200
    assert "compaction" in page.content.decode()
    assert "1 values" in client.get(f"/admin/retention/run/{compacted['run']}/change/").content.decode()
    shown = client.get(f"/admin/retention/certificate/{compacted['certificate']}/change/").content.decode()
    assert "backups until they age out" in shown
    assert "Download" in shown
    file = client.get(f"/admin/retention/certificate/{compacted['certificate']}/download/")
    assert file.headers["Content-Disposition"].startswith('attachment; filename="certificate-compaction-')
    assert verify(file.content, provider().public_key_pem()).sound
    assert client.post(f"/admin/retention/certificate/{compacted['certificate']}/download/").status_code == 405
