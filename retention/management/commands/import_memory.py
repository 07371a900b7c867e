"""`import_memory TENANT FILE`: what `export_memory` wrote, brought in by the write door under the tenant's own policy."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from retention import transfer
from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import tenant_named


class Command(OperatorCommand):
    help = "Import an export. Attributes and policy have to be in force; what they refuse is told by line and code."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("file", type=Path, help="what export_memory wrote")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
        done = transfer.read_in(tenant.id, options["file"], now=now)
        return {
            "tenant": tenant.slug,
            "brought": dict(done.counts),
            "left": dict(done.left),
            "refused": [{"line": line, "code": code} for line, code in done.refused],
        }

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return bool(outcome["refused"])
