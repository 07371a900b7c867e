"""`revoke_key PREFIX`: the key ends at once."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, key_of_prefix, revoke_key


class Command(OperatorCommand):
    help = "End a key at once."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix", help="what stands before the dot of the key")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            key = key_of_prefix(options["prefix"])
            assume(Role.FRONT, tenant=key.tenant_id)
            revoke_key(key, by=OPERATOR, now=now)
            key.refresh_from_db()
        return {"agent": key.agent_id, "prefix": key.prefix, "revoked_at": key.revoked_at}
