"""`export_memory TENANT FILE`: a tenant's memory as lines of JSON, with tombstones, suppressions, consents and holds."""

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from retention import transfer
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR, tenant_named


class Command(OperatorCommand):
    help = "Export a tenant's memory as lines of JSON. Every class is in it, in clear: the file is yours to protect."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("file", type=Path, help="a new file, which its owner alone may read")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
        actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(options["file"], flags, 0o600), "w", encoding="utf-8") as out:
            written = transfer.write_out(actor, out, now=now)
            out.flush()
            os.fsync(out.fileno())
        return {"tenant": tenant.slug, "lines": dict(written)}
