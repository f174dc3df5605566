"""`up --taps`: a tap beside the roles, found at the printed address, started again when it dies."""

import os
from collections.abc import Callable

import pytest

from connectors.cli import taps
from streams.errors import Retriable
from tests.conftest import Broker
from tests.kafka.test_up import RunningUp, post, start_up
from tests.support.waiting import eventually

pytest.importorskip("faust", reason="the extra `taps` is not installed")
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

__all__ = ["start_up"]


def test_up_with_taps_counts_what_is_appended_also_after_the_tap_was_killed(start_up: Callable[..., RunningUp], broker: Broker) -> None:
    running = start_up("--taps", "--broker", broker.bootstrap, topic_prefix=f"up.{os.getpid()}.taps.")
    up = running.ready()
    post(up, "/v1/sessions", {}, "before")
    eventually(lambda: sessions(up["tap"]) == 1, timeout_s=60)
    killed = running.role("tap")
    assert killed is not None
    killed.kill()
    post(up, "/v1/sessions", {}, "after")
    eventually(lambda: sessions(up["tap"]) == 2, timeout_s=60)
    assert "tap was ended by SIGKILL; starting it again" in running.said()


def sessions(url: str) -> int | None:
    try:
        return taps.read_tap(url).sessions.live
    except Retriable:
        return None
