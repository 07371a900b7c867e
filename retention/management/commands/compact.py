"""`compact TENANT`: remove now what has outlived its time, and go on with a run that was cut off."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from retention import compaction
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, tenant_named


class Command(OperatorCommand):
    help = "Remove what has outlived its time, beside readers and writers. Goes on with a run that was cut off."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("--seconds", type=float, default=3600.0, help="how long to work; default: 3600")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
        actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
        done = compaction.compact(actor, seconds=options["seconds"])
        return {
            "tenant": tenant.slug,
            "run": done.run,
            "done": done.done,
            "counts": done.counts,
            "refused_by_hold": done.refused_by_hold,
            "certificate": done.certificate,
        }

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return not outcome["done"]
