"""`audit verify`: walk the audit chains, and hold the sealed receipts against them; name the first that does not hold."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from memory.receipts import verify_receipts
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
    help = "Verify the audit chains and the receipts sealed into them; export signed checkpoints."

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
        seals = {}
        for tenant in slugs:
            if only in (None, tenant):
                with tenant_transaction(Role.WORKER, tenant=tenant):
                    seals[tenant] = verify_receipts(tenant)
        broken = [tenant for tenant, found in seals.items() if found.bad is not None]
        exported = 0
        if options["checkpoint"] and not bad and not broken:
            exported = export(log, findings, now=now)
        with tenant_transaction(Role.FRONT, tenant=None):
            append(
                [
                    Event(
                        actor=OPERATOR,
                        action=Action.CHAINS_VERIFIED,
                        target_kind="audit_chain",
                        target_id=bad[0].chain if bad else broken[0] if broken else only or PLATFORM,
                        reason=bad[0].code if bad else "receipts_differ" if broken else "sound",
                        numbers={
                            "chains": len(findings),
                            "entries": sum(finding.entries for finding in findings),
                            "bad": len(bad) + len(broken),
                            "receipts": sum(found.receipts for found in seals.values()),
                            "checkpoints": exported,
                        },
                    )
                ],
                chain=PLATFORM,
            )
        return {
            "sound": not bad and not broken,
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
            "receipts": [
                {
                    "tenant": slugs[tenant],
                    "sealed": found.receipts,
                    "batches": found.batches,
                    "first_bad": found.bad,
                }
                for tenant, found in seals.items()
            ],
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        lines = [
            f"{chain['tenant'] or ('platform' if chain['chain'] == PLATFORM else chain['chain'])}:"
            f" {chain['verdict']}, {chain['entries']} entries"
            + ("" if chain["first_bad"] is None else f"; the first bad entry is {chain['first_bad']}")
            for chain in outcome["chains"]
        ]
        lines += [
            f"{each['tenant']}: {each['sealed']} sealed receipts"
            + ("" if each["first_bad"] is None else f"; those sealed by entry {each['first_bad']} differ")
            for each in outcome["receipts"]
        ]
        return [*lines, f"checkpoints: {outcome['checkpoints']}"] if outcome["checkpoints"] else lines

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return not outcome["sound"]
