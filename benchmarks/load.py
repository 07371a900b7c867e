"""A lean HTTP client under load, in a process of its own: a job as JSON on stdin, what came of it as JSON on stdout.

Standard library only, one thread, one keep-alive connection for each of `connections`; it counts toward the machine's
cores like everything else. Requests are made before the clock starts.
"""

import json
import selectors
import socket
import sys
from time import perf_counter


def main() -> None:
    """Send all requests and say how long each took (seconds), how many had which status, and how long it took in all."""
    job = json.load(sys.stdin)
    waiting = [text.encode("latin-1") for text in reversed(job["requests"])]
    took: list[float] = []
    statuses: dict[str, int] = {}
    selector = selectors.DefaultSelector()
    sent: dict[socket.socket, float] = {}
    held: dict[socket.socket, bytes] = {}
    for _ in range(job["connections"]):
        connection = socket.create_connection(("127.0.0.1", job["port"]))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, connection)
        held[connection] = b""
    began = perf_counter()
    for connection in held:
        if waiting:
            sent[connection] = perf_counter()
            connection.sendall(waiting.pop())
    while sent:
        for key, _ in selector.select():
            connection = key.data
            received = connection.recv(65536)
            if not received:
                raise SystemExit("the server closed a connection")
            whole = held[connection] + received
            head, found, body = whole.partition(b"\r\n\r\n")
            if not found or not _is_whole(head, body):
                held[connection] = whole
                continue
            held[connection] = b""
            took.append(perf_counter() - sent.pop(connection))
            status = head[9:12].decode()
            statuses[status] = statuses.get(status, 0) + 1
            if waiting:
                sent[connection] = perf_counter()
                connection.sendall(waiting.pop())
    json.dump({"seconds": took, "statuses": statuses, "whole": perf_counter() - began}, sys.stdout)


def _is_whole(head: bytes, body: bytes) -> bool:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
        if name.lower() == b"transfer-encoding":
            return body.endswith(b"0\r\n\r\n")
    raise SystemExit("an answer without its length")


if __name__ == "__main__":
    main()
