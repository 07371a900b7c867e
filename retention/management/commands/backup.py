"""`backup FOLDER`: a consistent dump of the database and a signed manifest, as a new folder within FOLDER; no keys."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from retention import backups
from tenants.management.command import OperatorCommand


class Command(OperatorCommand):
    help = "Back the database up, beside readers and writers. Keys and endings logs are kept apart and not in it."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="where the backup's own folder is made")

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        made = backups.make(options["folder"].absolute(), url=settings.ENVIRONMENT.backup_url, now=now)
        return {"backup": made.folder, "bytes": made.size, "tenants": made.tenants, "entries": made.entries}
