"""`verify_certificate FILE --public-key PEM`: is it what was signed? Needs no database, no network and no key but the public one."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from retention.certificates import verify
from tenants.management.command import OperatorCommand
from tenants.secrets import provider


class Command(OperatorCommand):
    help = "Check a certificate against the public key alone. `--print-public-key` writes this installation's."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="the certificate, as it was downloaded")
        parser.add_argument("--public-key", type=Path, help="the public key of whoever issued it, as PEM")
        parser.add_argument(
            "--print-public-key",
            action="store_true",
            help="print the public key of this installation, for others to keep",
        )

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if options["print_public_key"]:
            return {"public_key": provider().public_key_pem().decode("ascii")}
        if options["file"] is None or options["public_key"] is None:
            raise CommandError("a FILE and --public-key PEM are needed")
        try:
            verdict = verify(options["file"].read_bytes(), options["public_key"].read_bytes())
        except ValueError:
            raise CommandError("the public key is no Ed25519 key in PEM") from None
        return {"sound": verdict.sound, "code": verdict.code, "certificate": verdict.certificate}

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        if "public_key" in outcome:
            return outcome["public_key"].splitlines()  # type: ignore[no-any-return]
        if outcome["certificate"] is None:
            return [f"NOT SOUND: {outcome['code']}"]
        said = outcome["certificate"]
        body = said["body"]
        return [
            "sound",
            f"certificate: {said['id']} ({said['kind']}), issued {said['issued_at']} for tenant {said['tenant']}",
            f"audit chain: entry {said['chain']['seq']}, {said['chain']['hash']}",
            *(f"{name}: {body[name]}" for name in sorted(body)),
        ]

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return outcome.get("sound") is False
