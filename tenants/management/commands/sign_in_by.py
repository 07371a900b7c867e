"""`sign_in_by USER PROVIDER --email …|--subject …`: let a person who exists sign in by an identity provider, or no more."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from tenants.errors import Missing
from tenants.identities import Known, KnownBy, name_identity, remove_identities
from tenants.isolation import Role, tenant_transaction
from tenants.management.command import OperatorCommand
from tenants.registry import OPERATOR


class Command(OperatorCommand):
    help = (
        "Let a person sign in by an identity provider, by subject id or once by verified address; or by none any more."
    )

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the name to sign in with")
        parser.add_argument("provider", nargs="?", default="", help="the provider's name in MUNIMENT_SSO_FILE")
        chosen = parser.add_mutually_exclusive_group(required=True)
        chosen.add_argument("--email", help="the verified address that the provider has of them")
        chosen.add_argument("--subject", help="the provider's own id of them")
        chosen.add_argument("--none", action="store_true", help="take away every provider of theirs")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        with tenant_transaction(Role.FRONT, tenant=None):
            if options["none"]:
                person, removed = remove_identities(options["user"], by=OPERATOR)
                return {"user": person, "removed": removed}
            known = settings.SINGLE_SIGN_ON
            if known is None or known.named(options["provider"]) is None:
                raise Missing("provider_unknown")
            kind = KnownBy.EMAIL if options["email"] is not None else KnownBy.SUBJECT
            as_whom = Known(options["provider"], kind, options[kind.value])
            person = name_identity(options["user"], as_whom, by=OPERATOR, now=now)
        return {"user": person, "provider": options["provider"], "known_by": kind.value}
