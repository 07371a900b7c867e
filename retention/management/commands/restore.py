"""`restore BACKUP`: a backup into an empty database, with everything that has ended since, before anybody is let in."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from retention import restoring
from tenants.management.command import OperatorCommand


class Command(OperatorCommand):
    help = "Restore a backup into an empty database, and end what has ended since. Cut off, the same command goes on."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("backup", type=Path, help="the folder that `backup` made")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        done = restoring.restore(options["backup"].absolute(), url=settings.ENVIRONMENT.backup_url)
        return {
            "made_at": done.made_at,
            "age_seconds": int((now - done.made_at).total_seconds()),
            "tenants": done.tenants,
            "endings_applied": dict(done.applied),
            "endings_of_younger_records": done.unmatched,
            "unreadable_data_keys": done.unreadable,
            "audit_entries_lost": done.lost,
            "tenants_not_in_it": done.unknown,
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        return [
            *super().lines(outcome),
            f"what was written after {outcome['made_at']:%Y-%m-%d %H:%M:%S} UTC is not there",
        ]
