"""That the suite's block of egress bites, here and in the processes that tests start, and lets local traffic through."""

import socket
import subprocess
import sys
import urllib.request

import pytest

from tests import egress_plugin

#: Addresses that are reserved for documentation: nobody answers there.
FAR = ("192.0.2.7", 9)


def reach() -> None:
    with socket.create_connection(FAR, timeout=5):
        pass


def reach_six() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        probe.connect(("2001:db8::7", 9))


def send_a_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.sendto(b"x", FAR)


@pytest.mark.parametrize(
    "attempt",
    [
        reach,
        reach_six,
        send_a_datagram,
        lambda: socket.getaddrinfo("example.org", 443),
        lambda: socket.gethostbyname("example.org"),
        lambda: urllib.request.urlopen("http://example.org/", timeout=5),
    ],
    ids=["connect", "connect-6", "datagram", "look-up", "old-look-up", "http"],
)
def test_what_would_leave_this_machine_is_refused(attempt) -> None:  # type: ignore[no-untyped-def]
    with egress_plugin.expected() as refused, pytest.raises(OSError, match="the suite runs without a network"):
        attempt()
    assert len(refused) == 1


def test_a_process_that_a_test_starts_is_bound_too() -> None:
    code = "import socket\ntry: socket.create_connection(('192.0.2.7', 9), 5)\nexcept OSError as error: print(error)"
    with egress_plugin.expected() as refused:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "the suite runs without a network" in done.stdout
    assert len(refused) == 1


def test_local_traffic_passes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port), timeout=5):
                server.accept()[0].close()
    one, other = socket.socketpair()
    with one, other:
        one.sendmsg([b"x"])
    assert socket.getaddrinfo(None, 0)
    assert socket.getaddrinfo("192.0.2.7", 9, flags=socket.AI_NUMERICHOST)
