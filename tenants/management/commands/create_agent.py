"""`create_agent TENANT NAME --clearance CLASS --scope …`: a new agent with its first key, which is printed once."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tenants.actors import Scope
from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import CLEARANCES, OPERATOR, create_agent, issue_key, tenant_named


class Command(OperatorCommand):
    help = "Register an agent and print its key, once."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("name")
        parser.add_argument("--clearance", required=True, choices=CLEARANCES)
        parser.add_argument(
            "--scope", required=True, action="append", nargs="+", choices=[scope.value for scope in Scope]
        )
        parser.add_argument("--purpose", action="append", nargs="+", default=[], metavar="PURPOSE")
        parser.add_argument("--trust", type=int, default=50, metavar="0..100")
        parser.add_argument("--expires", type=int, metavar="DAYS", help="the key ends after so many days")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        expires = options["expires"]
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
            assume(Role.FRONT, tenant=tenant.id)
            agent = create_agent(
                tenant.id,
                options["name"],
                clearance=CLEARANCES.index(options["clearance"]),
                trust=options["trust"],
                purposes=[purpose for given in options["purpose"] for purpose in given],
                by=OPERATOR,
                now=now,
            )
            issued = issue_key(
                agent,
                scopes=[Scope(scope) for given in options["scope"] for scope in given],
                expires_at=None if expires is None else now + timedelta(days=expires),
                by=OPERATOR,
                now=now,
            )
        return {"agent": agent.id, "key": issued.text, "prefix": issued.key.prefix}
