"""Qualifications of targets for the import of capsules: issued by the catalogue, signed, and withdrawn.

A receipt says that the importer's driver was lately seen to do what an import needs, on this release: it rests on one observation, whose
digest is the revision of its catalogue entry, and ends when that grows too old. What was withdrawn stands in `withdrawn.json` beside the
observations, by the digest of its receipt.
"""

import base64
import fcntl
import os
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct, structs

from connectors.support.capabilities import CAPABILITIES
from connectors.support.catalogue import Observation
from connectors.support.support import Support
from streams.capsules import digests
from streams.capsules.model import (
    ALGORITHM,
    CATALOGUE_AUTHORITY,
    CHECKPOINT_IMPORT,
    QualificationReceipt,
    Signature,
    Target,
    moment_of,
)
from streams.custody.signers import Signers
from streams.errors import Invalid, Misconfigured
from streams.files import read_own, sync_directory

WITHDRAWN: Final = "withdrawn.json"
_CAPABILITY: Final = CAPABILITIES["capsule_import"]
_BYTES_MAX: Final = 4 * 1024 * 1024
_log = structlog.get_logger(__name__)
_NONE: Final = "sha256:" + "0" * 64
_UNSIGNED: Final = Signature(algorithm=ALGORITHM, key_id="-", statement_digest=_NONE, signature="")


class Withdrawn(Struct, frozen=True, forbid_unknown_fields=True):
    """The file: digests of receipts."""

    receipts: frozenset[str] = frozenset()


def qualify(support: Support, signers: Signers, target: dict[str, Any], *, now: int, days: float) -> Target:
    """The target with its receipt, for at most so many days. `now` in microseconds since the epoch.

    Raises `Invalid` where it is no target, or where nothing proves its driver now; `Misconfigured`.
    """
    unsigned = QualificationReceipt(
        authority=CATALOGUE_AUTHORITY, catalog_entry_id="-", catalog_revision_digest=_NONE, target_digest=_NONE,
        qualified_capabilities=(CHECKPOINT_IMPORT,), valid_from=moment_of(now), valid_until=moment_of(now), receipt_digest=_NONE,
        signature=_UNSIGNED,
    )  # fmt: skip
    try:
        asked = msgspec.convert({**target, "qualification_receipt": msgspec.to_builtins(unsigned)}, Target)
    except msgspec.ValidationError as error:
        raise Invalid(f"target: {error}") from error
    seen = _evidence(support, asked.driver_version_identifier, now)
    until = min(now + int(days * 86_400_000_000), seen.observed_us + int(support.max_age_s * 1_000_000))
    receipt = structs.replace(
        unsigned,
        catalog_entry_id=f"{_CAPABILITY.name}/{seen.statement.tuple.release}/{asked.driver_version_identifier}"[:255],
        catalog_revision_digest=seen.digest,
        target_digest=digests.target_digest(asked),
        valid_until=moment_of(until),
    )
    digest, key = digests.receipt_digest(receipt), signers.current("qualifications")
    signature = Signature(
        algorithm=ALGORITHM, key_id=key.public.key_id, statement_digest=digest,
        signature=base64.b64encode(key.sign_bytes(digest.encode())).decode(),
    )  # fmt: skip
    return structs.replace(asked, qualification_receipt=structs.replace(receipt, receipt_digest=digest, signature=signature))


def _evidence(support: Support, driver: str, now: int) -> Observation:
    """The latest that proves the driver on the release that runs here."""
    catalogue = support.catalogue()
    tuples = [each for each in catalogue.tuples(_CAPABILITY) if (each.release, each.driver) == (support.release, driver)]
    found = [catalogue.current(_CAPABILITY, each, now, support.max_age_s) for each in tuples]
    proven = [each for each in found if each is not None]
    if not proven:
        raise Invalid(f"{_CAPABILITY.name} is unobserved with driver {driver} on release {support.release}")
    return max(proven, key=lambda each: each.observed_us)


def withdraw(path: Path, receipt_digest: str) -> frozenset[str]:
    """Nobody imports into what this receipt qualified any more. Returns all that are withdrawn. Raises `Misconfigured`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        receipts = withdrawn_at(path) | {receipt_digest}
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(Withdrawn(receipts), order="sorted"), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_directory(path.parent)
    return receipts


def withdrawn_at(path: Path) -> frozenset[str]:
    """None where the file is not there. Raises `Misconfigured`."""
    try:
        return msgspec.json.decode(read_own(path, _BYTES_MAX), type=Withdrawn).receipts
    except FileNotFoundError:
        return frozenset()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: {error}") from error


class WithdrawnReceipts:
    """What is withdrawn in a folder, read again whenever the file has changed. Thread-safe; blocks on the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / WITHDRAWN
        self._known: tuple[object, frozenset[str]] = (None, frozenset())

    def __contains__(self, receipt_digest: object) -> bool:
        """Where the file cannot be read, every receipt counts as withdrawn."""
        stamp = self._stamp()
        known, receipts = self._known
        if stamp != known:
            try:
                receipts = withdrawn_at(self._path)
            except Misconfigured as error:
                _log.error("withdrawn_unreadable", reason=error.detail)
                return True
            self._known = (stamp, receipts)
        return receipt_digest in receipts

    def _stamp(self) -> object:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
