"""What the environment may set, typed. The one place that reads environment variables; documented in docs/runbook.md."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Literal
from zoneinfo import available_timezones

from psycopg.conninfo import conninfo_to_dict
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from config.embedded import PlatformMissing, binaries
from memory.extraction.model import Configuration
from policies.detection.names import missing
from tenants.providers import SingleSignOn, described

ROOT = Path(__file__).resolve().parent.parent


class Environment(BaseSettings):
    """Settings of one process, from `MUNIMENT_*` variables and `DATABASE_URL`."""

    model_config = SettingsConfigDict(env_prefix="MUNIMENT_", extra="ignore", hide_input_in_errors=True)

    database_url: str = Field(default="", validation_alias="DATABASE_URL", repr=False)
    owner_url: str = Field(default="", repr=False)
    #: What `backup` and `restore` log in by: row-level security would hide every row from any other role.
    backup_url: str = Field(default="", repr=False)
    #: Where pg_dump and pg_restore are; empty: those of the server's version where Debian puts them, else our own.
    postgres_programs: Path | None = None
    role: Literal["app", "owner"] = "app"
    home: Path = ROOT / ".muniment"
    port: int = Field(default=8000, ge=1, le=65535)
    keys: Path | None = None
    endings: Path | None = None
    #: Hosts (or host:port) of recipients' addresses that may be private or without https; separated by commas.
    notice_hosts: str = ""
    rotate_keys_days: int = Field(default=0, ge=0, le=3650)
    broker_url: str = Field(default="pgmq://", repr=False)
    broker_dsn: str = Field(default="", repr=False)
    secret_file: Path | None = None
    allowed_hosts: str = "127.0.0.1,localhost"
    #: What words are put down to their stems by; `simple` leaves them as they are. Changed, every index is made anew.
    search_language: str = Field(default="english", pattern=r"^[a-z]+$")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    secure_cookies: bool = False
    trusted_origins: str = ""
    require_mfa: bool = False
    #: A file that describes the identity providers people may sign in by; none: nobody does.
    sso_file: Path | None = None
    reveals_a_day: int = Field(default=30, ge=0, le=1000)
    names_model: str = ""
    #: The zone in whose calendar days count where the law counts days.
    calendar_zone: str = "UTC"
    extractor_model: str = ""
    extractor_key: str = Field(default="", repr=False)
    extractor_key_file: Path | None = None
    extractor_output: Literal["tool", "schema"] = "tool"
    extractor_seconds: int = Field(default=40, ge=1, le=45)
    extractor_output_tokens: int = Field(default=4000, ge=100, le=100_000)
    extractor_tokens_per_day: int = Field(default=200_000, ge=0)
    extractor_tokens_per_month: int = Field(default=3_000_000, ge=0)

    @property
    def key_folder(self) -> Path:
        """Where the key provider keeps tenant keys: outside the database and its backups."""
        return self.keys or self.home / "keys"

    @property
    def endings_folder(self) -> Path:
        """Where the signed logs of endings stand: outside the database and its backups, as the keys."""
        return self.endings or self.home / "endings"

    def secret(self) -> str:
        """Return Django's secret key from its file. Without a file (lint, schema, migrations) a fixed word that signs nothing."""
        if self.secret_file is None:
            default = self.home / "secret"
            if not default.is_file():
                return "unset-and-refused-by-the-server"
            return default.read_text(encoding="utf-8").strip()
        return self.secret_file.read_text(encoding="utf-8").strip()

    def extractor(self) -> Configuration | None:
        """Return which model reads episodes, or None where none is named. Raises NotConfigured for another form of name."""
        if not self.extractor_model:
            return None
        key = self.extractor_key
        if self.extractor_key_file is not None:
            key = self.extractor_key_file.read_text(encoding="utf-8").strip()
        return Configuration(
            self.extractor_model,
            key=key,
            seconds=self.extractor_seconds,
            output=self.extractor_output,
            output_tokens=self.extractor_output_tokens,
            tokens_per_day=self.extractor_tokens_per_day or None,
            tokens_per_month=self.extractor_tokens_per_month or None,
        )

    def single_sign_on(self) -> SingleSignOn | None:
        """Return by which identity providers people may sign in, or None. Raises ValueError for a file that says it wrongly."""
        if self.sso_file is None:
            return None
        try:
            text = self.sso_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise ValueError("MUNIMENT_SSO_FILE: the file cannot be read") from None
        try:
            return described(
                text, secret_of=lambda name: os.environ.get(f"MUNIMENT_SSO_SECRET_{name.upper().replace('-', '_')}")
            )
        except ValueError as error:
            raise ValueError(f"MUNIMENT_SSO_FILE: {error}") from None

    def zone(self) -> str:
        """Return the zone in whose calendar days count. Raises ValueError for one that is not known."""
        if self.calendar_zone not in available_timezones():
            raise ValueError("MUNIMENT_CALENDAR_ZONE: not the name of a time zone, such as Europe/Berlin")
        return self.calendar_zone

    def names(self) -> str:
        """Return the model that looks for names of people and places, or "". Raises ValueError for one that is not there."""
        why = missing(self.names_model) if self.names_model else None
        if why is not None:
            raise ValueError(f"MUNIMENT_NAMES_MODEL: {why}")
        return self.names_model

    def database(self) -> dict[str, Any]:
        """Return Django's description of the database this process logs in to.

        Values are bound on the server, so that no statement text in a server log holds one; connections persist, one a
        thread; statements are prepared at first use.
        """
        url = self.owner_url if self.role == "owner" else self.database_url
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None} if url else {}
        # The owner sends scripts of many commands, which cannot be prepared.
        owner = self.role == "owner"
        options: dict[str, Any] = {} if owner else {"server_side_binding": True, "prepare_threshold": 0}
        named = {name: parts.pop(name, "") for name in ("dbname", "user", "password", "host", "port")}
        return {
            "ENGINE": "config.database",
            "NAME": named["dbname"] or "muniment",
            "USER": named["user"],
            "PASSWORD": named["password"],
            "HOST": named["host"],
            "PORT": named["port"],
            "CONN_MAX_AGE": None,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": {**parts, **options},
            "ATOMIC_REQUESTS": False,
        }


def postgres_program(name: str, server: int) -> Path | None:
    """Return a client program of PostgreSQL that suits a server of major version `server`, None where there is none.

    One of another version than the server's may write what the server does not read: its own go first.
    """
    chosen = Environment().postgres_programs
    folders = [chosen] if chosen is not None else [Path(f"/usr/lib/postgresql/{server}/bin")]
    if chosen is None:
        with contextlib.suppress(PlatformMissing):
            folders.append(binaries())
    found = next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), None)
    if found is None and chosen is None and (somewhere := shutil.which(name)):
        found = Path(somewhere)
    return found
