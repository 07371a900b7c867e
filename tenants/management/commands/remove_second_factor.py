"""`remove_second_factor USER`: a person who lost theirs signs in by password alone again, and sets up another."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.signing import remove_second_factor


class Command(OperatorCommand):
    help = "Take a person's second factor and recovery codes away."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name that they sign in with")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            person, removed = remove_second_factor(options["user"])
        return {"user": person, "removed": removed}
