"""Journeys as tests record them, and a folder of observations as a test of the catalogue fills it: keys, trust, lines."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from connectors.support.capabilities import REPLACEMENT
from connectors.support.catalogue import STATEMENTS, TRUSTED, TrustedKeys
from connectors.support.journeys import Observed, Outcome, observing, record
from connectors.support.statement import Evidence, ExactTuple
from connectors.support.support import running_release
from streams.custody.signing import SigningKey

RELEASE = "0.1.0"
KEY = "journeys.pem"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
LANE = ExactTuple(
    release=RELEASE, driver="docker@27", sandbox_provider_revision="local-3", policy="standard", execution_target="hosted",
    harness_revision="h-7", environment_revision="e-2",
)  # fmt: skip
"""Complete, so that it may be evidence for every capability."""


LOCAL = ExactTuple(
    release=running_release(), driver="tests", sandbox_provider_revision="none", policy="standard", execution_target="local",
    harness_revision="tests-1", environment_revision="tests-1",
)  # fmt: skip
"""What the tests of this repository run on: their own worker, on the machine at hand."""

Journey = Callable[[str], AbstractContextManager[Observed]]
"""Called with a capability: the block that follows is its journey, and is recorded with how it ended."""


def journey_of(folder: Path | None, test: str, exact: ExactTuple = LOCAL) -> Journey:
    """Records into `folder`, signed by the key that lies there; nowhere, where there is none."""

    @contextmanager
    def journey(capability: str) -> Iterator[Observed]:
        if folder is None:
            yield Observed()
            return
        with observing(folder / STATEMENTS, SigningKey.at(folder / KEY), capability, exact, test=test) as observed:
            try:
                yield observed
            except pytest.fail.Exception as failure:
                # A time-out too: to pytest it is no error, but the journey did not pass.
                raise AssertionError(str(failure)) from failure

    return journey


class SupportFolder:
    """`observe` records what a journey saw; times are given as their age in days before `NOON`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements, self.trusted = path / STATEMENTS, path / TRUSTED
        self.key = SigningKey.generate()
        self.trust(self.key)

    def trust(self, *keys: SigningKey) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.trusted.write_bytes(msgspec.json.encode(TrustedKeys({key.public.key_id: key.public for key in keys})))
        self.trusted.chmod(0o644)

    def observe(
        self, capability: str = REPLACEMENT, exact: ExactTuple = LANE, outcome: Outcome = "passed", *, days: float = 0,
        key: SigningKey | None = None, noon: datetime = NOON,
    ) -> str:  # fmt: skip
        evidence = Evidence(test="tests/kafka/test_journeys.py::test_it", position="sessions.commands:0:7")
        clock = noon - timedelta(days=days)
        return record(self.statements, key or self.key, capability, exact, outcome, evidence, clock=lambda: clock)

    def lines(self) -> list[bytes]:
        return self.statements.read_bytes().splitlines(keepends=True)

    def write(self, *lines: bytes) -> None:
        self.statements.write_bytes(b"".join(lines))
