"""The tap for the command line: its role, where its package is installed, and its tables for a person."""

import importlib.util
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.cli.console import emit_json, print_table
from streams.errors import Misconfigured, Retriable
from streams.settings import Settings

if TYPE_CHECKING:
    from connectors.taps.view import TapView

TAP_PORT: Final = 8710
"""Where people expect the tap."""
_TIMEOUT_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.2
_TOOLS_SHOWN: Final = 10
_MINUTES_SHOWN: Final = 5


def require_taps() -> None:
    """Raises `Misconfigured` where the extra is not installed."""
    if importlib.util.find_spec("faust") is None:
        raise Misconfigured("taps need the extra `taps`: run `make setup-taps`, or pip install 'session-streams[taps]'")


def run_tap(settings: Settings, host: str, port: int, stop: threading.Event) -> None:
    """The role. Raises what `connectors.taps.run.run_tap` raises, and `Misconfigured` where the extra is not installed."""
    require_taps()
    from connectors.taps.run import run_tap as run

    run(settings, host, port, stop)


def tap_url(host: str, port: int) -> str:
    return f"http://{host}:{port}/tap/"


def read_tap(url: str, *, minutes: int | None = None) -> "TapView":
    """What the tap counts. Raises `Retriable` where it does not answer (yet)."""
    from connectors.taps.view import TapView

    asked = url if minutes is None else f"{url}?minutes={minutes}"
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=TapView)
    except (urllib.error.URLError, OSError) as error:
        raise Retriable(f"{url} does not answer: {error}") from error


def wait_for_tap(url: str, *, events: int, timeout_s: float) -> "TapView":
    """What the tap counts once it has counted `events`, or what it has by the time-out. Raises `Retriable` where it never answers."""
    deadline = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= deadline
        try:
            view = read_tap(url)
        except Retriable:
            if late:
                raise
        else:
            if late or view.events >= events:
                return view
        time.sleep(_LOOK_EVERY_S)


def show_tap(view: "TapView", *, as_json: bool, padded: bool = False) -> None:
    """Counts, the busiest tools and the newest minutes, `padded` as for `print_table`; everything with `as_json`."""
    if as_json:
        emit_json(view)
        return
    print(f"{view.events:,} events of {view.sessions.seen:,} sessions, {view.sessions.live:,} of them live; the last at {view.accepted_at}")
    unread = ", ".join(f"{count} {reason}" for reason, count in view.unreadable.items())
    if unread:
        print(f"records that could not be read: {unread}")
    columns = ["minute", "events", "sessions", "tool calls", "tool errors"]
    print_table(
        columns,
        [
            [row.minute, str(row.events), str(row.sessions), str(row.tool_calls), str(row.tool_errors)]
            for row in view.minutes[:_MINUTES_SHOWN]
        ],
        padded=padded,
    )
    print_table(
        ["tool", "calls", "returned", "errors"],
        [[row.tool, str(row.calls), str(row.returned), str(row.errors)] for row in view.tools[:_TOOLS_SHOWN]],
        padded=padded,
    )
