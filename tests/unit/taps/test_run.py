"""The watch over a tap, and a command line without the extra."""

import importlib.util
import threading

import pytest

from connectors.cli import taps
from streams.errors import Fatal, Misconfigured
from streams.settings import Settings


def test_without_the_extra_the_role_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Misconfigured, match="make setup-taps"):
        taps.run_tap(Settings(), "127.0.0.1", 0, threading.Event())


def test_a_partition_that_stands_still_with_records_to_read_ends_the_tap() -> None:
    pytest.importorskip("faust", reason="the extra `taps` is not installed")
    from connectors.taps.run import STALLED_AFTER_S, Stall

    stall = Stall()
    stall.look({0}, {0: 10}, 0)
    stall.look({0}, {0: 11}, STALLED_AFTER_S)  # it got on
    stall.look(set(), {0: 11}, 3 * STALLED_AFTER_S)  # nothing to read
    stall.look({0}, {0: 11}, 4 * STALLED_AFTER_S)
    stall.look({0}, {0: 11}, 5 * STALLED_AFTER_S - 1)
    with pytest.raises(Fatal, match="partition 0 stands still at 11"):
        stall.look({0}, {0: 11}, 5 * STALLED_AFTER_S)
