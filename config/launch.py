"""What starts, watches and stops a running copy: `python -m config.launch run|demo|stop|env`.

`run` sets everything up in MUNIMENT_HOME and serves until it is told to stop; `demo` ends after the demonstration.
Exit codes: 0 as asked, 1 something failed, 2 it could not begin and says why in one line.
Standard library only, but for the database; imports no Django.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036  Said in one line rather than by a traceback.
    sys.exit("muniment: Python 3.11 or newer is needed")

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from config.embedded import BROKER, Embedded, PlatformMissing, ServerFailed, Urls, die_with_parent, end_with_parent
from config.watchdog import Watchdog

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"

_READY_SECONDS = 30.0
# A Celery worker looks up from its queue every two seconds only. Work that is cut off is done again by design.
_GRACE_SECONDS = 3.0
_RESTARTS_A_MINUTE = 5
_LOG_BYTES = 8 * 1024 * 1024


class Refused(Exception):
    """It cannot begin; the message is one line for the operator."""


class Failed(Exception):
    """It began and could not go on; `log` is the file that says more."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The data folder: MUNIMENT_HOME, or `.muniment` beside the code."""
    named = environ.get("MUNIMENT_HOME")
    return Path(named).expanduser().absolute() if named else ROOT / ".muniment"


def environment_of_running(home: Path) -> dict[str, str] | None:
    """What a command needs to act on the copy that runs on `home`, with the owner's URL; None when none runs."""
    try:
        with open(home / "launch.lock", encoding="utf-8") as lock:
            if _lock(lock, fcntl.LOCK_SH):
                return None
        found = json.loads((home / "server.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {str(name): str(value) for name, value in found["environment"].items()}


@contextlib.contextmanager
def database_of_stopped(home: Path) -> Iterator[dict[str, str]]:
    """Start the embedded PostgreSQL of `home` alone, for a command; give what the command needs, and stop it after.

    Raises Refused where there is none to be had, and where a copy runs.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(home / "launch.lock", "a+", encoding="utf-8") as lock:
        if not _lock(lock, fcntl.LOCK_EX):
            raise Refused(f"a copy runs on {home}: `make stop` stops it")
        embedded = Embedded(home)
        try:
            urls = embedded.start()
        except PlatformMissing as missing:
            raise Refused(f"no embedded PostgreSQL: {missing}; set DATABASE_URL and MUNIMENT_BACKUP_URL") from None
        except ServerFailed as failure:
            raise Refused(str(failure)) from None
        try:
            yield {
                "DATABASE_URL": urls.app,
                "MUNIMENT_OWNER_URL": urls.owner,
                "MUNIMENT_BACKUP_URL": urls.superuser,
                "MUNIMENT_HOME": str(home),
                "MUNIMENT_SECRET_FILE": str(_secret(home)),
            }
        finally:
            embedded.stop()


class Copy:
    """One running copy on one data folder: the database, web, worker and beat.

    Everything it starts ends with it, also when it is killed.
    """

    def __init__(self, home: Path, port: int, environ: Mapping[str, str]) -> None:
        self.home = home
        self.port = port
        self.logs = home / "log"
        self._outer = dict(environ)
        self._embedded: Embedded | None = None
        self._listener: socket.socket | None = None
        self._children: list[Child] = []
        self._watchdog: Watchdog | None = None
        self._database_ends: deque[float] = deque()
        self._environment: dict[str, str] = {}
        self._owner_url = ""
        self._backup_url = ""
        self._stopping = threading.Event()

    def serve(self, *, demo_only: bool) -> int:
        """Set up, start, demonstrate, and serve until stopped; return the exit code."""
        with self._claimed():
            self._heed_signals()
            try:
                return self._served(demo_only)
            except Failed as failure:
                if self._stopping.is_set():
                    return 1 if demo_only else 0
                say(str(failure))
                if failure.log is not None:
                    print_tail(failure.log)
                return 1
            finally:
                self._stopping.set()
                self._stop()

    # Before anything is started

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Hold the data folder and the port."""
        try:
            made = not self.home.exists()
            self.home.mkdir(parents=True, exist_ok=True)
            if made:
                self.home.chmod(0o700)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            probe = self.home / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
            lock = open(self.home / "launch.lock", "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else "not usable"
            raise Refused(f"the folder {self.home} cannot be written to ({reason}); set MUNIMENT_HOME") from None
        patience = time.monotonic() + 10
        with lock:
            while not _lock(lock, fcntl.LOCK_EX):
                lock.seek(0)
                holder = lock.read().strip()
                if holder.isdigit() and not _lives(int(holder)) and time.monotonic() < patience:
                    time.sleep(0.05)  # it was killed, and its watchdog is still tidying up
                    continue
                raise Refused(
                    f"another copy runs on {self.home} already (process {holder}); set MUNIMENT_HOME for a second"
                )
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    listener.bind((HOST, self.port))
                except OSError:
                    raise Refused(f"port {self.port} on {HOST} is taken; set MUNIMENT_PORT to another") from None
                # Held from here on and handed to the web server: nobody else can take it in between.
                self._listener = listener
                self._watchdog = Watchdog(close=[listener.fileno()])
                try:
                    yield
                finally:
                    (self.home / "server.json").unlink(missing_ok=True)
                    self._watchdog.dismiss()

    def _heed_signals(self) -> None:
        def stop(_number: int, _frame: Any) -> None:
            self._stopping.set()

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asks to survive its terminal
            signal.signal(signal.SIGHUP, stop)

    # The way up

    def _served(self, demo_only: bool) -> int:
        for log in self.logs.glob("*.log"):
            if log.stat().st_size > _LOG_BYTES:
                log.replace(log.with_suffix(".log.1"))
        self._environment = self._set_up_database()
        self._refuse_half_restored()
        self._environment["MUNIMENT_SECRET_FILE"] = str(_secret(self.home))
        self._write_server_file()
        self._once("migrate", ["manage.py", "migrate", "--noinput", "--verbosity", "0"], owner=True)
        self._start_children()
        self._wait_until_ready()
        code = self._demonstrate(ends=demo_only)
        if demo_only or self._stopping.is_set():
            return code
        if code != 0:
            raise Failed(f"the demonstration ended with code {code}")
        self._analyse()
        say(f"serving http://{HOST}:{self.port}; logs in {self.logs}; Ctrl-C stops it")
        self._watch()
        return 0

    def _set_up_database(self) -> dict[str, str]:
        """Start the embedded server, or take the one named in the environment; return the children's environment."""
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        outer = self._outer
        environment = {
            name: value for name, value in outer.items() if name not in {"VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH"}
        }
        for name in ("MUNIMENT_OWNER_URL", "MUNIMENT_BACKUP_URL", "MUNIMENT_ROLE"):
            environment.pop(name, None)
        if outer.get("DATABASE_URL") and outer.get("MUNIMENT_OWNER_URL"):
            say("using the PostgreSQL of DATABASE_URL")
            app, self._owner_url = outer["DATABASE_URL"], outer["MUNIMENT_OWNER_URL"]
            broker = outer.get("MUNIMENT_BROKER_DSN") or make_conninfo(app, user=BROKER)
            if not outer.get("MUNIMENT_BROKER_URL", "pgmq://").startswith("pgmq"):
                broker = ""
            else:
                self._install_queue(broker)
        else:
            if outer.get("DATABASE_URL") or outer.get("MUNIMENT_OWNER_URL"):
                raise Refused("set both DATABASE_URL and MUNIMENT_OWNER_URL, or neither for the embedded PostgreSQL")
            urls = self._start_embedded()
            app, self._owner_url, broker = urls.app, urls.owner, urls.broker
            self._backup_url = urls.superuser
            # libpq would let these overrule what the URLs leave open.
            environment = {name: value for name, value in environment.items() if not name.startswith("PG")}
        environment |= {
            "DATABASE_URL": app,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "MUNIMENT_HOME": str(self.home),
            "MUNIMENT_PORT": str(self.port),
            "MUNIMENT_BROKER_URL": outer.get("MUNIMENT_BROKER_URL") or "pgmq://",
            "PYTHONUNBUFFERED": "1",
        }
        if broker:
            # As keywords: of a URL pgmq's client would read the host part only, which a socket has not.
            environment["MUNIMENT_BROKER_DSN"] = make_conninfo("", **conninfo_to_dict(broker))
        return environment

    def _start_embedded(self) -> Urls:
        self._embedded = Embedded(self.home)
        if not self._embedded.data.exists():
            say(f"making a PostgreSQL of our own in {self.home}")
        try:
            return self._embedded.start(give_up=self._stopping.is_set)
        except PlatformMissing as missing:
            raise Refused(
                f"no embedded PostgreSQL: {missing}; set DATABASE_URL and MUNIMENT_OWNER_URL instead"
            ) from None
        except ServerFailed as failure:
            raise Failed(str(failure), self._embedded.log) from None

    def _refuse_half_restored(self) -> None:
        import psycopg

        with psycopg.connect(self._owner_url, autocommit=True) as session:
            row = session.execute("SELECT to_regnamespace('restore_under_way') IS NOT NULL").fetchone()
        if row and row[0]:
            raise Refused("a restore of this database is not finished; run `manage.py restore` again")

    def _install_queue(self, broker: str) -> None:
        import psycopg

        from config.embedded import install_queue

        try:
            install_queue(broker)
        except psycopg.Error:
            raise Refused(
                f"{BROKER} cannot log in or has no schema pgmq of its own; run `manage.py doctor --bootstrap-sql` as"
                " superuser, and set MUNIMENT_BROKER_DSN (or MUNIMENT_BROKER_URL for another broker)"
            ) from None

    def _write_server_file(self) -> None:
        """Let manage.py find this copy. Readable by its owner only: it holds connection URLs."""
        names = (
            "DATABASE_URL",
            "MUNIMENT_BROKER_DSN",
            "MUNIMENT_BROKER_URL",
            "MUNIMENT_HOME",
            "MUNIMENT_PORT",
        )
        shown = {
            name: self._environment[name] for name in (*names, "MUNIMENT_SECRET_FILE") if name in self._environment
        }
        shown |= {"MUNIMENT_OWNER_URL": self._owner_url} | (
            {"MUNIMENT_BACKUP_URL": self._backup_url} if self._backup_url else {}
        )
        content = {"pid": os.getpid(), "environment": shown}
        _write_private(self.home / "server.json", json.dumps(content, indent=1) + "\n")

    def _once(self, name: str, command: list[str], *, owner: bool = False) -> None:
        """Run a command to its end, its output in the log of that name; Failed unless it exits 0."""
        log = self.logs / f"{name}.log"
        environment = dict(self._environment)
        if owner:
            environment |= {"MUNIMENT_OWNER_URL": self._owner_url, "MUNIMENT_ROLE": "owner"}
        with _private_log(log) as output:
            code = self._run_to_end(command, environment, output)
        if code != 0:
            raise Failed(f"{name} ended with code {code}", log)

    def _run_to_end(self, command: list[str], environment: dict[str, str], output: IO[bytes] | None) -> int:
        assert self._watchdog is not None
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self._watchdog.add(process.pid)
        try:
            while process.poll() is None:
                if self._stopping.wait(0.03):
                    raise Failed("stopped")
            return process.returncode
        finally:
            _end_group(process, self._watchdog)

    def _start_children(self) -> None:
        assert self._listener is not None
        assert self._watchdog is not None
        watchdog = self._watchdog
        fd = self._listener.fileno()
        run = self.home / "beat"
        celery = ["-m", "celery", "--quiet", "-A", "config", "--workdir", str(ROOT)]
        self._children = [
            Child(
                watchdog,
                "web",
                [
                    "-m",
                    "gunicorn",
                    "--config",
                    "python:config.gunicorn",
                    "--bind",
                    f"fd://{fd}",
                    "config.wsgi",
                ],
                fds=(fd,),
            ),
            Child(
                watchdog,
                "worker",
                [
                    *celery,
                    "worker",
                    # One process: a forked child that is killed while it holds the pool's lock would leave the rest
                    # waiting for ever. A worker that is killed is started again, and its work is done again.
                    "--pool=solo",
                    "--loglevel=WARNING",
                    "--without-gossip",
                    "--without-mingle",
                    "--without-heartbeat",
                ],
            ),
            Child(watchdog, "beat", [*celery, "beat", f"--schedule={run}", "--pidfile=", "--loglevel=WARNING"]),
        ]
        for child in self._children:
            child.start(self._environment, self.logs)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers_ready():
            if self._stopping.wait(0.1):
                raise Failed("stopped")
            self._tend()
            if time.monotonic() > deadline:
                raise Failed(f"the web server was not ready within {_READY_SECONDS:.0f} s", self.logs / "web.log")

    def _answers_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _demonstrate(self, *, ends: bool) -> int:
        environment = self._environment | ({"MUNIMENT_DEMO_ENDS": "1"} if ends else {})
        return self._run_to_end(["-m", "config.demo"], environment, None)

    def _analyse(self) -> None:
        """Give the planner figures about what was just written, rather than wait for autovacuum."""
        import psycopg

        with psycopg.connect(self._owner_url, autocommit=True) as session:
            session.execute("ANALYZE (SKIP_LOCKED)")

    # While it runs

    def _watch(self) -> None:
        while not self._stopping.wait(0.2):
            self._tend()

    def _tend(self) -> None:
        """Start again what has ended; Failed when it keeps ending."""
        if self._embedded is not None and not self._embedded.is_running() and not self._stopping.is_set():
            if _too_often(self._database_ends):
                raise Failed("PostgreSQL keeps ending", self._embedded.log)
            say("PostgreSQL ended; starting it again")
            try:
                self._start_embedded()
            except Failed as failure:
                # It may have ended once more while it recovered: the next turn tries again, so long as not too often.
                say(str(failure))
                return
        for child in self._children:
            child.tend(self._environment, self.logs)

    def _stop(self) -> None:
        for child in self._children:
            child.ask_to_end(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        while any(child.is_alive() for child in self._children) and time.monotonic() < deadline:
            time.sleep(0.03)
        for child in self._children:
            child.end()
        if self._embedded is not None:
            try:
                self._embedded.stop(timeout=3.0)
            except ServerFailed as failure:
                say(str(failure))


class Child:
    """One supervised process in a group of its own, its output in `<name>.log`."""

    def __init__(
        self,
        watchdog: Watchdog,
        name: str,
        arguments: list[str],
        *,
        fds: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self._watchdog = watchdog
        self._arguments = arguments
        self._fds = fds
        self._process: subprocess.Popen[bytes] | None = None
        self._ends: deque[float] = deque()
        self._start_at: float | None = None

    def start(self, environment: dict[str, str], logs: Path) -> None:
        """Start it."""
        with _private_log(logs / f"{self.name}.log") as output:
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=self._fds,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        self._watchdog.add(self._process.pid)
        self._start_at = None

    def tend(self, environment: dict[str, str], logs: Path) -> None:
        """Start it again, later each time, if it has ended; Failed when that happened too often in a minute."""
        if self._process is None or self._process.poll() is None:
            return
        now = time.monotonic()
        if self._start_at is None:
            _end_group(self._process, self._watchdog)  # what it may have left behind
            if _too_often(self._ends):
                raise Failed(f"{self.name} keeps ending", logs / f"{self.name}.log")
            self._start_at = now + 0.25 * 2 ** (len(self._ends) - 1)
            say(f"{self.name} ended with code {self._process.returncode}; starting it again")
        if now >= self._start_at:
            self.start(environment, logs)

    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.poll() is None

    def ask_to_end(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """End it and all of its group at once."""
        if self._process is not None:
            _end_group(self._process, self._watchdog)


def _too_often(ends: deque[float]) -> bool:
    """Note an end now; whether that makes too many within a minute."""
    now = time.monotonic()
    ends.append(now)
    while ends[0] < now - 60:
        ends.popleft()
    return len(ends) > _RESTARTS_A_MINUTE


def stop(home: Path) -> int:
    """Stop the copy that runs on `home` and whatever a killed one has left."""
    try:
        lock = open(home / "launch.lock", encoding="utf-8")  # noqa: SIM115
    except OSError:
        say(f"nothing runs on {home}")
        return 0
    with lock:
        if not _lock(lock, fcntl.LOCK_SH):
            pid = int(lock.read().strip())
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 15
            while not _lock(lock, fcntl.LOCK_SH):
                if time.monotonic() > deadline:
                    say(f"process {pid} does not stop")
                    return 1
                time.sleep(0.05)
        Embedded(home).stop()
    say("stopped")
    return 0


def say(line: str) -> None:
    """One line to the operator; where nobody can read it any more it is dropped."""
    with contextlib.suppress(OSError, ValueError):
        print(f"muniment: {line}", flush=True)


def print_tail(log: Path, lines: int = 15) -> None:
    """Print the end of a log."""
    with contextlib.suppress(OSError):
        say(f"the end of {log}:")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
            print(f"    {line}", flush=True)


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end_group(process: subprocess.Popen[bytes], watchdog: Watchdog) -> None:
    # Its group outlives it where it has left processes behind.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    watchdog.remove(process.pid)


def _private_log(log: Path) -> IO[bytes]:
    return open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def _write_private(file: Path, content: str) -> None:
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    fresh.replace(file)


def _secret(home: Path) -> Path:
    """The file with Django's secret key, made once."""
    file = home / "secret"
    if not file.exists():
        _write_private(file, secrets.token_urlsafe(50) + "\n")
    return file


def _port(environ: Mapping[str, str]) -> int:
    named = environ.get("MUNIMENT_PORT") or "8000"
    if not named.isascii() or not named.isdigit() or not 0 < int(named) < 65536:
        raise Refused("MUNIMENT_PORT is not a port number")
    return int(named)


def _check_model() -> None:
    """Refuse to begin where a model is to read episodes and cannot. Imports nothing of a provider's."""
    if not os.environ.get("MUNIMENT_EXTRACTOR_MODEL"):
        return
    from config.environment import Environment
    from memory.extraction.model import HOW_TO_INSTALL, NotConfigured

    try:
        configuration = Environment().extractor()
    except (NotConfigured, OSError) as error:
        wrong = (
            "MUNIMENT_EXTRACTOR_KEY_FILE cannot be read"
            if isinstance(error, OSError)
            else f"MUNIMENT_EXTRACTOR_MODEL: {error}"
        )
        raise Refused(wrong) from None
    if configuration is not None and not configuration.named.is_installed:
        raise Refused(HOW_TO_INSTALL)


def main(arguments: list[str]) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m config.launch", description="Start, show and stop a copy of Muniment."
    )
    parser.add_argument("command", choices=["run", "demo", "stop", "env"])
    parser.add_argument("--with-parent", action="store_true", help="stop when the process that started this one ends")
    chosen = parser.parse_args(arguments)
    home = home_folder()
    try:
        if chosen.command == "stop":
            return stop(home)
        if chosen.command == "env":
            found = environment_of_running(home)
            if found is None:
                raise Refused(f"nothing runs on {home}")
            for name, value in found.items():
                print(f"export {name}={shlex.quote(value)}")
            return 0
        if chosen.with_parent:
            end_with_parent(signal.SIGTERM)
        _check_model()
        return Copy(home, _port(os.environ), os.environ).serve(demo_only=chosen.command == "demo")
    except Refused as refused:
        print(f"muniment: {refused}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
