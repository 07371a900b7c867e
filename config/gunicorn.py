"""How gunicorn serves us: `gunicorn --config python:config.gunicorn config.wsgi`.

Nothing of a request reaches its log or its own error pages: requests are logged by the application, by route name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
import traceback
from pathlib import Path
from typing import Any

from gunicorn.glogging import Logger  # type: ignore[import-untyped]
from gunicorn.http.errors import (  # type: ignore[import-untyped]
    ExpectationFailed,
    LimitRequestHeaders,
    LimitRequestLine,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.util import write_error  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

_ANSWERS: list[tuple[type[Exception], int, str]] = [
    (LimitRequestLine, 414, "URI Too Long"),
    (LimitRequestHeaders, 431, "Request Header Fields Too Large"),
    (ExpectationFailed, 417, "Expectation Failed"),
    (UnsupportedTransferCoding, 501, "Not Implemented"),
    (ParseException, 400, "Bad Request"),
]


class Silent(logging.Formatter):
    """Templates and numbers only: gunicorn formats request lines into its messages."""

    def format(self, record: logging.LogRecord) -> str:
        message = str(record.msg).split(":", 1)[0].splitlines()[0] if record.msg else ""
        arguments = record.args if isinstance(record.args, tuple) else ()
        if arguments and all(isinstance(argument, int) for argument in arguments):
            message = record.getMessage()
        line = f"{self.formatTime(record)} {record.levelname} [{record.process}] {message}"
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-4:]
            places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            line += f" ({record.exc_info[0].__name__} at {places})"
        return line


class Log(Logger):
    """gunicorn's logger with that formatter."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(Silent())


class Worker(ThreadWorker):
    """A threaded worker whose answers to malformed requests quote nothing."""

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        for kind, status, reason in _ANSWERS:
            if isinstance(exc, kind):
                self.log.warning("Malformed request")
                with contextlib.suppress(OSError):  # the client has gone
                    write_error(client, status, reason, "")
                return
        super().handle_error(req, client, addr, exc)


bind = os.environ.get("MUNIMENT_BIND") or f"127.0.0.1:{os.environ.get('MUNIMENT_PORT') or 8000}"
worker_class = Worker
logger_class = Log
workers = int(os.environ.get("MUNIMENT_WEB_WORKERS") or 2)
threads = int(os.environ.get("MUNIMENT_WEB_THREADS") or 4)
timeout = 60
graceful_timeout = 3
keepalive = 75
accesslog = None
errorlog = "-"
loglevel = "warning"
proc_name = "muniment"
control_socket_disable = True
# Heartbeats are file touches: on a slow disk they would stall the workers.
_memory = Path("/dev/shm")  # noqa: S108
worker_tmp_dir = str(_memory) if _memory.is_dir() else None

# Each worker keeps its counts of requests in a file of this folder; whichever is asked for /metrics adds them up.
_counts = tempfile.mkdtemp(prefix="muniment-metrics-", dir=worker_tmp_dir)
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _counts


def on_exit(server: Any) -> None:
    """Remove the counts with the server that counted."""
    shutil.rmtree(_counts, ignore_errors=True)
