"""Logs without content: what may stand in a line is a list, and the rest is dropped.

A log line keeps its message template and drops its arguments, since a library may format anything into them. Of an
exception the type and the places in the code stay; its text, which may quote a value, does not.
"""

import logging
import logging.config
import traceback
from types import TracebackType
from typing import Any

import structlog

#: Keys of a log line that cannot hold content; every other key is dropped. Extended by review, not by need.
ALLOWED = frozenset(
    {
        "event",
        "level",
        "logger",
        "timestamp",
        "request_id",
        "route",
        "method",
        "status",
        "code",
        "tenant",
        "actor",
        "actor_kind",
        "duration_ms",
        "topic",
        "entry",
        "count",
        "attempt",
        "exception",
        "at",
        "process",
    }
)


def allow_listed(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """Drop every key of a log line that is not known to be free of content."""
    return {key: value for key, value in event.items() if key in ALLOWED}


def _places(trace: TracebackType | None) -> list[str]:
    return [
        f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno}:{frame.name}" for frame in traceback.extract_tb(trace)[-8:]
    ]


def from_record(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """Rebuild a standard library record's line from its template, its type of exception and its allowed extras."""
    record: logging.LogRecord | None = event.get("_record")
    if record is None:
        return event
    event["event"] = record.msg if isinstance(record.msg, str) and record.args else _template(record)
    if record.exc_info and record.exc_info[0] is not None:
        event["exception"] = record.exc_info[0].__name__
        event["at"] = _places(record.exc_info[2])
    event.pop("exc_info", None)
    return event


def _template(record: logging.LogRecord) -> str:
    # A message without arguments was formatted by its caller: only our own loggers and Celery's fixed words may pass.
    if record.name.split(".")[0] in {"muniment", "gunicorn", "celery"} and isinstance(record.msg, str):
        return record.msg if record.name.startswith("muniment") else record.msg.split("\n")[0][:200]
    return f"({record.name})"


def configuration(level: str) -> None:
    """Configure logging for this process: JSON lines on standard error, allow-listed."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "lines": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    # Rendering a message would print its arguments, and of a query set fetch the rows.
                    "use_get_message": False,
                    "foreign_pre_chain": [
                        structlog.stdlib.add_logger_name,
                        structlog.stdlib.add_log_level,
                        structlog.stdlib.ExtraAdder(allow=ALLOWED),
                        structlog.processors.TimeStamper(fmt="iso", utc=True),
                    ],
                    "processors": [
                        from_record,
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        allow_listed,
                        structlog.processors.JSONRenderer(),
                    ],
                    "pass_foreign_args": False,
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
            "root": {"handlers": ["stderr"], "level": level if level != "DEBUG" else "INFO"},
            "loggers": {
                "muniment": {"level": level},
                "django.security": {"level": "WARNING"},
                "django.request": {"level": "ERROR"},
                "django.db.backends": {"level": "WARNING"},
            },
        }
    )
