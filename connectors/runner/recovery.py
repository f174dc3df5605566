"""Where a worker begins: files and native state out of the checkpoint that the claim names, the rest out of the log, or fresh.

History, native state and files are told apart, and each is said to be what it is:

- `checkpoint`: the files of the snapshot, and what the log tells was written after it, written again;
- `log`: no snapshot to restore, and the log tells of everything that was written;
- `fresh`: neither. The directory is empty, and nobody pretends otherwise.

How many steps are over is read from the session's events alone, which are never gone, though their content may be.
"""

import tempfile
from typing import Final

import msgspec
from msgspec import Struct

from connectors.runner.plan import Plan, Say, writes_of
from connectors.runner.progress import Progress
from connectors.runner.service import Held
from connectors.runner.tools import FileWrite
from connectors.runner.workspace import Kept, SnapshotUnusable, Workspace
from session_streams import Conflict, ConnectionFailed, Event, KeptElsewhere, NotFound
from session_streams.recovery import HistoryGap

RESTORE: Final = "checkpoint_restore"
_TRIES: Final = 3


class Native(Struct, frozen=True):
    """This harness's own state: of which Run, how many steps were over, and since which position of the session."""

    run_id: str
    steps: int
    sequence: int


class Begun(Struct, frozen=True, kw_only=True):
    """From what a worker goes on. `history` counts the events that were read with their content, `gaps` what was told to be gone;
    `unusable` says what kept a worker from retained bytes that the claim had named."""

    mode: str
    reason: str | None
    files: str
    native: bool
    history: int
    gaps: int
    steps: int
    unusable: str = ""


def native_state(run_id: str, progress: Progress) -> bytes:
    return msgspec.json.encode(Native(run_id, progress.next, progress.over_at))


def recover(held: Held, plan: Plan, workspace: Workspace, progress: Progress) -> Begun:
    """Restores into the fresh workspace and brings `progress` up to the grant. Raises `Fenced`, and what the client raises."""
    claimed, kept, native, unusable = held.claim.recovery, None, None, ""
    if claimed["mode"] == RESTORE:
        try:
            kept, native = _restored(held, workspace, plan)
        except (NotFound, Conflict, KeptElsewhere, SnapshotUnusable, msgspec.DecodeError) as error:
            # It may have expired since the claim, or be of another kind of worker. The log is still there.
            unusable = str(error)
    history = _history(held, plan, 0 if native is None else claimed["through_sequence"])
    if native is not None and native.steps:
        progress.over(native.steps - 1, native.sequence)
    # What the next step has begun is told behind the last one, and that may lie before the checkpoint.
    held.seen = max(progress.over_at, held.claim.run["accepted_sequence"] - 1)
    held.catch_up()
    at = kept.steps if kept is not None and kept.run_id == plan.run_id else 0
    files = _files(workspace, plan, history.writes, range(at, progress.next), restored=kept is not None)
    return Begun(
        mode=claimed["mode"], reason=claimed["reason"], files=files, native=native is not None, history=history.events,
        gaps=history.gaps, steps=progress.next, unusable=unusable,
    )  # fmt: skip


def _restored(held: Held, workspace: Workspace, plan: Plan) -> tuple[Kept | None, Native | None]:
    """What the checkpoint gives: files, and this harness's state where it is of this Run."""
    checkpoint_id, restores = held.claim.recovery["checkpoint_id"], held.claim.recovery["restores"]
    kept = native = None
    if restores["native_continuation"]:
        with tempfile.TemporaryFile() as file:
            held.download(checkpoint_id, "native", file)
            found = msgspec.json.decode(file.read(), type=Native)
            native = found if found.run_id == plan.run_id else None
    if restores["files"]:
        with tempfile.TemporaryFile() as file:
            held.download(checkpoint_id, "snapshot", file)
            kept = workspace.restore(file)
    return kept, native


def _files(workspace: Workspace, plan: Plan, told: dict[int, tuple[FileWrite, ...]], steps: range, *, restored: bool) -> str:
    """Writes what the log tells of these steps, all of it or nothing."""
    due = [step for step in plan.steps[steps.start : steps.stop] if isinstance(step, Say) and step.writes]
    if any(step.index not in told for step in due):
        # Content is gone that a file was written with: what would come out is no state that ever was.
        workspace.clear()
        return "fresh"
    for step in due:
        for write in told[step.index]:
            workspace.write(write)
    if restored:
        return "checkpoint"
    return "log" if due else "fresh"


def _history(held: Held, plan: Plan, after_sequence: int) -> "_History":
    """Read to its end; what breaks off is read anew."""
    for again in range(_TRIES):
        history = _History(plan)
        try:
            history.read(held, after_sequence)
        except ConnectionFailed:
            if again == _TRIES - 1:
                raise
        else:
            return history
    raise AssertionError("unreachable")


class _History:
    """The conversation as it is streamed: what it tells of files is kept, the rest is counted."""

    def __init__(self, plan: Plan) -> None:
        self.events = self.gaps = 0
        self.writes: dict[int, tuple[FileWrite, ...]] = {}
        self._plan = plan
        self._steps = {step.record: step.index for step in plan.steps if isinstance(step, Say) and step.writes}

    def read(self, held: Held, after_sequence: int) -> None:
        for line in held.conversation(after_sequence):
            if isinstance(line, Event):
                self.events += 1
                self._take(line)
            elif isinstance(line, HistoryGap):
                self.gaps += 1

    def _take(self, event: Event) -> None:
        step = self._steps.get(event.attributes.get("source_index", -1))
        if step is not None and event.raw.get("run_id") == self._plan.run_id and isinstance(event.content, dict):
            self.writes[step] = writes_of(event.content)
