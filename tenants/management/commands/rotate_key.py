"""`rotate_key PREFIX [--overlap HOURS]`: a new key now, the old one ends after the overlap."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, key_of_prefix, rotate_key


class Command(OperatorCommand):
    help = "Replace a key: print a new one, once, and let the old one end after the overlap."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix", help="what stands before the dot of the key")
        parser.add_argument("--overlap", type=float, default=24.0, metavar="HOURS", help="default: 24")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            key = key_of_prefix(options["prefix"])
            assume(Role.FRONT, tenant=key.tenant_id)
            issued = rotate_key(key, overlap=timedelta(hours=options["overlap"]), by=OPERATOR, now=now)
            key.refresh_from_db()
        return {
            "agent": key.agent_id,
            "key": issued.text,
            "prefix": issued.key.prefix,
            "old_prefix": key.prefix,
            "old_ends_at": key.expires_at,
        }
