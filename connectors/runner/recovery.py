"""Where a worker begins: files and native state out of the checkpoint that the claim names, the rest out of the log, or fresh.

History, native state and files are told apart, and each is said to be what it is:

- `checkpoint`: the files of the snapshot, and what the log tells was written after it, written again;
- `log`: no snapshot to restore, and the log tells of everything that was written;
- `fresh`: neither. The directory is empty, and nobody pretends otherwise.

How many steps are over is read from the session's events alone, which are never gone, though their content may be.
"""

import io
from typing import Any, Final

import msgspec
from msgspec import Struct

from connectors.runner.plan import Plan, Say, writes_of
from connectors.runner.progress import Progress
from connectors.runner.service import Claimed, Held, Recovery
from connectors.runner.tools import FileWrite
from connectors.runner.workspace import Kept, SnapshotUnusable, Workspace
from session_streams import Conflict, NotFound

RESTORE: Final = "checkpoint_restore"


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


def recover(held: Held, claimed: Claimed, plan: Plan, workspace: Workspace, progress: Progress) -> Begun:
    """Restores into the fresh workspace and brings `progress` up to the grant. Raises `Fenced`, and what the client raises."""
    recovery = claimed.recovery
    kept, native, unusable = None, None, ""
    if recovery.mode == RESTORE and recovery.checkpoint_id is not None:
        try:
            kept, native = _restored(held, recovery, workspace, plan)
        except (NotFound, Conflict, SnapshotUnusable, msgspec.DecodeError) as error:
            # It may have expired since the claim. The log is still there.
            unusable = str(error)
    history = _History(plan)
    history.read(held, 0 if native is None else recovery.through_sequence)
    if native is not None and native.steps:
        progress.over(native.steps - 1, native.sequence)
    # What the next step has begun is told behind the last one, and that may lie before the checkpoint.
    held.seen = max(progress.over_at, claimed.run.accepted_sequence - 1)
    held.catch_up()
    at = kept.steps if kept is not None and kept.run_id == plan.run_id else 0
    files = _files(workspace, plan, history.writes, range(at, progress.next), restored=kept is not None)
    return Begun(
        mode=recovery.mode, reason=recovery.reason, files=files, native=native is not None, history=history.events, gaps=history.gaps,
        steps=progress.next, unusable=unusable,
    )  # fmt: skip


def _restored(held: Held, recovery: Recovery, workspace: Workspace, plan: Plan) -> tuple[Kept | None, Native | None]:
    """What the checkpoint gives: files, and this harness's state where it is of this Run."""
    checkpoint_id = recovery.checkpoint_id or ""
    kept = native = None
    if recovery.restores.native_continuation:
        found = msgspec.json.decode(held.content(checkpoint_id, "native"), type=Native)
        native = found if found.run_id == plan.run_id else None
    if recovery.restores.files:
        kept = workspace.restore(io.BytesIO(held.content(checkpoint_id, "snapshot")))
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


class _History:
    """The conversation as it is streamed: what it tells of files is kept, the rest is counted."""

    def __init__(self, plan: Plan) -> None:
        self.events = self.gaps = 0
        self.writes: dict[int, tuple[FileWrite, ...]] = {}
        self._plan = plan
        self._steps = {step.record: step.index for step in plan.steps if isinstance(step, Say) and step.writes}

    def read(self, held: Held, after_sequence: int) -> None:
        for line in held.conversation(after_sequence):
            if line["kind"] == "event":
                self.events += 1
                self._take(line)
            elif line["kind"] == "gap":
                self.gaps += 1

    def _take(self, event: dict[str, Any]) -> None:
        step = self._steps.get((event.get("attributes") or {}).get("source_index", -1))
        if step is not None and event.get("run_id") == self._plan.run_id and isinstance(event.get("content"), dict):
            self.writes[step] = writes_of(event["content"])
