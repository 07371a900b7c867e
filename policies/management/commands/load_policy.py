"""`load_policy TENANT FILE`: put the write policy of a JSON file in force; `starter` is the one that is shipped."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from policies.documents import DocumentRefused
from policies.publishing import publish_policy
from policies.rules import STARTER, load_policy
from tenants.actors import Actor, ActorKind
from tenants.errors import FieldError, Refused
from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, tenant_named


class Command(OperatorCommand):
    help = "Publish a write policy from a JSON file, or the shipped one by the name `starter`."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("file", help="a JSON file, or `starter`")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        file = STARTER if options["file"] == "starter" else Path(options["file"])
        try:
            document = load_policy(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise Refused("policy_refused", errors=[FieldError("policy", "not_utf8")]) from None
        except DocumentRefused as refusal:
            errors = [FieldError(path, code) for path, code in refusal.errors]
            raise Refused("policy_refused", errors=errors) from None
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
            actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
            assume(Role.STAFF, tenant=tenant.id, actor=actor.id)
            published = publish_policy(actor, document, now=now)
        return {
            "tenant": tenant.id,
            "policy": published.name,
            "version": published.number,
            "outcome": published.outcome,
            "fields": list(published.fields),
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        changed = f" ({', '.join(outcome['fields'])})" if outcome["fields"] else ""
        return [f"{outcome['policy']}: {outcome['outcome']}, version {outcome['version']}{changed}"]
