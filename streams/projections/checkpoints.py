"""The checkpoints of a session, those that a fork brought along among them. A row never changes.

    c/<session id>/<checkpoint id>                          the row
    n/<session id>/<sequence of its event, 8 bytes>         the same row: backwards, the newest first

Both hold the whole row, so a look-up and a page are one read each, however many checkpoints other sessions have. Rows tell where
sealed bytes lie and how many they are; who may see that is the reader's to judge.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from streams.log.reader import Record
from streams.projections.projection import Unreadable
from streams.session.events import CheckpointAttributes, Event
from streams.session.words import NO_SNAPSHOT, REBUILD
from streams.store.table import Put, Reads

_ROW: Final = b"c/"
_BY_SEQUENCE: Final = b"n/"
_NUMBER_BYTES: Final = 8


class CheckpointRow(Struct, frozen=True, array_like=True):
    """Recovery material as `checkpoint.created` tells of it. Times in microseconds since the epoch, UTC.

    `sequence` is that of the event in this session; `through_sequence` counts in `origin_session_id`, which is another session
    where a fork brought the checkpoint along (`fork_id`). Digests and sizes are those of the sealed bytes.
    """

    checkpoint_id: str
    session_id: str
    workspace_id: str
    subject_id: str | None
    run_id: str | None
    generation: int | None
    sequence: int
    created_at: int
    expires_at: int
    origin_session_id: str
    through_sequence: int
    through_event_id: str
    through_hash: str
    harness: str | None
    harness_revision: str | None
    environment_revision: str | None
    continuation_kind: str
    snapshot_kind: str
    snapshot_id: str | None
    snapshot_bytes: int | None
    snapshot_digest: str | None
    native_id: str | None
    native_bytes: int | None
    native_digest: str | None
    fork_id: str | None


_encode = msgspec.msgpack.Encoder().encode
decode_checkpoint: Final = msgspec.msgpack.Decoder(CheckpointRow).decode


def checkpoint_key(session_id: str, checkpoint_id: str) -> bytes:
    return b"%s%s/%s" % (_ROW, session_id.encode(), checkpoint_id.encode())


def checkpoints_prefix(session_id: str) -> bytes:
    """Of the listing, oldest first."""
    return b"%s%s/" % (_BY_SEQUENCE, session_id.encode())


def listed_key(session_id: str, sequence: int) -> bytes:
    return checkpoints_prefix(session_id) + sequence.to_bytes(_NUMBER_BYTES, "big")


class CheckpointsView:
    name = "checkpoints"
    version = 1

    def begin(self, rows: Reads) -> "CheckpointsFold":
        return CheckpointsFold()


class CheckpointsFold:
    def __init__(self) -> None:
        self._puts: dict[bytes, bytes] = {}

    def apply(self, event: Event, record: Record) -> None:
        if event.type != "checkpoint.created":
            return
        told = event.attributes
        if not isinstance(told, CheckpointAttributes) or told.checkpoint_id is None:
            return
        value = _encode(_row(event, told, told.checkpoint_id))
        self._puts[checkpoint_key(event.session_id, told.checkpoint_id)] = value
        self._puts[listed_key(event.session_id, event.sequence)] = value

    def set_aside(self, unreadable: Unreadable) -> None:
        """The transcript shows the gap."""

    def awaited(self) -> tuple[str, ...]:
        return ()

    def puts(self) -> Iterator[Put]:
        return iter(self._puts.items())


def _row(event: Event, told: CheckpointAttributes, checkpoint_id: str) -> CheckpointRow:
    return CheckpointRow(
        checkpoint_id=checkpoint_id,
        session_id=event.session_id,
        workspace_id=event.workspace_id,
        subject_id=event.subject_id,
        run_id=event.run_id,
        generation=event.attempt_generation,
        sequence=event.sequence,
        created_at=event.accepted_at,
        expires_at=told.expires_at or event.accepted_at,
        origin_session_id=told.origin_session_id or event.session_id,
        through_sequence=told.through_sequence or 0,
        through_event_id=told.through_event_id or "",
        through_hash=told.through_hash or "",
        harness=told.harness,
        harness_revision=told.harness_revision,
        environment_revision=told.environment_revision,
        continuation_kind=told.continuation_kind or REBUILD,
        snapshot_kind=told.snapshot_kind or NO_SNAPSHOT,
        snapshot_id=told.snapshot_id,
        snapshot_bytes=told.snapshot_bytes,
        snapshot_digest=told.snapshot_digest,
        native_id=told.native_id,
        native_bytes=told.native_bytes,
        native_digest=told.native_digest,
        fork_id=told.fork_id,
    )
