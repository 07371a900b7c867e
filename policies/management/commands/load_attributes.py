"""`load_attributes TENANT FILE`: put the attributes of a JSON file, or of a starter set by name, in force, all or none."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from policies.definitions import load_definitions, starters
from policies.documents import DocumentRefused
from policies.publishing import publish_attributes
from tenants.actors import Actor, ActorKind
from tenants.errors import FieldError, Refused
from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, tenant_named


class Command(OperatorCommand):
    help = "Publish attributes from a JSON file or a starter set; what is unchanged makes no version."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("file", type=Path, help=f"a file, or one of: {', '.join(starters())}")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        file = options["file"]
        if not file.exists():
            file = starters().get(str(file), file)
        try:
            definitions = load_definitions(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise Refused("attributes_refused", errors=[FieldError("attributes", "not_utf8")]) from None
        except DocumentRefused as refusal:
            errors = [FieldError(path, code) for path, code in refusal.errors]
            raise Refused("attributes_refused", errors=errors) from None
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
            actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
            assume(Role.STAFF, tenant=tenant.id, actor=actor.id)
            published = publish_attributes(actor, definitions, now=now)
        return {
            "tenant": tenant.id,
            "attributes": [
                {"name": each.name, "version": each.number, "outcome": each.outcome, "fields": list(each.fields)}
                for each in published
            ],
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        return [
            f"{each['name']}: {each['outcome']}, version {each['version']}"
            + (f" ({', '.join(each['fields'])})" if each["fields"] else "")
            for each in outcome["attributes"]
        ]
