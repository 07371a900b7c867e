"""The frame of operators' commands: an outcome on standard output, as JSON with `--json`; an error is one line and code 1."""

from abc import abstractmethod
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, OperationalError

from tenants.errors import Problem
from tenants.jsontext import dumps
from tenants.keyring import KeyUnavailable, LogDamaged


class OperatorCommand(BaseCommand):
    """A command that acts with the operator's authority. A subclass gives `arguments` and `act`."""

    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser; arguments that it does not take are one line and code 1 as well, not a usage and code 2."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if parser.called_from_command_line:
            parser.error = lambda message: parser.exit(1, f"CommandError: {message}\n")  # type: ignore[method-assign]
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's own arguments."""

    @abstractmethod
    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do it, and return what is to be printed."""

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        """Return the outcome as lines for people."""
        return [f"{name}: {value}" for name, value in outcome.items()]

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        """Whether an outcome that was printed means that something is wrong (exit code 1)."""
        return False

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            outcome = self.act(datetime.now(UTC), options)
        except Problem as problem:
            where = ", ".join(f"{error.path}: {error.code}" for error in problem.errors)
            raise CommandError(f"{problem.code}{f' ({where})' if where else ''}") from None
        except KeyUnavailable as missing:
            raise CommandError(f"a key is not available: {missing.code}") from None
        except LogDamaged as damage:
            raise CommandError(f"the signed log is damaged: {damage.code} at line {damage.line}") from None
        except OperationalError:
            raise CommandError("the database does not answer") from None
        except Error as error:
            state = getattr(error.__cause__, "sqlstate", None) or "no state"
            raise CommandError(f"the database refused: {type(error).__name__} ({state})") from None
        except OSError as error:
            raise CommandError(f"a file cannot be used: {error.strerror or 'unknown reason'}") from None
        if options["json"]:
            self.stdout.write(dumps(outcome).decode())
        else:
            for line in self.lines(outcome):
                self.stdout.write(line)
        if self.failed(outcome):
            # Said above; a second line would only repeat it.
            raise SystemExit(1)
