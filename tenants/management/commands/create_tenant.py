"""`create_tenant SLUG`: a new tenant with keys of its own."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, create_tenant


class Command(OperatorCommand):
    help = "Create a tenant."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="lower-case letters, digits and hyphens")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = create_tenant(options["slug"], by=OPERATOR, now=now)
        return {"tenant": tenant.id, "slug": tenant.slug}
