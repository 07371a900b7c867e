"""`doctor`: what is wrong with this installation, and how to mend it. Changes nothing, and so leaves no audit entry."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.utils.module_loading import import_string

from tenants import secrets
from tenants.examination import examine, model
from tenants.management.command import OperatorCommand

BOOTSTRAP = Path(__file__).resolve().parents[2] / "bootstrap.sql"


class Command(OperatorCommand):
    help = "Examine roles, row-level security, server, broker, worker, clock and keys."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--bootstrap-sql", action="store_true", help="print the SQL that makes the roles, for a superuser to run"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["bootstrap_sql"]:
            self.stdout.write(BOOTSTRAP.read_text(encoding="utf-8"), ending="")
            return
        super().handle(*args, **options)

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        required = settings.ENVIRONMENT.require_mfa
        checks = list(examine(secrets.provider(), broker=_wrong_with_broker, second_factor_required=required))
        for named in settings.DOCTOR_CHECKS:
            checks.extend(import_string(named)())
        reader = settings.MODEL_EXTRACTOR
        checks.append(model(reader.named.label if reader else "", installed=bool(reader and reader.named.is_installed)))
        return {
            "well": all(check.ok is not False for check in checks),
            "checks": [
                {
                    "name": check.name,
                    "ok": check.ok is not False,
                    "found": check.found,
                    "mend": "" if check.ok else check.mend,
                }
                for check in checks
            ],
        }

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        lines = []
        for check in outcome["checks"]:
            mark = "WRONG" if not check["ok"] else "ok   " if not check["mend"] else "note "
            lines.append(f"{mark}  {check['name']}: {check['found']}")
            if check["mend"]:
                lines.append(f"       {check['mend']}")
        return lines

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return not outcome["well"]


def _wrong_with_broker() -> str:
    environment = settings.ENVIRONMENT
    if not environment.broker_url.startswith("pgmq"):
        return _wrong_with_url(environment.broker_url)
    if not environment.broker_dsn:
        return "MUNIMENT_BROKER_DSN is not set"
    try:
        with psycopg.connect(environment.broker_dsn, connect_timeout=3) as session:
            row = session.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL").fetchone()
    except psycopg.Error:
        return "does not answer"
    return "" if row and row[0] else "the queue is not installed"


def _wrong_with_url(url: str) -> str:
    from kombu import Connection

    try:
        with Connection(url, connect_timeout=3) as broker:
            broker.ensure_connection(max_retries=1, timeout=3)
    except Exception:  # each transport has its own kinds
        return "does not answer"
    return ""
