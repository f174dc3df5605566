"""What is destroyed a second because its time is over, and what appends notice of it: the secrets of days, and checkpoints with an upload each.

All of a kind become due at once, as many as the options say. When each was destroyed is read from its row in `sessions.retention`.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from typing import Final

from benchmarks import traffic, workers
from benchmarks.bench import Bench, every_look
from benchmarks.results import Result
from benchmarks.serving import Installation, Loaded
from benchmarks.workers import Held
from connectors.edge.keys import KeyAdministration, digest_of
from streams.blobs import open_blobs
from streams.custody.keyring import SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log import record
from streams.log.reader import PartitionReader, end_offsets
from streams.log.retention import CHECKPOINT, DAY, EXPIRED, decode_retention
from streams.log.topics import Topics
from streams.sealed_blobs import Place, Snapshots, Uploaded
from streams.session.commands import Command, Kind, Report
from streams.session.events import CheckpointAttributes, Draft
from streams.session.ids import event_ids

WINDOW_S: Final = 1
"""A checkpoint's, pinned to every session of the installation."""
GRACE_S: Final = 25.0
"""Until what is over is destroyed: the time in which all of it is made."""
_OLDEST: Final = date(2000, 1, 1)
_DAYS: Final = 5000
"""Of one workspace."""
_A_COMMAND: Final = 100
_UPLOAD_BYTES: Final = 1024
_UPLOADING: Final = 16
_PATIENCE_S: Final = 120.0
_HOUR_US: Final = 3600 * 1_000_000


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
    sessions = installation.create_sessions(bench.options.expiries // _A_COMMAND)
    boundaries = _boundaries(installation, sessions)
    runs = workers.open_runs(installation, sessions, "expiries", len(sessions))
    attempts = workers.held(installation.ask([workers.claim_of(*run) for run in runs], 64).outcome.bodies)
    uploads = asyncio.run(_uploaded(installation, attempts))
    since, settings = _end(installation), installation.settings
    secret_digest = digest_of(installation.up.api_key)
    (principal_id,) = (key.key_id for key in KeyAdministration(settings).list() if key.secret_digest == secret_digest)
    begun = time.monotonic()
    commands = (
        (held.session_id.encode(), record.encode_command(_command(installation, principal_id, held, boundaries, uploads[held.session_id])))
        for held in attempts
    )
    traffic.produce(traffic.sender(settings), Topics(settings.topic_prefix).commands, settings.partitions, commands)
    due_s = begun + WINDOW_S + GRACE_S - bench.options.warm_s
    if time.monotonic() > due_s:
        raise TimeoutError("checkpoints were due before all were made")
    time.sleep(due_s - time.monotonic())
    loaded = load()
    return _rate("checkpoint_expiries_per_s", _destroyed_at(installation, CHECKPOINT, since, len(attempts) * _A_COMMAND)), loaded


def _rate(name: str, destroyed_at: Sequence[int]) -> Result:
    """From the first to the last; `destroyed_at` in microseconds since the epoch."""
    seconds = (max(destroyed_at) - min(destroyed_at)) / 1_000_000
    return Result(name=name, value=len(destroyed_at) / max(seconds, 0.001), unit="expiries/s", details={"expiries": float(len(destroyed_at)), "seconds": seconds})


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


def _boundaries(installation: Installation, sessions: Sequence[str]) -> dict[str, tuple[str, str]]:
    """By session: id and hash of its first event, up to which all its checkpoints reach."""
    asks = [workers.Ask(path=f"/v1/sessions/{session_id}/events?limit=1") for session_id in sessions]
    events = [page["events"][0] for page in workers.decoded(installation.ask(asks, 16).outcome.bodies)]
    return {event["session_id"]: (event["event_id"], event["hash"]) for event in events}


async def _uploaded(installation: Installation, attempts: Sequence[Held]) -> dict[str, list[Uploaded]]:
    """A hundred of each session, of a kilobyte each, as a gateway stores them."""
    settings = installation.settings
    at_once = asyncio.Semaphore(_UPLOADING)

    async def content() -> "asyncio.Queue[bytes]": ...

    with closing(open_local_keyring(settings.data_dir / "keyring")) as keyring:
        snapshots = Snapshots(open_blobs(settings), keyring, grace_s=settings.orphan_grace_s)

        async def upload(session_id: str) -> Uploaded:
            async with at_once:
                return await snapshots.upload(
                    Place(installation.up.workspace_id, session_id), f"snap_{secrets.token_hex(16)}", _chunk(), bytes_max=_UPLOAD_BYTES
                )

        made = await asyncio.gather(*[upload(held.session_id) for held in attempts for _ in range(_A_COMMAND)])
    return {held.session_id: made[at * _A_COMMAND : (at + 1) * _A_COMMAND] for at, held in enumerate(attempts)}
