"""What is destroyed a second because its time is over: the secrets of days, and checkpoints with an upload each.

All of a kind become due at once, as many as the options say. When each was destroyed is read from its row in `sessions.retention`.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from datetime import date, timedelta
from typing import Final

from benchmarks.bench import Bench, every_look
from benchmarks.checkpoints import A_COMMAND, boundaries_of, granted, tell
from benchmarks.results import Result
from benchmarks.serving import Installation, Loaded
from streams.blobs import open_blob_store
from streams.custody.keyring import SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log.reader import PartitionReader, end_offsets
from streams.log.retention import CHECKPOINT, DAY, EXPIRED, decode_retention
from streams.log.topics import Topics
from streams.sealed_blobs import Place, Snapshots
from streams.session.events import CheckpointAttributes

WINDOW_S: Final = 1
"""A checkpoint's, pinned to every session of the installation."""
GRACE_S: Final = 25.0
"""Until what is over is destroyed: the time in which all of it is made."""
_OLDEST: Final = date(2000, 1, 1)
_DAYS: Final = 5000
"""Of one workspace."""
_UPLOAD_BYTES: Final = 1024
_UPLOADING: Final = 16
_PATIENCE_S: Final = 120.0


def days(bench: Bench, installation: Installation, load: Callable[[], Loaded]) -> tuple[Result, Loaded]:
    """day_expiries_per_s, and what was loaded meanwhile."""
    count = bench.options.expiries
    names = [(_OLDEST + timedelta(days=number % _DAYS)).isoformat() for number in range(count)]
    refs = [SecretRef("day", f"ws_{number // _DAYS:032x}", name) for number, name in enumerate(names)]
    since = _end(installation)
    with closing(open_local_keyring(installation.settings.data_dir / "keyring")) as keyring:
        keyring.secrets(refs, create=True)
    loaded = load()
    return _rate("day_expiries_per_s", _destroyed_at(installation, DAY, since, count)), loaded


def checkpoints(bench: Bench, installation: Installation, load: Callable[[], Loaded]) -> tuple[Result, Loaded]:
    """checkpoint_expiries_per_s, and what was loaded meanwhile. Raises TimeoutError where they were due before all were made."""
    sessions = installation.create_sessions(max(1, bench.options.expiries // A_COMMAND))
    boundaries, attempts = boundaries_of(installation, sessions), granted(installation, sessions, len(sessions))
    snapshots = asyncio.run(_uploaded(installation, sessions))
    since, due_s = _end(installation), time.monotonic() + WINDOW_S + GRACE_S - bench.options.warm_s
    tell(installation, attempts, boundaries, snapshots)
    if time.monotonic() > due_s:
        raise TimeoutError("checkpoints were due before all were made")
    time.sleep(due_s - time.monotonic())
    loaded = load()
    return _rate("checkpoint_expiries_per_s", _destroyed_at(installation, CHECKPOINT, since, len(sessions) * A_COMMAND)), loaded


def _rate(name: str, destroyed_at: Sequence[int]) -> Result:
    """Of those that came after the first transaction, in the time from it to the last; `destroyed_at` in microseconds since the epoch.

    Where one transaction had all of them, as many a second as they are: less than a look whether it works needs no rate.
    """
    first, last = min(destroyed_at), max(destroyed_at)
    seconds = (last - first) / 1_000_000
    later = sum(each > first for each in destroyed_at)
    value = later / seconds if later else float(len(destroyed_at))
    return Result(name=name, value=value, unit="expiries/s", details={"expiries": float(len(destroyed_at)), "seconds": seconds})


def _end(installation: Installation) -> int:
    settings = installation.settings
    place = (Topics(settings.topic_prefix).retention, 0)
    return end_offsets(settings, [place], committed=False)[place]


def _destroyed_at(installation: Installation, kind: str, since: int, count: int) -> list[int]:
    """Of as many rows of this kind as are expected. Raises AssertionError where one comes twice, TimeoutError where one does not come."""
    settings = installation.settings
    topic = Topics(settings.topic_prefix).retention
    found: dict[bytes, int] = {}
    with PartitionReader(settings, "bench.retention", {(topic, 0): since}) as reader:
        for _ in every_look(_PATIENCE_S, f"{count} expiries of kind {kind}", 0.0):
            for each in reader.read(2000, 0.2):
                row = decode_retention(each.value or b"")
                if (row.kind, row.state) == (kind, EXPIRED):
                    if row.key in found:
                        raise AssertionError(f"{row.id} was destroyed twice")
                    found[row.key] = row.destroyed_at or 0
            if len(found) >= count:
                return list(found.values())
    raise AssertionError


async def _uploaded(installation: Installation, sessions: Sequence[str]) -> dict[str, list[CheckpointAttributes]]:
    """A hundred checkpoints of each session to be told of, an upload of a kilobyte each, stored as a gateway stores it."""
    settings = installation.settings
    at_once = asyncio.Semaphore(_UPLOADING)
    with closing(open_local_keyring(settings.data_dir / "keyring")) as keyring:
        snapshots = Snapshots(open_blob_store(settings), keyring, grace_s=settings.orphan_grace_s)

        async def upload(session_id: str) -> CheckpointAttributes:
            place, upload_id = Place(installation.up.workspace_id, session_id), f"snap_{secrets.token_hex(16)}"
            async with at_once:
                made = await snapshots.upload(place, upload_id, _kilobyte(), bytes_max=_UPLOAD_BYTES)
            return CheckpointAttributes(
                continuation_kind="event_log_rebuild", snapshot_kind="stored", snapshot_id=upload_id, snapshot_bytes=made.bytes,
                snapshot_digest=made.digest,
            )  # fmt: skip

        made = await asyncio.gather(*[upload(session_id) for session_id in sessions for _ in range(A_COMMAND)])
    return {session_id: made[at * A_COMMAND : (at + 1) * A_COMMAND] for at, session_id in enumerate(sessions)}


async def _kilobyte() -> AsyncIterator[bytes]:
    yield secrets.token_bytes(_UPLOAD_BYTES)
