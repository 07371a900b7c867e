"""`rotate_keys TENANT`: a new version of the tenant's key, and the old ones destroyed once nothing living needs them."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from retention import rotation
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, tenant_named


class Command(OperatorCommand):
    help = "Rotate a tenant's key: what was erased is then out of reach of every backup. Goes on with one that was cut off."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument(
            "--seconds", type=float, default=3600.0, help="how long to work and to wait for others; default: 3600"
        )

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
        actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
        done = rotation.rotate(actor, seconds=options["seconds"])
        return {
            "tenant": tenant.slug,
            "version": done.version,
            "destroyed": list(done.destroyed),
            "rewrapped": done.rewrapped,
            "reindexed": done.reindexed,
            "waits_for": done.waits_for or None,
        }

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return outcome["waits_for"] is not None
