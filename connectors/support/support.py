"""The catalogue of a folder as a process needs it: read again whenever one of its files has changed, and asked about the release
that runs here."""

import threading
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import structlog

from connectors.support.capabilities import CAPABILITIES, REPLACEMENT, Capability
from connectors.support.catalogue import STATEMENTS, TRUSTED, Catalogue, observations, trusted_keys
from connectors.support.rows import CapabilityRow, row_of, rows_of
from connectors.support.statement import ExactTuple
from streams.clock import now_us
from streams.errors import Misconfigured
from streams.files import require_own
from streams.settings import Settings

_log = structlog.get_logger(__name__)
_DAY_S: Final = 86_400
_Stamp = tuple[tuple[int, int, int] | None, ...]


def running_release() -> str:
    """Of the installed distribution; a checkout that is only on the path has none."""
    try:
        return version("session-streams")
    except PackageNotFoundError:
        return "0+checkout"


class Support:
    """Thread-safe. Every method may read and verify the whole file where it has changed: not for an event loop."""

    def __init__(self, settings: Settings, *, release: str | None = None, clock: Callable[[], int] = now_us) -> None:
        folder = settings.support_path
        self._statements, self._trusted = folder / STATEMENTS, folder / TRUSTED
        self.release = release or running_release()
        self.max_age_s = settings.support_days * _DAY_S
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._catalogue = Catalogue()

    def rows(self) -> list[CapabilityRow]:
        return list(rows_of(self.catalogue(), self.release, self._clock(), self.max_age_s))

    def row(self, capability: Capability, exact: ExactTuple) -> CapabilityRow:
        return row_of(self.catalogue(), capability, exact, self.release, self._clock(), self.max_age_s)

    def verification_for(self, exact: ExactTuple) -> tuple[str, int] | None:
        """What proves that a ready attempt may be replaced on exactly this tuple: the digest of the signed statement, and when it
        was observed (microseconds). None where nothing does now, or where another release runs here."""
        if exact.release != self.release:
            return None
        found = self.catalogue().current(CAPABILITIES[REPLACEMENT], exact, self._clock(), self.max_age_s)
        return None if found is None else (found.digest, found.observed_us)

    def catalogue(self) -> Catalogue:
        with self._lock:
            stamp = tuple(map(_stamp_of, (self._statements, self._trusted)))
            if stamp != self._stamp:
                # The stamp is older than what is read now, so a change in between is seen the next time.
                self._catalogue = self._read()
                self._stamp = stamp
            return self._catalogue

    def _read(self) -> Catalogue:
        try:
            if self._statements.exists():
                # Who may change it cannot add to it, but can take a failure away.
                require_own(self._statements)
            found, ignored = observations(self._statements, trusted_keys(self._trusted))
        except (OSError, Misconfigured) as error:
            _log.error("support_unreadable", reason=str(error))
            return Catalogue()
        stale = sum(self._clock() - each.observed_us >= self.max_age_s * 1_000_000 for each in found)
        if ignored or stale:
            reasons = dict(Counter(each.reason for each in ignored))
            _log.warning("support_statements_ignored", stale=stale, reasons=reasons, first_line=ignored[0].line if ignored else None)
        return Catalogue(found)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
