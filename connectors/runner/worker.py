"""One worker at one Run: claims it, begins where the last one ended, does the steps, and leaves the moment it is fenced.

An attempt is ready only once it has left a checkpoint: from then on nobody takes its place without what that retains.
"""

import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

from connectors.runner.acting import Acting, Indeterminate, Provider
from connectors.runner.crash import Crash, NoCrash, Phase
from connectors.runner.lease import Lease
from connectors.runner.plan import HARNESS, HARNESS_REVISION, Act, Pause, Plan, Say
from connectors.runner.progress import Progress
from connectors.runner.recovery import Begun, native_state, recover
from connectors.runner.service import Coordinates, Fenced, Held, Notice, standing_of
from connectors.runner.workspace import Kept, Workspace
from session_streams import Claim, Client, Conflict

TRANSCRIPT_PIN: Final = "transcript"
SETTLED: Final = "runtime.already_settled"
LANE: Final = "transcripts"
EXACT: Final = Coordinates(
    harness_revision=HARNESS_REVISION, environment_revision="directory-1", driver=f"{HARNESS}@{HARNESS_REVISION}",
    sandbox_provider_revision="directory-1", policy="standard", execution_target="local",
)  # fmt: skip
"""What this worker runs on, and what a journey of it is evidence for."""
_POLL_S: Final = 0.05
_CLAIM_POLL_S: Final = 0.1
_TIMER: Final = timedelta(seconds=1)
"""However long the recording slept: what is shown is that the wait outlives its worker."""
_LONGEST_WAIT_MS: Final = 10_000


class End(StrEnum):
    """How a worker left.

    OVER: the Run was, when it came. FENCED: another worker has the Run. UNREPLACEABLE: evidence is missing, `missing` says which.
    INDETERMINATE: nobody can tell whether a provider acted. NOTHING: no Run could be had in time. OTHER: the Run is of another
    transcript.
    """

    COMPLETED = "completed"
    OVER = "over"
    FENCED = "fenced"
    UNREPLACEABLE = "unreplaceable"
    INDETERMINATE = "indeterminate"
    NOTHING = "nothing"
    OTHER = "other_transcript"


class Left(Struct, frozen=True, kw_only=True):
    """`settled` counts actions by how they were settled. `detail` says why; where it is indeterminate, which effect is, and
    `cause` what kept the provider from telling."""

    end: End
    generation: int = 0
    begun: Begun | None = None
    settled: dict[str, int] = {}
    missing: tuple[str, ...] = ()
    detail: str = ""
    session_id: str = ""
    cause: str = ""


class Options(Struct, frozen=True, kw_only=True):
    """`snapshot_every`: steps between checkpoints. `native`: a checkpoint keeps the harness's own state; else the log tells it.
    `patience_s`: how long to try for a Run. `replaces`: whether it may take the place of an attempt that was ready."""

    lease_ms: int = 10_000
    snapshot_every: int = 10
    native: bool = True
    patience_s: float = 30.0
    incomplete_ok: bool = True
    replaces: bool = True
    exact: Coordinates = EXACT


class Target(Struct, frozen=True):
    """One Run, by name."""

    session_id: str
    run_id: str


class Worker:
    """`plan_for` makes the plan of a Run by its id. `lost` is called on the thread of the lease when it is lost: a process may end
    there and then."""

    def __init__(
        self,
        client: Client,
        plan_for: Callable[[str], Plan],
        workspace: Path,
        provider: Provider,
        options: Options,
        *,
        crash: Crash | None = None,
        lost: Callable[[], None] = lambda: None,
        notice: Notice = lambda _, __: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._plan_for, self._path, self._provider, self._options = client, plan_for, workspace, provider, options
        self._crash = crash or NoCrash()
        self._lost, self._notice, self._clock, self._sleep = lost, notice, clock, sleep
        self._refusals: set[tuple[str, str, tuple[str, ...]]] = set()

    def run(self, target: Target | None = None, lanes: Sequence[str] = (LANE,)) -> Left:
        """One Run from claim to end: the named one, or any of the lanes. Raises what the client raises."""
        try:
            claimed = self._claimed(target, list(lanes))
        except Conflict as refused:
            if refused.code == SETTLED:
                return Left(end=End.OVER, detail=refused.detail)
            if refused.code != "runtime.replacement_unavailable":
                raise
            return Left(end=End.UNREPLACEABLE, missing=refused.missing, detail=refused.detail)
        if claimed is None:
            return Left(end=End.NOTHING, detail=f"no Run could be had within {self._options.patience_s:g} s")
        plan = self._plan_for(claimed.run_id)
        attempt = _Attempt(self._client, claimed, plan, self._path, self._provider, self._options, self._crash, self._notice, self._sleep)
        self._notice("claimed", {"generation": claimed.generation, "mode": claimed.recovery["mode"], "reason": claimed.recovery["reason"]})
        if any(pin["pin_kind"] == TRANSCRIPT_PIN and pin["digest"] != plan.digest for pin in claimed.raw["pinned_context"]):
            return attempt.give_up(End.OTHER, "the Run has pinned another transcript, or another cut of it")
        with Lease(attempt.held, self._options.lease_ms, self._lost, clock=self._clock) as lease:
            return attempt.run(lease)

    def _claimed(self, target: Target | None, lanes: list[str]) -> Claim | None:
        until_s = self._clock() + self._options.patience_s
        exact = self._options.exact
        body = {
            "lease_ms": self._options.lease_ms, "incomplete_ok": self._options.incomplete_ok,
            "harness_revision": exact.harness_revision, "environment_revision": exact.environment_revision,
        }  # fmt: skip
        while True:
            key, left_ms = uuid.uuid4().hex, max(0, int((until_s - self._clock()) * 1000))
            if target is None:
                claimed = self._client.claim_next(lanes, wait_ms=min(left_ms, _LONGEST_WAIT_MS), key=key, **body)
            else:
                claimed = self._claimed_by_name(target, body, key)
            if claimed is not None or self._clock() >= until_s:
                return claimed
            self._sleep(_CLAIM_POLL_S)

    def _claimed_by_name(self, target: Target, body: dict[str, Any], key: str) -> Claim | None:
        """None while somebody else works on it. Raises `Conflict` where the Run is over, or evidence is missing."""
        try:
            return self._client.claim(target.session_id, target.run_id, key=key, **body)
        except Conflict as refused:
            self._refused("claim", refused)
            if refused.code == "runtime.attempt_not_claimable":
                return None
            if refused.code != "runtime.replacement_unavailable" or not self._options.replaces:
                raise
        standing = standing_of(self._client, target.session_id, target.run_id)
        evidence = {
            **body, **to_builtins(self._options.exact), "replaces": standing.generation, "frontier_sequence": standing.run_sequence
        }  # fmt: skip
        try:
            return self._client.replace(target.session_id, target.run_id, key=f"{key}/replace", **evidence)
        except Conflict as refused:
            self._refused("replace", refused)
            moved = "recovery_frontier" in refused.missing and standing != standing_of(self._client, target.session_id, target.run_id)
            if refused.code in ("runtime.attempt_not_claimable", "runtime.attempt_fenced") or moved:
                return None  # Somebody else was faster, or the Run has moved on: look again.
            raise

    def _refused(self, asked: str, refused: Conflict) -> None:
        """Told once, however often the same is refused while a lease runs out; that the Run is over is told at the end."""
        what = asked, refused.code, refused.missing
        if refused.code != SETTLED and what not in self._refusals:
            self._refusals.add(what)
            self._notice("refused", {"asked": asked, "code": refused.code, "missing": refused.missing})


class _Attempt:
    """What one claim led to."""

    def __init__(
        self, client: Client, claimed: Claim, plan: Plan, path: Path, provider: Provider, options: Options, crash: Crash,
        notice: Notice, sleep: Callable[[float], None],
    ) -> None:  # fmt: skip
        self.held = Held(client, claimed, lambda event: self._progress.take(event.raw))
        self._plan, self._path, self._provider = plan, path, provider
        self._options, self._crash, self._notice, self._sleep = options, crash, notice, sleep
        self._progress = Progress(plan)
        self._begun: Begun | None = None
        self._settled: dict[str, int] = {}
        self._lease: Lease
        self._workspace: Workspace

    def run(self, lease: Lease) -> Left:
        self._lease = lease
        try:
            self._work()
            return self._left(End.COMPLETED)
        except Fenced as fenced:
            return self._left(End.FENCED, str(fenced))
        except Indeterminate as effect:
            return self.give_up(End.INDETERMINATE, effect.effect_id, effect.cause)

    def _work(self) -> None:
        self._crash.reached(Phase.CLAIMED)
        # The answer to a claim may have waited for long: only what is renewed has a lease that is known.
        self._lease.renew(0)
        self._workspace = Workspace(self._path)
        self._begun = recover(self.held, self._plan, self._workspace, self._progress)
        self._notice("begun", to_builtins(self._begun))
        self._crash.reached(Phase.RESTORED)
        self._checkpoint()
        self.held.tell(f"{self.held.attempt_path}/ready", {}, "ready")
        self._crash.reached(Phase.READY)
        acting = Acting(self.held, self._progress, self._provider, self._lease, self._crash, sleep=self._sleep, notice=self._notice)
        begun_at = self._progress.next
        for step in self._plan.steps[begun_at:]:
            self._lease.require()
            self._crash.reached(Phase.BEGUN, step.index)
            if isinstance(step, Act):
                how = acting.do(step)
                self._notice("acted", {"step": step.index, "provider": step.action.provider, "settled": how})
                self._settled[how] = self._settled.get(how, 0) + 1
            elif isinstance(step, Pause):
                self._wait(step)
            else:
                self._say(step)
            self._progress.over(step.index, self.held.sequence)
            if (step.index + 1 - begun_at) % self._options.snapshot_every == 0:
                self._checkpoint()
        self._lease.require()
        self.held.tell(f"{self.held.path}/runs/{self.held.run_id}/complete", {"outcome": "done"}, "complete")
        self._crash.reached(Phase.COMPLETED)

    def _say(self, step: Say) -> None:
        self.held.append(step.lines, f"{step.index}/said")
        self._crash.reached(Phase.TOLD, step.index)
        for write in step.writes:
            self._lease.require()
            self._workspace.write(write)
        if step.writes:
            self._crash.reached(Phase.WRITTEN, step.index)

    def _wait(self, step: Pause) -> None:
        if step.index not in self._progress.waits:
            body: dict[str, Any] = {"kind": step.kind, "reason": step.mark, "content": {"step": step.index}}
            if step.kind == "timer":
                body["expires_at"] = (datetime.now(UTC) + _TIMER).isoformat()
            self._progress.waits[step.index] = self.held.tell(f"{self.held.path}/waits", body, f"{step.index}/opened")["wait_id"]
            self._crash.reached(Phase.OPENED, step.index)
        if self._progress.next <= step.index:
            where = f"{self.held.path}/waits/{self._progress.waits[step.index]}/answer"
            self._notice("waits", {"step": step.index, "kind": step.kind, "answer": where})
        while self._progress.next <= step.index:
            self._lease.require()
            self.held.catch_up()
            if self._progress.next <= step.index:
                self._sleep(_POLL_S)
        self._crash.reached(Phase.ANSWERED, step.index)

    def _checkpoint(self) -> None:
        """Of everything up to the last accepted event."""
        boundary, steps = self.held.sequence, self._progress.next
        kept, name = Kept(self._plan.run_id, steps), f"checkpoint/{boundary}"
        with tempfile.TemporaryFile() as file:
            self._workspace.snapshot(file, kept)
            file.seek(0)
            snapshot = self.held.upload(file, f"{name}/snapshot")
        continuation: dict[str, str] = {"kind": "event_log_rebuild"}
        if self._options.native:
            with tempfile.TemporaryFile() as file:
                file.write(native_state(self._plan.run_id, self._progress))
                file.seek(0)
                continuation = {"kind": "native", "upload_id": self.held.upload(file, f"{name}/native")}
        self._crash.reached(Phase.UPLOADED)
        body = {
            "through_sequence": boundary, "through_event_id": self.held.event_id(boundary), "harness": HARNESS,
            "harness_revision": self._options.exact.harness_revision, "environment_revision": self._options.exact.environment_revision,
            "snapshot": {"upload_id": snapshot}, "continuation": continuation,
        }  # fmt: skip
        checkpoint = self.held.tell(f"{self.held.path}/checkpoints", body, name)
        self._notice("checkpoint", {"step": steps, "checkpoint_id": checkpoint["checkpoint_id"], "through_sequence": boundary})
        self._crash.reached(Phase.CHECKPOINTED)

    def give_up(self, end: End, detail: str, cause: str = "") -> Left:
        """The attempt ends here, so that others need not wait for its lease; an effect without a receipt is indeterminate with it."""
        try:
            self.held.tell(f"{self.held.attempt_path}/fail", {"reason": end}, "fail")
        except Fenced as fenced:
            return self._left(End.FENCED, str(fenced))
        return self._left(end, detail, cause)

    def _left(self, end: End, detail: str = "", cause: str = "") -> Left:
        return Left(
            end=end, generation=self.held.generation, begun=self._begun, settled=self._settled, detail=detail, cause=cause,
            session_id=self.held.session_id,
        )  # fmt: skip
