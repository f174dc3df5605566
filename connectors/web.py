"""Runs an ASGI application: the only place that knows uvicorn.

The socket is bound before anything else starts, so that a role knows its own address (and may advertise it) with port 0
too, and an address in use is found out at once. The server has a thread and a loop of its own; signals stay with the
main thread.
"""

import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvicorn

from streams.errors import Fatal, Misconfigured

Application = Callable[..., Awaitable[None]]

_KEEP_ALIVE_S: Final = 75
_GRACE_S: Final = 5
_BACKLOG: Final = 2048


class WebServer:
    """One application on one address. `start` returns when it answers; `stop` lets open requests end, for a moment."""

    def __init__(
        self, application: Application, host: str, port: int, *, name: str, on_end: Callable[[], object] | None = None, **options: Any
    ) -> None:
        """`options` go to uvicorn.Config; `on_end` is called if the server ends without `stop`.

        Raises `Misconfigured` if the address cannot be had.
        """
        self._socket = _bound(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self.name = name
        self.failure: BaseException | None = None
        self._on_end = on_end
        settings: dict[str, Any] = {
            "loop": "uvloop",
            "http": "httptools",
            "ws": "none",
            "lifespan": "on",
            "access_log": False,
            "log_config": None,
            "server_header": False,
            # Nobody looks at a caller's address.
            "proxy_headers": False,
            "timeout_keep_alive": _KEEP_ALIVE_S,
            "timeout_graceful_shutdown": _GRACE_S,
            "backlog": _BACKLOG,
        }
        self._server = uvicorn.Server(uvicorn.Config(application, **{**settings, **options}))
        self._thread = threading.Thread(target=self._run, name=f"web-{name}", daemon=True)

    @property
    def running(self) -> bool:
        return self._thread.is_alive() and self._server.started

    def start(self, timeout_s: float = 30) -> None:
        """Raises `Fatal` if the application does not start up."""
        self._thread.start()
        waited_s, step_s = 0.0, 0.01
        while not self._server.started:
            self._thread.join(step_s)
            waited_s += step_s
            if not self._thread.is_alive() or waited_s > timeout_s:
                self.stop()
                raise Fatal(f"{self.name}: the server did not start: {self.failure}")

    def check(self) -> None:
        """Raises `Fatal` if the server ended by itself."""
        if not self.running:
            raise Fatal(f"{self.name}: the server ended: {self.failure}")

    def stop(self) -> None:
        """Idempotent."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_GRACE_S + 5)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # the thread ends either way; `start` and `serve` tell why
            self.failure = error
        if not self._server.should_exit and self._on_end is not None:
            self._on_end()


def serve(application: Application, host: str, port: int, stop: threading.Event, *, name: str, **options: Any) -> None:
    """Serves until `stop` is set. Raises `Misconfigured` (address in use) or `Fatal` (the server ended by itself)."""
    server = WebServer(application, host, port, name=name, on_end=stop.set, **options)
    server.start()
    try:
        stop.wait()
        server.check()
    finally:
        server.stop()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise Misconfigured(f"cannot listen on {host}:{port}: {error.strerror}") from error
    bound.set_inheritable(False)
    return bound
