"""`create_member TENANT USER --role …`: a person's role in a tenant, and their user where there is none."""

import secrets
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tenants.actors import MemberRole
from tenants.isolation import Role, assume, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.models import User
from tenants.registry import OPERATOR, create_member, tenant_named


class Command(OperatorCommand):
    help = "Give a person a role in a tenant. A new user's password is printed once, unless a file gives it."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("user", help="the name to sign in with")
        parser.add_argument("--role", required=True, choices=[role.value for role in MemberRole])
        parser.add_argument("--password-file", type=Path, help="a file whose first line is the password")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        file = options["password_file"]
        given = None if file is None else file.read_text(encoding="utf-8").split("\n", 1)[0]
        with tenant_transaction(Role.FRONT, tenant=None):
            tenant = tenant_named(options["tenant"])
            assume(Role.FRONT, tenant=tenant.id)
            known = User.objects.filter(username=options["user"]).exists()
            password = given if given is not None or known else secrets.token_urlsafe(15)
            joined = create_member(
                tenant.id,
                options["user"],
                MemberRole(options["role"]),
                password=password,
                by=OPERATOR,
                now=now,
            )
        outcome = {"user": joined.membership.user_id, "role": options["role"], "created": joined.user_created}
        return outcome if given is not None or not joined.user_created else {**outcome, "password": password}
