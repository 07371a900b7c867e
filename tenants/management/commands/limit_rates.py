"""`limit_rates TENANT`: how many requests and writes each key of a tenant may send within a minute."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, limit_rates, tenant_named


class Command(OperatorCommand):
    help = "Set the rate limits of a tenant's keys; what is not given is lifted."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("--requests", type=int, metavar="N", help="requests a minute and key, of every kind")
        parser.add_argument("--writes", type=int, metavar="N", help="writes a minute and key")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
            assume(Role.FRONT, tenant=tenant.id)
            limit_rates(tenant, requests=options["requests"], writes=options["writes"], by=OPERATOR, now=now)
        return {
            "tenant": tenant.id,
            "requests_a_minute": tenant.requests_a_minute,
            "writes_a_minute": tenant.writes_a_minute,
        }
