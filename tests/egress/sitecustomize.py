"""No Python process of the suite reaches beyond this machine: connections and look-ups that would are refused, and noted.

Python runs a module of this name as it starts, wherever its folder is on the path: so it binds the processes that tests
start as well. An audit hook cannot be taken out again. Programs that are not Python (PostgreSQL, a browser) and libpq,
which tests point at local servers, are not bound by it.
"""

import os
import sys

#: The file that refused attempts are noted in, a line each; the suite fails where there is one at its end.
NOTED_IN = "EGRESS_NOTED_IN"

_CONNECTS = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_LOOKS_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"}


class EgressRefused(PermissionError):
    """Something tried to reach beyond this machine."""


def is_local(host: object) -> bool:
    """Return whether a host is this machine: no name, its own, loopback or unspecified."""
    import ipaddress
    import socket

    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if host is None or host in ("", "localhost", "localhost.localdomain", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_address(host: object) -> bool:
    """Return whether a host is an address in digits, for which nobody is asked."""
    import ipaddress

    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in _CONNECTS:
        address = arguments[1]
        # Unix sockets have a path, a kernel's own families an odd shape; a message on a connected socket has no address.
        if not isinstance(address, tuple) or not address or not isinstance(address[0], str | bytes | bytearray):
            return
        if is_local(address[0]):
            return
    elif event in _LOOKS_UP:
        asked = arguments[0]
        host = asked[0] if isinstance(asked, tuple) and asked else asked
        if is_local(host) or (is_address(host) and event != "socket.gethostbyaddr"):
            return
    else:
        return
    _note(event)
    raise EgressRefused(f"{event}: the suite runs without a network")


def _note(event: str) -> None:
    path = os.environ.get(NOTED_IN)
    if not path:
        return
    import traceback

    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_stack()[:-2]]
    told = " < ".join(reversed(frames[-6:]))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{event} {told}\n".encode())
    finally:
        os.close(descriptor)


if os.environ.get(NOTED_IN):
    sys.addaudithook(_refuse)
