"""Deliveries of commands: a sample is reported on while all is well, and each once one has failed."""

from contextlib import closing
from functools import partial

from connectors.cli.ports import free_ports
from streams.errors import BrokerUnavailable, StreamsError
from streams.log.requests import CommandLog
from streams.settings import Settings
from tests.support.waiting import eventually

SESSION = "sess_" + "0" * 32


def test_deliveries_are_sampled_until_one_fails() -> None:
    (nobody,) = free_ports(1)
    told: dict[int, StreamsError | None] = {}
    with closing(CommandLog(Settings(bootstrap=f"127.0.0.1:{nobody}", request_timeout_s=0.2), "test")) as log:
        for number in range(3):
            log.send(b"x", SESSION, partial(told.__setitem__, number))
        eventually(lambda: bool(told))
        assert set(told) == {0}
        for number in range(3, 6):
            log.send(b"x", SESSION, partial(told.__setitem__, number))
        eventually(lambda: len(told) == 4)
    assert set(told) == {0, 3, 4, 5}
    assert all(isinstance(error, BrokerUnavailable) for error in told.values())
