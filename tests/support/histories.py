"""Random histories of a session: commands picked from a catalogue, of which the pure core accepts what may follow."""

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from streams.session.commands import Command, Kind, Report
from streams.session.events import (
    ApprovalAttributes,
    ArtifactAttributes,
    Attributes,
    ChildAttributes,
    ContextAttributes,
    Draft,
    EffectAttributes,
    Link,
    MessageAttributes,
    RunAttributes,
    SourceAttributes,
    SteeringAttributes,
    ThreadAttributes,
    ToolAttributes,
    TurnAttributes,
    WaitAttributes,
)
from tests.support.examples import made_up_id
from tests.support.recovering import checkpoint_part, fork_part, native, replace_part
from tests.support.story import SECOND, WORKER, Story, part, sealed

Pick = tuple[int, int, int, bool]
"""Which fact, of which thing, in which place, and whether an actor told of it."""

_DIGEST: Final = "sha256:" + "4" * 64
_THINGS: Final = 3
LIVE: Final = made_up_id("run", "live")

_ENDS: Final = (
    "attempt.failed", "attempt.replaced", "attempt.fenced", "run.completed", "run.failed", "run.cancelled", "turn.completed",
)  # fmt: skip
FACTS: Final = _ENDS + 3 * (
    "thread.opened", "turn.started", "run.accepted", "attempt.started", "attempt.ready", "message.appended", "source.recorded",
    "tool.called", "tool.returned", "child.started", "child.settled", "wait.opened", "wait.answered", "wait.expired",
    "approval.requested", "approval.granted", "approval.denied", "effect.dispatched", "effect.dispatched", "effect.indeterminate",
    "effect.receipt_accepted", "effect.reconciled", "artifact.recorded", "context.pinned", "steering.applied",
    "live.claimed", "live.ready", "live.failed", "live.checkpointed", "live.replaced", "live.forked",
)  # fmt: skip
"""What ends a Run is rarer than what happens in one. `live` things are done by the worker of a Run that is not imported."""

PICKS: Final = st.lists(
    st.tuples(st.integers(0, len(FACTS) - 1), st.integers(0, _THINGS - 1), st.integers(0, _THINGS - 1), st.booleans()),
    min_size=50,
    max_size=120,
)


def history(picks: Sequence[Pick]) -> Story:
    """An imported session with a thread, a Turn and a working Run, and what of the picks could follow."""
    story = Story().created(origin="imported")
    opened = part("thread.opened", thread_id=made_up_id("sthr", 0))
    story.tell(opened, part("turn.started", thread_id=made_up_id("sthr", 0), turn_id=made_up_id("turn", 0)), importing=True)
    for thing in range(_THINGS):
        story.with_imported_run(made_up_id("run", thing))
    story.with_run(LIVE, harness="harness")
    for pick in picks:
        story.now += SECOND
        live = FACTS[pick[0]].startswith("live.")
        story.decide(_live(story, pick) if live else story.command(_draft(story, pick), importing=True))
    return story


def _live(story: Story, pick: Pick) -> Command:
    """What the worker of the live Run does next: with leases of half a minute, some of it comes too late."""
    fact, thing, place, acted = pick
    checkpoint_id, run = made_up_id("ckpt", thing), story.run(LIVE)
    match FACTS[fact]:
        case "live.claimed":
            return story.command(story.claim_parts(f"{thing}{place}", LIVE), kind=Kind.CLAIM, by=WORKER, lease_ms=30_000)
        case "live.replaced" if run.generation:
            return story.command(replace_part(story, LIVE, f"{thing}{place}"), kind=Kind.REPLACE, by=WORKER)
        case "live.forked":
            named = checkpoint_id if acted and story.items.get("checkpoint", checkpoint_id) is not None else None
            return story.command(fork_part(story, checkpoint_id=named, label=f"{thing}{place}"), kind=Kind.FORK)
        case "live.checkpointed":
            draft = checkpoint_part(story, LIVE, thing, **(native(thing) if acted else {}))
        case "live.failed":
            draft = part("attempt.failed", run_id=LIVE)
        case _:
            draft = part("attempt.ready", run_id=LIVE)
    attempt = story.attempt(LIVE) if run.generation else None
    task = None if attempt is None else attempt.native_task_id
    return story.command(draft, by=WORKER, report=Report(LIVE, run.generation, task, run.sequence))


def _draft(story: Story, pick: Pick) -> Draft:
    fact, thing, place, acted = pick
    event_type = FACTS[fact]
    attributes, fields = _told(event_type, thing, place)
    links = list(fields.pop("links", ()))  # type: ignore[call-overload]
    if acted:
        fields["actor_id"] = made_up_id("actr", place)
        links.append(Link("cause", story.events[(thing * 7 + place) % len(story.events)].event_id))
    if thing == 1 and event_type == "message.appended":
        fields["content"] = sealed(story.now)
    return part(event_type, attributes, links=tuple(links), **fields)


def _told(event_type: str, thing: int, place: int) -> tuple[Attributes | None, dict[str, object]]:
    run = {"run_id": made_up_id("run", place)}
    match event_type.partition(".")[0]:
        case "thread":
            parent = made_up_id("sthr", place) if place != thing else None
            links = (Link("child", made_up_id("chld", place)),)
            kind = "child" if parent else "main"
            return ThreadAttributes(kind=kind, parent_thread_id=parent), {"thread_id": made_up_id("sthr", thing), "links": links}
        case "turn":
            where = {"turn_id": made_up_id("turn", thing)}
            return TurnAttributes(), where if event_type == "turn.completed" else {**where, "thread_id": made_up_id("sthr", place)}
        case "run":
            imported = RunAttributes(origin="imported") if event_type == "run.accepted" else RunAttributes(reason="told")
            links = (Link("parent_run", made_up_id("run", place)),) if place != thing else ()
            accepted = {"turn_id": made_up_id("turn", place), "links": links} if event_type == "run.accepted" else {}
            return imported, {"run_id": made_up_id("run", thing), **accepted}
        case "message" | "source" | "tool":
            gap = "missing" if thing == 2 else None
            of = {
                "message": MessageAttributes(role="user", source_gap=gap),
                "source": SourceAttributes(source_kind="made-up", source_gap=gap),
                "tool": ToolAttributes(call_id=made_up_id("call", thing), gap=gap),
            }
            return of[event_type.partition(".")[0]], run
        case "child":
            return ChildAttributes(child_id=made_up_id("chld", thing), kind="agent", native=True), run
        case "wait":
            opened = event_type == "wait.opened"
            where = run if opened and place != 2 else {}
            return WaitAttributes(wait_id=made_up_id("wait", thing), kind="human" if opened else None), where
        case "approval":
            action = _DIGEST if event_type == "approval.requested" else None
            return ApprovalAttributes(approval_id=made_up_id("appr", thing), action_digest=action), run if action else {}
        case "effect":
            return _effect(event_type, thing, place), run
        case "artifact":
            links = (Link("supersedes", made_up_id("art", place)),) if place != thing else ()
            return ArtifactAttributes(artifact_id=made_up_id("art", thing), digest=_DIGEST), {**run, "links": links}
        case "context":
            return ContextAttributes(pin_kind=f"kind{thing}", revision="1"), run
        case "steering":
            return SteeringAttributes(kind="hint", target_run_id=made_up_id("run", place)), run
    return None, run


def _effect(event_type: str, thing: int, place: int) -> EffectAttributes:
    identifier = made_up_id("eff", thing)
    match event_type:
        case "effect.dispatched":
            approval = made_up_id("appr", place) if thing == 0 else None
            action = _DIGEST if thing == 0 else f"sha256:{thing}" + "5" * 63
            return EffectAttributes(
                effect_id=identifier, provider="made-up", request_digest=_DIGEST, action_digest=action, approval_id=approval
            )  # fmt: skip
        case "effect.reconciled":
            return EffectAttributes(effect_id=identifier, evidence_kind="provider_lookup", outcome="succeeded")
        case "effect.receipt_accepted":
            return EffectAttributes(effect_id=identifier, receipt_digest=_DIGEST)
    return EffectAttributes(effect_id=identifier)
