#!/usr/bin/env python
"""Django's commands. Without DATABASE_URL they act on the running copy of MUNIMENT_HOME."""

import os
import sys

#: Commands that change or describe the schema act as its owner; every other logs in as the application does.
OWNER_COMMANDS = frozenset({"migrate", "makemigrations", "sqlmigrate", "showmigrations"})
#: Commands that need no server.
OFFLINE_COMMANDS = frozenset(
    {
        "",
        "help",
        "version",
        "check",
        "makemigrations",
        "spectacular",
        "collectstatic",
        "findstatic",
        "diffsettings",
        "evaluate",
        "makemessages",
        "compilemessages",
    }
)

#: Commands that start the embedded server themselves where nothing runs.
ALONE = frozenset({"backup", "restore"})

#: Options with which any command needs none.
OFFLINE_OPTIONS = frozenset({"-h", "--help", "--version", "--bootstrap-sql"})


def main(arguments: list[str]) -> int:
    """Run one command with the environment it needs."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    if not os.environ.get("DATABASE_URL"):
        from config.launch import environment_of_running, home_folder

        found = environment_of_running(home_folder())
        if found is not None:
            os.environ.update(found)
        elif command in ALONE and not OFFLINE_OPTIONS & set(arguments):
            return _alone(arguments)
        elif command not in OFFLINE_COMMANDS and not OFFLINE_OPTIONS & set(arguments):
            sys.stderr.write(f"No running Muniment in {home_folder()}: `make run` starts it; or set DATABASE_URL.\n")
            return 2
    if command in OWNER_COMMANDS:
        os.environ.setdefault("MUNIMENT_ROLE", "owner")
    from django.core.management import execute_from_command_line

    execute_from_command_line([sys.argv[0], *arguments])
    return 0


def _alone(arguments: list[str]) -> int:
    from config.launch import Refused, database_of_stopped, home_folder

    try:
        with database_of_stopped(home_folder()) as environment:
            os.environ.update(environment)
            from django.core.management import execute_from_command_line

            execute_from_command_line([sys.argv[0], *arguments])
    except Refused as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
