"""`audit verify` holds the sealed receipts against the chain too."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from memory import receipts
from tenants.isolation import Role, tenant_transaction


def test_a_sealed_receipt_that_was_altered_is_found_by_its_entry(tenant: Any, api: Any, superuser: Any) -> None:
    assert api.get("/api/v1/profile/", {"subject": "mira"}).status_code == 200
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert receipts.seal(tenant.id, older_than=timedelta(0)) > 0
    assert _verified(tenant)["receipts"][0]["first_bad"] is None

    superuser.execute("UPDATE memory_receipt SET act = 'other.read' WHERE tenant_id = %s", [tenant.id])

    with pytest.raises(SystemExit) as ended:
        _verified(tenant)
    assert ended.value.code == 1


def _verified(tenant: Any) -> Any:
    out = io.StringIO()
    call_command("audit", "verify", "--tenant", tenant.slug, "--json", stdout=out)
    return json.loads(out.getvalue())
