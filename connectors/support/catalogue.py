"""The observations of a folder, verified and indexed: what has been seen of one exact tuple, and whether it still counts.

An observation counts while it is signed by a trusted key, is of the journey that its capability asks for, was the last one of its
capability and tuple, passed, and is neither too old nor ahead of the clock. Everything else is as if nobody had looked: a line
that counts as nothing is told with its number and a reason, and keeps no other one from counting.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from connectors.support.capabilities import CAPABILITIES, Capability
from connectors.support.statement import PAYLOAD_TYPE, ExactTuple, Statement, Unreadable, digest_of, statement_of
from streams.custody.signing import NotVerified, PublicKey, opened
from streams.errors import Misconfigured
from streams.files import read_own

STATEMENTS: Final = "statements.jsonl"
TRUSTED: Final = "trusted.json"
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a longer file the end is read: what was written last says how things are now."""
LINE_BYTES_MAX: Final = 16 * 1024
AHEAD_US: Final = 300_000_000
"""How far the clock of whoever looked may be ahead of ours."""
_TRUSTED_BYTES_MAX: Final = 256 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TrustedKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """The file: public keys by id."""

    keys: dict[str, PublicKey] = {}


class Observation(Struct, frozen=True):
    """A statement under a trusted signature. `digest` is that of the bytes that were signed; `observed_us` is in microseconds."""

    statement: Statement
    digest: str
    key_id: str
    observed_us: int


class Ignored(NamedTuple):
    """A line that counts as nothing: why, and its number from 1 (within what was read of the file)."""

    line: int
    reason: str


class Judged(NamedTuple):
    """`current` where it counts. Else `reason`: evidence_missing, evidence_failed, evidence_stale, evidence_ahead or
    coordinates_missing."""

    current: Observation | None
    reason: str | None


class Catalogue:
    """Immutable. Times in microseconds since the epoch, UTC."""

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._latest: dict[tuple[str, ExactTuple], Observation] = {}
        self._proven: dict[tuple[str, ExactTuple], Observation] = {}
        for each in observations:
            capability = CAPABILITIES[each.statement.capability]
            exact = capability.coordinates(each.statement.tuple)
            if exact is not None:
                _keep_latest(self._latest, (capability.name, exact), each)
                if each.statement.outcome == "passed":
                    _keep_latest(self._proven, (capability.name, _whatever_release(exact)), each)

    def tuples(self, capability: Capability) -> list[ExactTuple]:
        """Those that anything trusted was seen of, in a fixed order."""
        found = [exact for name, exact in self._latest if name == capability.name]
        return sorted(found, key=lambda exact: tuple(value or "" for value in structs.astuple(exact)))

    def judged(self, capability: Capability, exact: ExactTuple, now: int, max_age_s: float) -> Judged:
        coordinates = capability.coordinates(exact)
        if coordinates is None:
            return Judged(None, "coordinates_missing")
        latest = self._latest.get((capability.name, coordinates))
        if latest is None:
            return Judged(None, "evidence_missing")
        if latest.statement.outcome != "passed":
            return Judged(None, "evidence_failed")
        if latest.observed_us > now + AHEAD_US:
            return Judged(None, "evidence_ahead")
        if now - latest.observed_us >= max_age_s * 1_000_000:
            return Judged(None, "evidence_stale")
        return Judged(latest, None)

    def current(self, capability: Capability, exact: ExactTuple, now: int, max_age_s: float) -> Observation | None:
        """What proves the capability on exactly this tuple, now; None where nothing does."""
        return self.judged(capability, exact, now, max_age_s).current

    def latest_proven_release(self, capability: Capability, exact: ExactTuple | None) -> str | None:
        """Of the last pass on these coordinates but for the release (on any, where none are given), however long ago."""
        if exact is None:
            found = [each for (name, _), each in self._proven.items() if name == capability.name]
            last = max(found, key=lambda each: each.observed_us, default=None)
        else:
            coordinates = capability.coordinates(exact)
            last = None if coordinates is None else self._proven.get((capability.name, _whatever_release(coordinates)))
        return None if last is None else last.statement.tuple.release


def observations(path: Path, trusted: Mapping[str, PublicKey]) -> tuple[list[Observation], list[Ignored]]:
    """What a file of lines holds, in their order, and what counts as nothing. A file that is not there is empty. Raises OSError."""
    found: list[Observation] = []
    ignored: list[Ignored] = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            found.append(_observation(line, trusted))
        except NotVerified as error:
            ignored.append(Ignored(number, error.reason))
        except Unreadable:
            ignored.append(Ignored(number, "statement.unreadable"))
        except Unfit as error:
            ignored.append(Ignored(number, str(error)))
    return found, ignored


def trusted_keys(path: Path) -> dict[str, PublicKey]:
    """By id; none where the file is not there. Raises `Misconfigured` (mode, contents) and OSError."""
    try:
        text = read_own(path, _TRUSTED_BYTES_MAX)
        keys = msgspec.json.decode(text, type=TrustedKeys).keys
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: {error}") from error
    renamed = [key_id for key_id, key in keys.items() if key.key_id != key_id]
    if renamed:
        raise Misconfigured(f"{path}: {renamed[0][:80]} is not the id of its key")
    return keys


class Unfit(Exception):
    """A statement that proves nothing: capability.unknown, journey.other or coordinates.missing."""


def require_fit(statement: Statement) -> Capability:
    """The capability that a statement is about. Raises `Unfit`."""
    capability = CAPABILITIES.get(statement.capability)
    if capability is None:
        raise Unfit("capability.unknown")
    if statement.journey != capability.journey:
        raise Unfit("journey.other")
    if capability.coordinates(statement.tuple) is None:
        raise Unfit("coordinates.missing")
    return capability


def _observation(line: bytes, trusted: Mapping[str, PublicKey]) -> Observation:
    if len(line) > LINE_BYTES_MAX:
        raise NotVerified("envelope.malformed")
    verified = opened(line, PAYLOAD_TYPE, trusted)
    statement = statement_of(verified.payload)
    require_fit(statement)
    observed_us = (statement.observed_at - _EPOCH) // timedelta(microseconds=1)
    return Observation(statement, digest_of(verified.payload), verified.key_id, observed_us)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - FILE_BYTES_MAX))
            if size > FILE_BYTES_MAX:
                file.readline()
            text = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return
    yield from (line for line in text.split(b"\n") if line.strip())


def _keep_latest(index: dict[tuple[str, ExactTuple], Observation], key: tuple[str, ExactTuple], each: Observation) -> None:
    known = index.get(key)
    if known is None or each.observed_us >= known.observed_us:
        index[key] = each


def _whatever_release(exact: ExactTuple) -> ExactTuple:
    return structs.replace(exact, release="any")
