"""One row a Run, and where Runs are found that wait for a worker, or that a claim has got already.

    r/<session id>/<run id>                                                    the row
    q/<workspace id>/<lane>\\0<accepted_at, 8 bytes><session id>/<run id>       Runs that may be claimed, oldest first
    p/<workspace id>/<subject id>/<lane>\\0<accepted_at><session id>/<run id>   those of a subject
    g/<workspace id>/<claim digest>/<session id>/<run id>                      Runs whose live attempt has this digest
    i/<session id>/<run id>                                                    Runs of a session that stand in one of these
    w/                                                                         closed sessions whose Runs are still being taken out

- A row is what decides about claims. It changes with events of Run and attempt, not with what happens in a Run: messages leave
  it alone, so it says nothing of the Run position, nor of a lease's renewals, which are not in the log.
- A Run may be claimed while it is live, claimable, not settled, and has no attempt, or one that is over and never was ready. One that
  was ready is replaced on evidence, by whoever names it (design 02). A waiting Run stays with its attempt.
- A closed session takes its Runs out. That is bounded: so many at its own event, and as many at each later event of the partition.
  Until then readers look at the session's status.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from streams.log.reader import Record
from streams.projections.projection import Unreadable
from streams.session.events import AttemptAttributes, Event, RunAttributes
from streams.session.lifecycles import (
    ACCEPTED,
    CANCELLED,
    COMPLETED,
    FAILED,
    FENCED,
    LIVE_ATTEMPT,
    READY,
    REPLACED,
    RUNNING,
    SETTLED_RUN,
    STARTED,
    WAITING,
)
from streams.session.words import LIVE
from streams.store.table import Put, Reads

_ROW: Final = b"r/"
_BY_LANE: Final = b"q/"
_BY_SUBJECT: Final = b"p/"
_BY_CLAIM: Final = b"g/"
_INDEXED: Final = b"i/"
_LEAVING: Final = b"w/"
_TIME_BYTES: Final = 8
LEAVING_AT_ONCE: Final = 20
"""Runs of closed sessions that one event takes out."""


class RunRow(Struct, array_like=True):
    """A Run, and its current attempt, as their events tell them. Times in microseconds since the epoch, UTC.

    `generation` is 0 before the first attempt; `lease_expires_at` is the lease as it was granted. `moved_sequence` is that of the last
    event that changed this row: no Run position. Whoever is given a row reads it; only the fold below changes one.
    """

    run_id: str
    session_id: str
    workspace_id: str
    subject_id: str | None
    turn_id: str | None
    thread_id: str | None
    lane: str | None
    harness: str | None
    harness_revision: str | None
    environment_revision: str | None
    origin: str
    claimable: bool
    accepted_at: int
    accepted_sequence: int
    status: str
    outcome: str | None
    reason: str | None
    generation: int
    attempt_status: str | None
    was_ready: bool
    principal_id: str | None
    native_task_id: str | None
    claim_digest: str | None
    lease_ms: int | None
    lease_expires_at: int | None
    moved_sequence: int
    moved_at: int

    @property
    def may_be_claimed(self) -> bool:
        """By whoever asks for a Run of its lane, as long as its session is open."""
        if self.origin != LIVE or not self.claimable or self.status in SETTLED_RUN:
            return False
        return self.attempt_status is None or not (self.was_ready or self.attempt_status in LIVE_ATTEMPT)

    @property
    def is_held(self) -> bool:
        """It has an attempt that may report, as far as the log tells."""
        return self.status not in SETTLED_RUN and self.attempt_status in LIVE_ATTEMPT


_encode = msgspec.msgpack.Encoder().encode
LanePlace = tuple[int, str, str]
"""Where a Run stands in a lane: accepted time, session id, run id."""

decode_run: Final = msgspec.msgpack.Decoder(RunRow).decode
_decode_leaving: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode


def run_key(session_id: str, run_id: str) -> bytes:
    return b"%s%s/%s" % (_ROW, session_id.encode(), run_id.encode())


def lane_prefix(workspace_id: str, subject_id: str | None, lane: str) -> bytes:
    """The Runs of a lane that may be claimed; those of one subject where it is given. A lane's name may hold slashes, but no zero."""
    if subject_id is None:
        return b"%s%s/%s\0" % (_BY_LANE, workspace_id.encode(), lane.encode())
    return b"%s%s/%s/%s\0" % (_BY_SUBJECT, workspace_id.encode(), subject_id.encode(), lane.encode())


def lane_place(row: RunRow) -> LanePlace:
    """Where the Run stands in its lane."""
    return row.accepted_at, row.session_id, row.run_id


def lane_key(prefix: bytes, place: LanePlace) -> bytes:
    """The key below `lane_prefix` of the Run that stands there."""
    accepted_at, session_id, run_id = place
    return b"%s%s%s/%s" % (prefix, accepted_at.to_bytes(_TIME_BYTES, "big"), session_id.encode(), run_id.encode())


def claim_prefix(workspace_id: str, claim_digest: str) -> bytes:
    return b"%s%s/%s/" % (_BY_CLAIM, workspace_id.encode(), claim_digest.encode())


def waiting_at(prefix: bytes, key: bytes) -> tuple[int, bytes]:
    """When the Run of a row of `lane_prefix` was accepted, and the key of its own row."""
    rest = key[len(prefix) :]
    return int.from_bytes(rest[:_TIME_BYTES], "big"), _ROW + rest[_TIME_BYTES:]


def session_of(key: bytes) -> str:
    """The session in the key of a row."""
    return key[len(_ROW) : key.rindex(b"/")].decode()


def held_at(prefix: bytes, key: bytes) -> bytes:
    """The key of the row of the Run that a row of `claim_prefix` names."""
    return _ROW + key[len(prefix) :]


def lane_name(workspace_id: str, lane: str) -> str:
    """Under what those who wait for a Run of the lane are told of one."""
    return f"{workspace_id}/{lane}"


def _place(row: RunRow) -> bytes:
    return b"%s/%s" % (row.session_id.encode(), row.run_id.encode())


def _entries(row: RunRow) -> tuple[bytes, ...]:
    """The keys under which the Run is found, as it is now; that of `i/` comes last, with any of them."""
    found = []
    if row.lane is not None and row.may_be_claimed:
        behind = row.accepted_at.to_bytes(_TIME_BYTES, "big") + _place(row)
        for subject_id in dict.fromkeys((None, row.subject_id)):
            found.append(lane_prefix(row.workspace_id, subject_id, row.lane) + behind)
    elif row.claim_digest is not None and row.is_held:
        found.append(claim_prefix(row.workspace_id, row.claim_digest) + _place(row))
    if found:
        found.append(_INDEXED + _place(row))
    return tuple(found)


class RunsView:
    name = "runs"
    version = 1

    def begin(self, rows: Reads) -> "RunsFold":
        return RunsFold(rows)


class RunsFold:
    """Rows of the batch's Runs that changed, each read once and written once."""

    def __init__(self, rows: Reads) -> None:
        self._stored = rows
        self._rows: dict[bytes, RunRow] = {}
        self._entries: dict[bytes, bytes | None] = {}
        self._made: dict[str, set[bytes]] = {}
        """Keys of `i/` that the batch has added, by session."""
        self._awaited: set[str] = set()
        self._leaving: list[tuple[str, bytes]] | None = None
        self._leaving_moved = False

    def apply(self, event: Event, record: Record) -> None:
        leaving = self._leaving
        if leaving is None:
            value = self._stored.get(_LEAVING)
            leaving = self._leaving = [] if value is None else _decode_leaving(value)
        change = _CHANGES.get(event.type)
        if change is not None:
            if event.run_id is not None:
                self._change(event, event.run_id, change)
        elif event.type == "session.closed":
            leaving.append((event.session_id, b""))
            self._leaving_moved = True
        if leaving:
            self._take_out(leaving)

    def set_aside(self, unreadable: Unreadable) -> None:
        """A row tells what could be read; the transcript shows the gap."""

    def awaited(self) -> set[str]:
        """Lanes that have got Runs."""
        return self._awaited

    def puts(self) -> Iterator[Put]:
        for key, row in self._rows.items():
            yield key, _encode(row)
        yield from self._entries.items()
        if self._leaving_moved:
            yield _LEAVING, _encode(self._leaving) if self._leaving else None

    def _change(self, event: Event, run_id: str, change: "Callable[[RunRow, Event], None]") -> None:
        key = run_key(event.session_id, run_id)
        row = self._rows.get(key)
        before: tuple[bytes, ...] = ()
        if row is None:
            value = self._stored.get(key)
            if value is not None:
                row = decode_run(value)
            elif event.type == "run.accepted":
                row = _accepted(event, run_id)
            else:
                return
            self._rows[key] = row
            if value is not None:
                before = _entries(row)
        else:
            before = _entries(row)
        change(row, event)
        row.moved_sequence, row.moved_at = event.sequence, event.accepted_at
        after = _entries(row)
        if after == before:
            return
        self._entries.update(dict.fromkeys(before))
        self._entries.update(dict.fromkeys(after, b""))
        made = self._made.setdefault(row.session_id, set())
        if after:
            made.add(after[-1])
        else:
            made.discard(before[-1])
        if row.lane is not None and row.may_be_claimed:
            self._awaited.add(lane_name(row.workspace_id, row.lane))

    def _take_out(self, leaving: list[tuple[str, bytes]]) -> None:
        """The next few Runs of the session that closed first. The same ones wherever a batch was cut: in the order of their ids, whether
        they are stored already or not."""
        session_id, after = leaving[0]
        prefix = b"%s%s/" % (_INDEXED, session_id.encode())
        with self._stored.scan(prefix, start=after or None) as pairs:
            left = (key for key, _ in pairs if self._entries.get(key, b"") is not None)
            stored = list(islice(left, LEAVING_AT_ONCE))
        made = [key for key in self._made.get(session_id, ()) if key > after]
        keys = sorted({*stored, *made})[:LEAVING_AT_ONCE]
        for key in keys:
            place = _ROW + key[len(_INDEXED) :]
            row = self._rows.get(place)
            if row is None:
                value = self._stored.get(place)
                row = None if value is None else decode_run(value)
            if row is not None:
                self._entries.update(dict.fromkeys(_entries(row)))
        self._leaving_moved = True
        if len(keys) < LEAVING_AT_ONCE:
            del leaving[0]
        else:
            leaving[0] = (session_id, keys[-1])


def _accepted(event: Event, run_id: str) -> RunRow:
    told = event.attributes if isinstance(event.attributes, RunAttributes) else RunAttributes()
    origin = told.origin or LIVE
    return RunRow(
        run_id=run_id,
        session_id=event.session_id,
        workspace_id=event.workspace_id,
        subject_id=event.subject_id,
        turn_id=event.turn_id,
        thread_id=event.thread_id,
        lane=told.lane,
        harness=told.harness,
        harness_revision=told.harness_revision,
        environment_revision=told.environment_revision,
        origin=origin,
        claimable=origin == LIVE if told.claimable is None else told.claimable,
        accepted_at=event.accepted_at,
        accepted_sequence=event.sequence,
        status=ACCEPTED,
        outcome=None,
        reason=None,
        generation=0,
        attempt_status=None,
        was_ready=False,
        principal_id=None,
        native_task_id=None,
        claim_digest=None,
        lease_ms=None,
        lease_expires_at=None,
        moved_sequence=event.sequence,
        moved_at=event.accepted_at,
    )


def _is_accepted(row: RunRow, event: Event) -> None:
    """The row was made of this event."""


def _run(status: str) -> Callable[[RunRow, Event], None]:
    def change(row: RunRow, event: Event) -> None:
        row.status = status
        if status in SETTLED_RUN and isinstance(event.attributes, RunAttributes):
            row.outcome, row.reason = event.attributes.outcome, event.attributes.reason

    return change


def _attempt(status: str) -> Callable[[RunRow, Event], None]:
    def change(row: RunRow, event: Event) -> None:
        row.attempt_status = status
        if status == READY:
            row.was_ready = True
            row.native_task_id = event.native_task_id or row.native_task_id

    return change


def _attempt_started(row: RunRow, event: Event) -> None:
    told = event.attributes if isinstance(event.attributes, AttemptAttributes) else AttemptAttributes()
    row.generation = event.attempt_generation or row.generation + 1
    row.attempt_status, row.was_ready = STARTED, False
    row.native_task_id, row.principal_id = event.native_task_id, told.principal_id
    row.claim_digest = told.claim_digest
    row.lease_ms, row.lease_expires_at = told.lease_ms, told.lease_expires_at


_CHANGES: Final[dict[str, Callable[[RunRow, Event], None]]] = {
    "run.accepted": _is_accepted,
    "run.started": _run(RUNNING),
    "run.waiting": _run(WAITING),
    "run.resumed": _run(RUNNING),
    "run.completed": _run(COMPLETED),
    "run.failed": _run(FAILED),
    "run.cancelled": _run(CANCELLED),
    "attempt.started": _attempt_started,
    "attempt.ready": _attempt(READY),
    "attempt.failed": _attempt(FAILED),
    "attempt.replaced": _attempt(REPLACED),
    "attempt.fenced": _attempt(FENCED),
}
"""Events that change a row; no other costs more than this look-up."""
