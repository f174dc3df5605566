"""A provider for demonstrations and tests (`python -m connectors.runner.provider`).

It takes actions over HTTP, each once under its key, and counts what it has performed.

    POST /v1/actions           {"action": digest, "request": text}, Idempotency-Key    201 the receipt; the same one again
    GET  /v1/actions/<key>                                                             200 the receipt | 404

`forgetful`: a provider without identities, which performs whatever comes and cannot be asked.
"""

import argparse
import json
import re
import signal
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

DEFAULT_PORT: Final = 8720
_BODY_BYTES_MAX: Final = 16 * 1024 * 1024
_LOOKUP: Final = re.compile(r"/v1/actions/([\x21-\x7e]{1,255})")


class DemoProvider:
    """Serves within the block, on a free port where `port` is 0. Raises OSError where it is taken.

    `performed` counts by action; `keys` names the receipt of each identity.
    """

    def __init__(self, *, port: int = 0, forgetful: bool = False) -> None:
        self.forgetful = forgetful
        self.performed: Counter[str] = Counter()
        self.keys: dict[str, dict[str, Any]] = {}
        self.drop_answers = 0
        """So many of the next actions are performed, and their answers never leave."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="provider", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def perform(self, key: str, action: str) -> tuple[dict[str, Any], bool]:
        """The receipt, and whether its answer is to be dropped."""
        with self._lock:
            known = None if self.forgetful else self.keys.get(key)
            if known is None:
                self.performed[action] += 1
                known = self.keys[key] = {"receipt": f"{self.performed.total()}", "action": action}
            drop = self.drop_answers > 0
            self.drop_answers -= drop
            return known, drop

    def __enter__(self) -> "DemoProvider":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(provider: DemoProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            key = self.headers.get("idempotency-key", "")
            if length > _BODY_BYTES_MAX or self.path != "/v1/actions" or not key:
                self._answer(400, {})
                return
            receipt, drop = provider.perform(key, json.loads(self.rfile.read(length))["action"])
            if drop:
                self.close_connection = True
            else:
                self._answer(201, receipt)

        def do_GET(self) -> None:
            match = _LOOKUP.fullmatch(self.path)
            receipt = None if match is None or provider.forgetful else provider.keys.get(match[1])
            self._answer(404 if receipt is None else 200, receipt or {})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: whoever runs it counts."""

    return Handler


def main() -> None:
    """Serves until Ctrl-C or SIGTERM. What it has performed is forgotten with it."""
    parser = argparse.ArgumentParser(
        prog="python -m connectors.runner.provider",
        description="A provider for session-streams runner: takes every action, does nothing, and remembers each under its key.",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 takes a free one; default {DEFAULT_PORT}")
    parser.add_argument("--forgetful", action="store_true", help="as one without identities: nothing can be asked of it afterwards")
    given = parser.parse_args()
    try:
        provider = DemoProvider(port=given.port, forgetful=given.forgetful)
    except (OSError, OverflowError) as error:
        sys.exit(f"port {given.port}: {error}")
    # As Ctrl-C, which whoever starts it in the background may have told it to ignore.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with provider:
        print(f"a provider at {provider.url}; Ctrl-C stops it, and forgets what it has performed", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"{provider.performed.total()} actions performed")


if __name__ == "__main__":
    main()
