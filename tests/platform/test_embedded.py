"""The embedded server, without Django. Starts are few: each costs up to a second."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from config.embedded import SETTINGS, Embedded, Urls

ROOT = Path(__file__).resolve().parent.parent.parent


def socket_folder(urls: Urls) -> Path:
    return Path(parse_qs(urlsplit(urls.app).query)["host"][0])


def server_processes(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name"]):
        try:
            if process.info["name"] == "postgres" and process.cwd() == str(home / "pg"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def children_of_others(processes: list[psutil.Process]) -> set[int]:
    """The processes that none of the others has forked."""
    pids = {process.pid for process in processes}
    return {process.pid for process in processes if process.is_running() and process.ppid() not in pids}


def postmaster(home: Path) -> int:
    return int((home / "pg" / "postmaster.pid").read_text().splitlines()[0])


def ask(url: str, sql: str) -> object:
    with psycopg.connect(url) as session:
        row = session.execute(sql.encode()).fetchone()
        return row[0] if row else None


def starter_of(home: Path) -> "subprocess.Popen[str]":
    """A process that starts the server, prints a URL, and ends (and the server with it) when it is killed."""
    code = """if True:
        import sys
        from pathlib import Path
        from config.embedded import Embedded
        print(Embedded(Path(sys.argv[1])).start().app, flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", code, str(home)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture
def server(home: Path) -> Iterator[Embedded]:
    """The module's one data folder; a test finds the server running and may leave it as it likes."""
    embedded = Embedded(home)
    embedded.start()
    yield embedded
    embedded.stop()


def test_every_role_logs_in_over_a_private_socket_and_none_over_a_network(server: Embedded) -> None:
    urls = server.start()
    for url, user in (
        (urls.owner, "muniment_owner"),
        (urls.app, "muniment_app"),
        (urls.broker, "muniment_broker"),
        (urls.superuser, "postgres"),
    ):
        assert ask(url, "SELECT session_user || '@' || current_database()") == f"{user}@muniment"
    assert stat.S_IMODE(socket_folder(urls).stat().st_mode) == 0o700
    assert ask(urls.app, "SELECT inet_server_addr()") is None
    assert ask(urls.superuser, "SHOW listen_addresses") == ""
    assert ask(urls.superuser, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'muniment'") == (
        "muniment_owner"
    )


def test_the_settings_that_keep_values_out_of_the_log_are_in_force(server: Embedded) -> None:
    urls = server.start()
    for name, wanted in {**SETTINGS, "data_checksums": "on", "server_encoding": "UTF8"}.items():
        assert ask(urls.superuser, f"SHOW {name}") == wanted.rstrip("\n"), name
    with psycopg.connect(urls.superuser) as session:
        session.execute("CREATE TEMP TABLE t (v text CHECK (v = 'never'))")
        with pytest.raises(psycopg.Error):
            session.execute("INSERT INTO t VALUES ('canary-7319')")
    assert "canary-7319" not in server.log.read_text()


def test_the_queue_belongs_to_the_broker_and_names_its_version(server: Embedded) -> None:
    urls = server.start()
    comment = ask(urls.broker, "SELECT obj_description('pgmq'::regnamespace, 'pg_namespace')")
    assert str(comment).startswith("pgmq ")
    owners = "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgmq'::regnamespace AND relowner <> '{}'::regrole"
    assert ask(urls.superuser, owners.format("muniment_broker")) == 0
    ask(urls.broker, "SELECT pgmq.create('trial')")
    assert ask(urls.broker, "SELECT pgmq.send('trial', '{}')") == 1


def test_text_is_lowered_and_split_by_unicode_rules(server: Embedded) -> None:
    urls = server.start()
    assert ask(urls.app, "SELECT upper('ünï') || lower('МИР')") == "ÜNÏмир"


def test_a_second_start_adopts_the_server_and_either_may_stop_it(server: Embedded, home: Path) -> None:
    before = postmaster(home)
    another = Embedded(home)
    assert another.start() == server.start()
    assert postmaster(home) == before
    another.stop()
    assert not server.is_running()
    assert not server_processes(home)


def test_a_killed_server_recovers_what_was_committed(server: Embedded, home: Path) -> None:
    urls = server.start()
    with psycopg.connect(urls.superuser) as session:
        session.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (41)")
    os.kill(postmaster(home), signal.SIGKILL)
    urls = server.start()
    assert ask(urls.superuser, "SELECT n FROM kept") == 41


def test_a_stale_pid_file_that_names_a_living_stranger_does_not_bar_the_start(server: Embedded, home: Path) -> None:
    server.stop()
    pid_file = home / "pg" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{home / 'pg'}\n1\n5432\n{home / 'run'}\n\n 1 1\nready   \n")
    assert not server.is_running()
    server.start()
    assert postmaster(home) != os.getpid()


def test_starters_at_once_share_one_server(home: Path) -> None:
    starters = [starter_of(home) for _ in range(3)]
    try:
        lines = {starter.stdout.readline() for starter in starters if starter.stdout}
        assert len(lines) == 1
        assert "muniment_app" in lines.pop()
        assert children_of_others(server_processes(home)) == {postmaster(home)}
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: parent death signals")
def test_the_server_ends_cleanly_when_its_starter_is_killed(home: Path) -> None:
    starter = starter_of(home)
    assert starter.stdout is not None
    assert "muniment_app" in starter.stdout.readline()
    starter.kill()
    starter.communicate()
    deadline = time.monotonic() + 5
    while server_processes(home) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not server_processes(home)
    assert not (home / "pg" / "postmaster.pid").exists()


def test_two_homes_run_side_by_side_and_a_long_path_gets_a_short_socket(
    server: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not below `tmp_path`, which may itself be too long for a socket.
    short = Path(tempfile.mkdtemp(prefix="m-", dir="/tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(short))
    far = Embedded(tmp_path / ("long, with 'quotes' " + "x" * 100) / "home")
    urls = far.start()
    try:
        assert socket_folder(urls).parent == short
        assert stat.S_IMODE(socket_folder(urls).stat().st_mode) == 0o700
        assert ask(urls.app, "SELECT system_identifier FROM pg_control_system()") != ask(
            server.start().app, "SELECT system_identifier FROM pg_control_system()"
        )
    finally:
        far.stop()
    assert server.is_running()
    assert not far.is_running()
    assert not list(short.iterdir())
    short.rmdir()
