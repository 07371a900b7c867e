"""`audit verify`: walk the audit chains and name the first entry that does not hold."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from tenants import secrets
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Missing
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import SignedLog
from tenants.management.command import OperatorCommand
from tenants.models import Tenant
from tenants.registry import OPERATOR
from tenants.verification import export, verify_all


class Command(OperatorCommand):
    help = "Verify the audit chains, and export signed checkpoints of them."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("act", choices=["verify"])
        parser.add_argument("--tenant", metavar="SLUG", help="only this tenant's chain (default: all of them)")
        parser.add_argument("--checkpoint", action="store_true", help="append signed heads to checkpoints.jsonl")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        log = SignedLog(settings.ENVIRONMENT.home / "checkpoints.jsonl", secrets.provider())
        with tenant_transaction(Role.FRONT, tenant=None):
            slugs = dict(Tenant.objects.values_list("id", "slug"))
            only = None
            if options["tenant"] is not None:
                only = next((tenant for tenant, slug in slugs.items() if slug == options["tenant"]), None)
                if only is None:
                    raise Missing("tenant_unknown")
            findings = verify_all(log, only=only, known=slugs)
        bad = [finding for finding in findings if finding.bad is not None]
        exported = 0
        if options["checkpoint"] and not bad:
            exported = export(log, findings, now=now)
        with tenant_transaction(Role.FRONT, tenant=None):
            append(
                [
                    Event(
                        actor=OPERATOR,
                        action=Action.CHAINS_VERIFIED,
                        target_kind="audit_chain",
                        target_id=bad[0].chain if bad else only or PLATFORM,
                        reason=bad[0].code if bad else "sound",
                        numbers={
                            "chains": len(findings),
                            "entries": sum(finding.entries for finding in findings),
                            "bad": len(bad),
                            "checkpoints": exported,
                        },
                    )
                ],
                chain=PLATFORM,
            )
        return {
            "sound": not bad,
            "checkpoints": exported,
            "chains": [
                {
                    "chain": finding.chain,
                    "tenant": slugs.get(finding.chain),
                    "entries": finding.entries,
                    "first_bad": finding.bad,
                    "verdict": finding.code,
                }
                for finding in findings
            ],
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        lines = [
            f"{chain['tenant'] or ('platform' if chain['chain'] == PLATFORM else chain['chain'])}:"
            f" {chain['verdict']}, {chain['entries']} entries"
            + ("" if chain["first_bad"] is None else f"; the first bad entry is {chain['first_bad']}")
            for chain in outcome["chains"]
        ]
        return [*lines, f"checkpoints: {outcome['checkpoints']}"] if outcome["checkpoints"] else lines

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return not outcome["sound"]
