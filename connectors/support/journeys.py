"""Writes observations: what a test of a whole journey calls once it knows how the journey ended.

Nothing else makes evidence. A journey that fails says so too, since the last observation of a tuple is the one that counts.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from connectors.support.capabilities import CAPABILITIES
from connectors.support.catalogue import Unfit, require_fit
from connectors.support.statement import Evidence, ExactTuple, Statement, Unreadable, checked, signed_line
from streams.custody.signing import SigningKey
from streams.errors import Invalid

Outcome = Literal["passed", "failed"]


def record(
    path: Path,
    key: SigningKey,
    capability: str,
    exact: ExactTuple,
    outcome: Outcome,
    evidence: Evidence,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> str:
    """Appends one signed observation of the capability's journey, whole or not at all, and returns its digest.

    Raises `Invalid` where the catalogue would count it as nothing, and OSError.
    """
    known = CAPABILITIES.get(capability)
    if known is None:
        raise Invalid(f"capability: one of {', '.join(CAPABILITIES)}")
    try:
        statement = checked(
            Statement(capability=capability, journey=known.journey, outcome=outcome, tuple=exact, observed_at=clock(), evidence=evidence)
        )
        require_fit(statement)
    except (Unreadable, Unfit) as error:
        raise Invalid(f"observation: {error}") from error
    line, digest = signed_line(statement, key)
    _append(path, line)
    return digest


class Observed:
    """What a journey tells of itself while it runs."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.position: str | None = None


@contextmanager
def observing(path: Path, key: SigningKey, capability: str, exact: ExactTuple, *, test: str) -> Iterator[Observed]:
    """Records `passed` when the block ends, and `failed` where it raises. Raises what the block and `record` raise."""
    observed = Observed()

    def told(outcome: Outcome) -> None:
        evidence = Evidence(test=test, session_id=observed.session_id, position=observed.position)
        record(path, key, capability, exact, outcome, evidence)

    try:
        yield observed
    except Exception:
        told("failed")
        raise
    told("passed")


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                # Somebody was killed in the middle of a line: ours must not become a part of it.
                line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
