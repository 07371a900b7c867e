"""The application behind a socket, in threads of the test's own process."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


class _Quiet(WSGIRequestHandler):
    # A browser opens connections ahead of need: an idle one gives its thread back.
    timeout = 5

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(TimeoutError, ConnectionError):
            super().handle()


class _Pooled(WSGIServer):
    """As many threads as the browser opens connections: each keeps one connection to the database."""

    request_queue_size = 64

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(8, "browser-site")
        super().__init__(("127.0.0.1", 0), _Quiet)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.pool.submit(self._answer, request, client_address)

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)


@dataclass(frozen=True)
class Site:
    """Where the application answers."""

    url: str


def _leave_the_database() -> None:
    from django.db import connection

    connection.close()


@contextmanager
def serving() -> Iterator[Site]:
    """Serve until the end of the block, and leave no connection behind."""
    from config.wsgi import application

    with _Pooled() as server:
        server.set_app(application)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
            ready = threading.Barrier(8, timeout=20)

            def leave() -> None:
                ready.wait()
                _leave_the_database()

            with suppress(threading.BrokenBarrierError):
                for done in [server.pool.submit(leave) for _ in range(8)]:
                    done.result()
            server.pool.shutdown()
