"""How Celery runs the background work: `celery -A config worker` and `celery -A config beat`.

What is to be done stands in the outbox and in the rows themselves; a message says only that there may be something. So
messages carry no arguments, nothing waits in the broker for its time, there are no results and no events, and a message
that is lost or comes twice changes nothing.
"""

import logging
import os
import sys
import threading
import time
import traceback
from datetime import timedelta
from importlib import import_module
from typing import Any, NoReturn

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from celery import Celery, signals
from celery.beat import PersistentScheduler
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from config.environment import Environment

_log = logging.getLogger("muniment.work")

HARD_LIMIT_SECONDS = 120
_SOFT_LIMIT_SECONDS = 90
#: A message that was taken and not answered for comes again after this; never while its task may still run.
VISIBILITY_SECONDS = 180
#: One process rings at most this often, since one drain empties everything that is due.
RING_EVERY_SECONDS = 0.25
_QUIET_AFTER_FAILURE_SECONDS = 2.0
_STALE_SECONDS = 30

#: What is due again and again: (task, seconds). A few seconds is how long work waits whose message was lost.
PERIODIC = {
    "memory.drain": 3.0,
    "memory.seal_receipts": 60.0,
    "memory.index": 30.0,
    "memory.tidy": 600.0,
    "retention.end_overdue": 60.0,
    "retention.compact": 60.0,
    "retention.rotate_keys": 300.0,
    "retention.count_acts": 20.0,
    "retention.escalate_requests": 300.0,
}


def _transport(environment: Environment) -> dict[str, Any]:
    kind = environment.broker_url.split(":", 1)[0].split("+", 1)[0]
    if kind == "pgmq":
        options: dict[str, Any] = {
            "init_extension": False,
            "polling_interval": 0.05,
            "wait_time_seconds": 0,
            "visibility_timeout": VISIBILITY_SECONDS,
            "pool_size": 2,
            "pool_timeout": 5,
        }
        if environment.broker_dsn:
            # As keywords: of a URL pgmq's client would read the host part only, which a socket has not.
            options["conn_string"] = make_conninfo("", **conninfo_to_dict(environment.broker_dsn))
        return options
    if kind in {"redis", "rediss"}:
        return {"visibility_timeout": VISIBILITY_SECONDS, "socket_connect_timeout": 5, "socket_timeout": 10}
    return {}


def new_app(environment: Environment) -> Celery:
    """Return a Celery application that speaks to the environment's broker."""
    # Celery's own fixup for Django would close the connection after every task; ours is below.
    made = Celery("muniment", fixups=[], set_as_current=True)
    made.conf.update(
        # A host that nobody asks for: kombu would complain of its absence.
        broker_url="pgmq://localhost" if environment.broker_url == "pgmq://" else environment.broker_url,
        broker_transport_options=_transport(environment),
        broker_connection_timeout=5,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_default_queue="muniment",
        task_default_delivery_mode="transient",
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=True,
        task_time_limit=HARD_LIMIT_SECONDS,
        task_soft_time_limit=_SOFT_LIMIT_SECONDS,
        task_send_sent_event=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=4,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_proc_alive_timeout=30.0,
        enable_utc=True,
        timezone="UTC",
        beat_scheduler="config.celery:OneScheduler",
        beat_schedule_filename=str(environment.home / "beat"),
        beat_max_loop_interval=5,
        beat_schedule={
            name: {"task": name, "schedule": timedelta(seconds=every), "options": {"expires": max(every, 10.0)}}
            for name, every in PERIODIC.items()
        },
    )
    return made


_environment = Environment()
app = new_app(_environment)


# the doorbell ---------------------------------------------------------------------------------------------------------


class Doorbell:
    """Rings from a thread of its own, so that no write waits for a broker."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._wanted = threading.Event()
        self._pid = 0
        self._starting = threading.Lock()
        self._is_silent = False

    def ring(self) -> None:
        """Ask for a ring soon. Never waits, never raises."""
        if self._pid != os.getpid():
            self._start()
        self._wanted.set()

    def _start(self) -> None:
        with self._starting:
            # A thread does not survive a fork: each process has its own.
            if self._pid != os.getpid():
                self._wanted = threading.Event()
                threading.Thread(target=self._serve, args=(self._wanted,), name="doorbell", daemon=True).start()
                self._pid = os.getpid()

    def _serve(self, wanted: threading.Event) -> None:
        while True:
            wanted.wait()
            wanted.clear()
            time.sleep(RING_EVERY_SECONDS if self._rang() else _QUIET_AFTER_FAILURE_SECONDS)

    def _rang(self) -> bool:
        try:
            self._app.send_task(
                "memory.drain",
                expires=_STALE_SECONDS,
                retry=True,
                retry_policy={"max_retries": 1, "interval_start": 0},
            )
        except Exception as error:
            if not self._is_silent:
                self._is_silent = True
                _log.warning(
                    "the broker cannot be reached; beat finds what is due", extra={"exception": type(error).__name__}
                )
            return False
        self._is_silent = False
        return True


_doorbell = Doorbell(app)


def ring() -> None:
    """Tell the workers, soon, that work is due. Costs microseconds; without a broker nothing happens."""
    if is_configured():
        _doorbell.ring()


def is_configured() -> bool:
    """Whether this process knows a broker: pgmq over a private socket needs MUNIMENT_BROKER_DSN."""
    return _environment.broker_url.rstrip("/") != "pgmq:" or bool(_environment.broker_dsn)


# worker and beat ------------------------------------------------------------------------------------------------------


@signals.import_modules.connect(sender=app)
def _import_tasks(**_: Any) -> None:
    import django

    django.setup()
    for name in ("memory.tasks", "retention.tasks"):
        import_module(name)


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    # That somebody listens keeps Celery from setting up its own. Settings have set up ours.
    logging.getLogger("celery").setLevel(logging.WARNING)


@signals.celeryd_init.connect
def _show_no_locals(**_: Any) -> None:
    from celery.apps import worker

    # Celery's answer to SIGUSR1 prints every local variable.
    worker.cry = _stacks  # type: ignore[attr-defined]


def _stacks() -> str:
    frames = sys._current_frames().values()
    return "\n\n".join("".join(traceback.format_list(traceback.extract_stack(frame))) for frame in frames)


@signals.worker_init.connect
def _begin_only_if_fit(**_: Any) -> None:
    from tenants.fitness import refuse_unfit_role

    refuse_unfit_role()


@signals.worker_process_init.connect
def _begin_without_connections(**_: Any) -> None:
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        connection.connection = None


@signals.worker_shutdown.connect
def _end_for_certain(**_: Any) -> None:
    # At its exit the pool waits for a lock that a child of it may have taken along when it was killed.
    timer = threading.Timer(2.0, os._exit, [0])
    timer.daemon = True
    timer.start()


@signals.task_prerun.connect
@signals.task_postrun.connect
def _close_what_broke(task: Any = None, **_: Any) -> None:
    from django.db import close_old_connections

    if task is None or not task.request.is_eager:
        close_old_connections()


class OneScheduler(PersistentScheduler):
    """Celery's scheduler, which runs only while it holds the lock that one beat a database can hold."""

    _began = False

    def setup_schedule(self) -> None:
        if OneScheduler._began:
            # Told to end while it was beginning: Celery makes a second scheduler, only to store what it does not know yet.
            raise SystemExit(0)
        OneScheduler._began = True
        from tenants.beat import BeatLock
        from tenants.fitness import refuse_unfit_role

        refuse_unfit_role()
        self._lock = BeatLock()
        self._claim(patience=5.0)
        super().setup_schedule()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due. Ends the process when the lock is another's now."""
        if not self._lock.is_held():
            self._claim(patience=60.0)
        return float(super().tick(*args, **kwargs))

    def _claim(self, *, patience: float) -> None:
        from django.db import Error

        from tenants.beat import beat_is_alive

        # A beat that was killed holds its lock until the server notices.
        until = time.monotonic() + patience
        while not self._lock.claim():
            if time.monotonic() > until:
                try:
                    reason = "another beat runs on this database" if beat_is_alive() else "no lock to be had"
                except Error:
                    reason = "the database of DATABASE_URL does not answer"
                _end(f"{reason}; this beat ends")
            time.sleep(0.25)


def _end(line: str) -> NoReturn:
    sys.stderr.write(f"muniment: {line}\n")
    raise SystemExit(3)
