"""Checkpoints, forks and replacements as a `Story` tells them."""

from streams.session.commands import Command, Kind
from streams.session.decide import Decision
from streams.session.events import AttemptAttributes, CheckpointAttributes, Draft, Event, SessionAttributes
from streams.session.items import CheckpointState, HistoryState, LineageState
from streams.session.outcomes import Grant, Recovery, Rejected
from tests.support.examples import made_up_id
from tests.support.story import PERSON, SECOND, WORKER, Story, part

DAY = 24 * 3600 * SECOND
HARNESS, ENVIRONMENT = "harness@7", "image@2"
EXACT: dict[str, object] = {"harness_revision": HARNESS, "environment_revision": ENVIRONMENT}
"""What a worker names that is what `checkpoint_part` tells."""
SEALED_DIGEST = "sha256:" + "5" * 64
VERIFIED = "sha256:" + "6" * 64
OF_A_WORKER = frozenset({"attempt.ready", "wait.opened", "effect.dispatched", "checkpoint.created", "run.completed"})
"""Types that only the current attempt of a Run may tell, and that name its generation."""


def stored(label: object = "") -> dict[str, object]:
    return {
        "snapshot_kind": "stored", "snapshot_id": made_up_id("snap", label), "snapshot_bytes": 64, "snapshot_digest": SEALED_DIGEST,
    }  # fmt: skip


def native(label: object = "") -> dict[str, object]:
    return {
        "continuation_kind": "native", "native_id": made_up_id("snap", f"native {label}"), "native_bytes": 64,
        "native_digest": SEALED_DIGEST,
    }  # fmt: skip


def checkpoint_part(story: Story, run_id: str | None = None, label: object = "", through: int | None = None, **more: object) -> Draft:
    """Of a stored snapshot, with the harness to be rebuilt from the log; `more` says otherwise. `through`: the last event."""
    event = story.events[-1 if through is None else through - 1]
    given = {
        "checkpoint_id": made_up_id("ckpt", label), "through_sequence": event.sequence, "through_event_id": event.event_id,
        "through_hash": event.hash.hex(), "continuation_kind": "event_log_rebuild", "harness_revision": HARNESS,
        "environment_revision": ENVIRONMENT, **stored(label),
    }  # fmt: skip
    return part("checkpoint.created", CheckpointAttributes(**{**given, **more}), run_id=run_id or made_up_id("run"))  # type: ignore[arg-type]


def leave_checkpoint(story: Story, grant: Grant, label: object = "", through: int | None = None, **more: object) -> CheckpointState:
    """What the holder of the grant leaves."""
    story.tell(checkpoint_part(story, grant.run_id, label, through, **more), by=WORKER, report=story.report(grant))
    return checkpoint(story, label)


def checkpoint(story: Story, label: object = "") -> CheckpointState:
    item = story.items.get("checkpoint", made_up_id("ckpt", label))
    assert isinstance(item, CheckpointState)
    return item


def history(story: Story) -> HistoryState:
    item = story.items.get("history", "")
    return item if isinstance(item, HistoryState) else HistoryState()


def lineage(story: Story) -> LineageState:
    item = story.items.get("lineage", "")
    assert isinstance(item, LineageState)
    return item


def fork_part(story: Story, at: int | None = None, checkpoint_id: str | None = None, label: object = "", **more: object) -> Draft:
    """At an event (`at`: the last), or by a checkpoint: at its boundary, or where the session was told of it by its own source."""
    if checkpoint_id is not None and at is None:
        item = story.items.get("checkpoint", checkpoint_id)
        assert isinstance(item, CheckpointState)
        at = item.through_sequence if item.origin_session_id == story.session_id else item.sequence
    event = story.events[-1 if at is None else at - 1]
    given = {
        "fork_id": made_up_id("fork", f"{story.session_id}{label}"), "checkpoint_id": checkpoint_id, "through_sequence": event.sequence,
        "through_event_id": event.event_id, "source_hash": event.hash.hex(),
    }  # fmt: skip
    return part("session.forked", SessionAttributes(**{**given, **more}))  # type: ignore[arg-type]


def fork(story: Story, at: int | None = None, checkpoint_id: str | None = None, label: object = "") -> Story:
    """The child, begun by the command that its source sends."""
    decision = story.tell(fork_part(story, at, checkpoint_id, label), kind=Kind.FORK)
    return born(story, sent(decision))


def sent(decision: Decision) -> Command:
    (command,) = decision.sent
    return command


def born(story: Story, command: Command) -> Story:
    child = Story(story.now, command.session_id)
    begun = child.decide(command)
    assert isinstance(begun, Decision), begun
    return child


def make_ready(story: Story, grant: Grant) -> None:
    story.tell(part("attempt.ready", run_id=grant.run_id), by=WORKER, report=story.report(grant))


def replace_part(story: Story, run_id: str | None = None, label: str = "2", **more: object) -> Draft:
    """With all the evidence that there can be; `more` takes some of it away."""
    run, attempt = story.run(run_id), story.attempt(run_id)
    given = {
        "claim_digest": "sha256:" + label.encode().hex().rjust(64, "0"), "replaces": attempt.generation, "frontier_sequence": run.sequence,
        "harness_revision": HARNESS, "environment_revision": ENVIRONMENT, "verification_digest": VERIFIED, "verified_at": story.now,
    }  # fmt: skip
    return part("attempt.started", AttemptAttributes(**{**given, **more}), run_id=run.run_id)  # type: ignore[arg-type]


def claim(story: Story, by: str = WORKER, label: str = "9", run_id: str | None = None, **asked: object) -> Decision | Rejected:
    """Whatever comes of the claim; `asked` are attributes of its draft."""
    digest = "sha256:" + label.encode().hex().rjust(64, "0")
    draft = part("attempt.started", AttemptAttributes(claim_digest=digest, **asked), run_id=run_id or made_up_id("run"))  # type: ignore[arg-type]
    return story.decide(story.command(draft, kind=Kind.CLAIM, by=by, lease_ms=30_000))


def recovery(decision: Decision | Rejected) -> Recovery:
    assert isinstance(decision, Decision), decision
    assert decision.grant is not None
    assert decision.grant.recovery is not None
    return decision.grant.recovery


def erase(story: Story) -> Decision:
    return story.tell(kind=Kind.ERASE, by=PERSON)


def only(story: Story, event_type: str) -> Event:
    (event,) = [event for event in story.events if event.type == event_type]
    return event


class Generations:
    """Follows the events of one session: of a Run at most one generation lives, each ends before the next, and one that was
    ready is not replaced in silence."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self._ready: set[tuple[str, int]] = set()

    def follow(self, event: Event) -> None:
        run_id, generation = event.run_id or "", event.attempt_generation or 0
        if event.type == "attempt.started":
            assert run_id not in self.live, "two live generations"
            assert generation == self.reached.get(run_id, 0) + 1
            assert (run_id, generation - 1) not in self._ready, "replaced without being told so"
            self.live[run_id] = self.reached[run_id] = generation
        elif event.type == "attempt.failed":
            assert self.live.pop(run_id) == generation
        elif event.type == "attempt.replaced":
            self._ready.discard((run_id, generation))
        elif event.type in OF_A_WORKER and event.run_id is not None:
            assert self.live[run_id] == generation
            if event.type == "attempt.ready":
                self._ready.add((run_id, generation))
