"""What the seed *Session execution graph* says of the graph, sentence by sentence, told through the pure core."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec import structs

from streams.graph.facts import TELLS
from streams.graph.items import Edge, Graph, Node
from streams.session.commands import Kind, Report
from streams.session.decide import Decision
from streams.session.events import (
    OMITTED,
    ApprovalAttributes,
    AttemptAttributes,
    ChildAttributes,
    Content,
    ContextAttributes,
    Draft,
    EffectAttributes,
    Event,
    Link,
    MessageAttributes,
    RunAttributes,
    ToolAttributes,
    WaitAttributes,
)
from streams.session.outcomes import Grant
from tests.support.examples import made_up_id
from tests.support.graphs import folded
from tests.support.recovering import ENVIRONMENT, HARNESS, VERIFIED, fork, leave_checkpoint, native, replace_part
from tests.support.story import OTHER, SECOND, SESSION, WORKER, Story, part, sealed
from tests.support.walking import unexplained

RUN, TURN, THREAD, ACTOR = (made_up_id(prefix) for prefix in ("run", "turn", "sthr", "actr"))
WAIT, APPROVAL, EFFECT, CHILD = (made_up_id(prefix) for prefix in ("wait", "appr", "eff", "chld"))
CHECKPOINT, FORK = made_up_id("ckpt"), made_up_id("fork", SESSION)
ACTION, REQUEST, RECEIPT = ("sha256:" + digit * 64 for digit in "123")
DAY = 24 * 3600 * SECOND


def graph_of(events: Iterable[Event]) -> Graph:
    told = list(events)
    graph = folded(told).graph()
    assert unexplained(graph, told) == []
    return graph


def node(graph: Graph, node_id: str) -> Node:
    return next(each for each in graph.nodes if each.id == node_id)


def edge(graph: Graph, edge_type: str, source: str, target: str) -> Edge:
    return next(each for each in graph.edges if (each.type, each.source, each.target) == (edge_type, source, target))


def edges(graph: Graph, edge_type: str) -> list[tuple[str, str]]:
    return [(each.source, each.target) for each in graph.edges if each.type == edge_type]


def types(graph: Graph) -> list[str]:
    return [each.type for each in graph.nodes]


def working() -> tuple[Story, Grant]:
    """A Run in a Turn in a thread, held by a worker."""
    story = Story().created()
    story.tell(part("thread.opened", thread_id=THREAD), part("turn.started", thread_id=THREAD, turn_id=TURN, actor_id=ACTOR))
    story.tell(part("run.accepted", RunAttributes(harness="harness"), run_id=RUN, thread_id=THREAD, turn_id=TURN))
    return story, story.claim()


def say(story: Story, grant: Grant, *parts: Draft) -> Decision:
    return story.tell(*parts, by=WORKER, report=story.report(grant))


def replaced(story: Story) -> None:
    """The first attempt, which was ready and failed, gives way to another one on evidence."""
    story.tell(replace_part(story), kind=Kind.REPLACE, by=OTHER)


def recovered() -> Story:
    """A checkpoint, a ready attempt that failed, its replacement, an effect, a wait, child work, a fork: a bit of everything."""
    story, grant = working()
    say(story, grant, part("attempt.ready", run_id=RUN))
    say(story, grant, part("child.started", ChildAttributes(child_id=CHILD, kind="agent", native=True), run_id=RUN))
    say(story, grant, part("wait.opened", WaitAttributes(wait_id=WAIT, kind="human"), run_id=RUN))
    story.tell(part("wait.answered", WaitAttributes(wait_id=WAIT), actor_id=ACTOR))
    dispatched = EffectAttributes(effect_id=EFFECT, provider="payments", request_digest=REQUEST, action_digest=ACTION)
    say(story, grant, part("effect.dispatched", dispatched, run_id=RUN))
    leave_checkpoint(story, grant, **native())
    say(story, grant, part("attempt.failed", run_id=RUN))
    replaced(story)
    evidence = EffectAttributes(effect_id=EFFECT, evidence_kind="provider_lookup", outcome="succeeded")
    story.tell(part("effect.reconciled", evidence))
    fork(story, checkpoint_id=CHECKPOINT)
    return story


class TestTheGraphIsAProjectionOverAcceptedFacts:
    def test_it_relates_turns_runs_attempts_actors_child_work_checkpoints_waits_and_accepted_external_evidence(self) -> None:
        graph = graph_of(recovered().events)
        assert set(types(graph)) == {
            "session", "thread", "turn", "run", "attempt", "actor", "child", "checkpoint", "wait", "effect", "evidence",
        }  # fmt: skip
        assert edges(graph, "waits_on") == [(RUN, WAIT)]
        assert edges(graph, "answered_by") == [(WAIT, ACTOR)]
        assert edges(graph, "child_of") == [(CHILD, RUN)]
        assert edges(graph, "produced") == [(f"{RUN}.1", CHECKPOINT)]
        assert (f"{RUN}.2", CHECKPOINT) in edges(graph, "consumed")
        assert [source for source, _ in edges(graph, "settled_by")] == [EFFECT]

    def test_it_creates_no_other_execution_aggregate(self) -> None:
        """Every node and edge is what an accepted event of the session names; the fold has no state of its own beside them."""
        story = recovered()
        graph = graph_of(story.events)
        told = {event.event_id: event.sequence for event in story.events}
        for item in (*graph.nodes, *graph.edges):
            assert told[item.created_event_id] == item.created_sequence
            assert told[item.changed_event_id] == item.changed_sequence
        assert graph_of(story.events) == graph

    def test_it_preserves_one_session_position(self) -> None:
        story = recovered()
        for through in range(1, len(story.events) + 1):
            assert folded(story.events[:through]).graph().head.sequence == through

    def test_no_uncommitted_output_stands_in_it(self) -> None:
        """What a worker sends and the authority refuses leaves no trace."""
        story, grant = working()
        before = graph_of(story.events)
        late = structs.replace(story.report(grant), generation=2)
        assert story.refusal(part("child.started", ChildAttributes(child_id=CHILD), run_id=RUN), by=WORKER, report=late)
        assert story.refusal(
            part("wait.opened", WaitAttributes(wait_id=WAIT, kind="human"), run_id=RUN), by=OTHER, report=story.report(grant)
        )
        assert graph_of(story.events) == before

    def test_it_represents_no_provider_caches_credentials_or_process_memory(self) -> None:
        """Beside identifiers, words and digests that the facts publish, an item has no field in which any could stand."""
        assert set(Node.__struct_fields__) == {
            "id", "type", "state", "kind", "native", "outcome", "reason", "revision", "thread_id", "turn_id", "run_id", "generation",
            "native_task_id", "action_digest", "request_digest", "receipt_digest", "digest", "harness_revision", "environment_revision",
            "through_sequence", "through_event_id", "fork_id", "occurred_at", "expires_at", "created_at", "changed_at", "content",
            "changed_content", "created_sequence", "created_event_id", "changed_sequence", "changed_event_id",
        }  # fmt: skip
        text = msgspec.json.encode(graph_of(recovered().events)).decode()
        for kept_private in ("claim", "principal_id", "snap_", "key_", "lease"):
            assert kept_private not in text, kept_private


class TestExecutionLineage:
    def test_independent_requests_with_equal_configuration_never_merge(self) -> None:
        story = Story().created()
        runs = [made_up_id("run", label) for label in "abc"]
        for run_id in runs:
            story.tell(part("run.accepted", RunAttributes(lane="gpu", harness="a", harness_revision="1"), run_id=run_id))
            story.tell(part("context.pinned", ContextAttributes(pin_kind="repository", revision="main@1", digest=ACTION), run_id=run_id))
        graph = graph_of(story.events)
        assert [each.id for each in graph.nodes if each.type == "run"] == runs
        assert len(set(edges(graph, "consumed"))) == 3

    def test_replacing_a_worker_makes_no_new_user_request_public_run_or_transcript(self) -> None:
        story, grant = working()
        say(story, grant, part("attempt.ready", run_id=RUN))
        leave_checkpoint(story, grant, **native())
        before = types(graph_of(story.events))
        say(story, grant, part("attempt.failed", run_id=RUN))
        replaced(story)
        graph = graph_of(story.events)
        after = types(graph)
        assert sorted(after) == sorted([*before, "attempt"])
        assert edges(graph, "attempt_of") == [(f"{RUN}.1", RUN), (f"{RUN}.2", RUN)]
        assert edge(graph, "contains", TURN, RUN).changed_sequence == edge(graph, "contains", TURN, RUN).created_sequence

    def test_restarting_a_harness_keeps_run_and_attempt(self) -> None:
        story, grant = working()
        say(story, grant, part("attempt.ready", run_id=RUN))
        before = graph_of(story.events)
        say(story, grant, part("attempt.ready", run_id=RUN))
        after = graph_of(story.events)
        assert [each.id for each in after.nodes] == [each.id for each in before.nodes]
        assert node(after, f"{RUN}.1").native_task_id != node(before, f"{RUN}.1").native_task_id

    def test_matching_wait_answers_tool_rounds_and_recovery_keep_the_original_run(self) -> None:
        story = recovered()
        attempt = story.attempt()
        report = Report(RUN, attempt.generation, attempt.native_task_id, story.run().sequence)
        story.tell(part("tool.called", ToolAttributes(call_id=made_up_id("call")), run_id=RUN), by=OTHER, report=report)
        graph = graph_of(story.events)
        assert [each.id for each in graph.nodes if each.type == "run"] == [RUN]

    def test_a_native_helper_is_no_public_run(self) -> None:
        graph = graph_of(recovered().events)
        helper = node(graph, CHILD)
        assert (helper.type, helper.native) == ("child", True)
        assert [each.id for each in graph.nodes if each.type == "run"] == [RUN]

    def test_child_work_keeps_its_parent(self) -> None:
        assert edges(graph_of(recovered().events), "child_of") == [(CHILD, RUN)]


class TestRecovery:
    def test_an_attempt_that_restores_a_checkpoint_consumes_it_and_names_what_it_replaces(self) -> None:
        story, grant = working()
        say(story, grant, part("attempt.ready", run_id=RUN))
        leave_checkpoint(story, grant, **native())
        say(story, grant, part("attempt.failed", run_id=RUN))
        frontier = story.run().sequence
        replaced(story)
        graph = graph_of(story.events)
        assert edges(graph, "replaces") == [(f"{RUN}.2", f"{RUN}.1")]
        assert edge(graph, "replaces", f"{RUN}.2", f"{RUN}.1").through_sequence == frontier
        restored, before = node(graph, f"{RUN}.2"), node(graph, f"{RUN}.1")
        assert (restored.kind, restored.digest, restored.harness_revision) == ("checkpoint_restore", VERIFIED, HARNESS)
        assert before.state == "replaced"
        consumed = edge(graph, "consumed", f"{RUN}.2", CHECKPOINT)
        assert story.events[consumed.created_sequence - 1].type == "checkpoint.consumed"
        assert node(graph, CHECKPOINT).changed_sequence == consumed.created_sequence
        assert (f"{RUN}.2", SESSION) not in edges(graph, "rebuilt_from")

    def test_a_checkpoint_tells_its_boundary_its_coordinates_and_when_it_ends(self) -> None:
        story, grant = working()
        at = story.events[-1]
        leave_checkpoint(story, grant)
        checkpoint = node(graph_of(story.events), CHECKPOINT)
        assert (checkpoint.kind, checkpoint.state) == ("event_log_rebuild", None)
        assert (checkpoint.through_sequence, checkpoint.through_event_id) == (at.sequence, at.event_id)
        assert (checkpoint.harness_revision, checkpoint.environment_revision) == (HARNESS, ENVIRONMENT)
        assert checkpoint.expires_at == story.now + 30 * DAY

    def test_an_attempt_rebuilt_from_the_log_says_so_and_why(self) -> None:
        story, grant = working()
        assert edge(graph_of(story.events), "rebuilt_from", f"{RUN}.1", SESSION).reason == "no_checkpoint"
        leave_checkpoint(story, grant, **native())
        story.now += 31 * DAY
        story.claim(label="2")
        graph = graph_of(story.events)
        assert edge(graph, "rebuilt_from", f"{RUN}.2", SESSION).reason == "checkpoint_expired"
        assert node(graph, f"{RUN}.2").kind == "event_log_rebuild"
        assert edges(graph, "consumed") == []

    def test_an_imported_attempt_says_nothing_of_recovery(self) -> None:
        story = Story().created(origin="imported").with_imported_run()
        graph = graph_of(story.events)
        assert node(graph, f"{RUN}.1").kind is None
        assert edges(graph, "rebuilt_from") == []

    def test_a_history_that_is_not_wholly_readable_is_a_typed_gap_at_the_attempt(self) -> None:
        story = Story().created().with_run()
        story.tell(part("message.appended", MessageAttributes(role="user"), content=Content(OMITTED)))
        digest = AttemptAttributes(claim_digest=ACTION, incomplete_ok=True)
        story.tell(part("attempt.started", digest, run_id=RUN), kind=Kind.CLAIM, by=WORKER)
        graph = graph_of(story.events)
        started = node(graph, f"{RUN}.1")
        (gap,) = graph.gaps
        assert (gap.reason, gap.node_id, gap.first_sequence) == ("history_unavailable", started.id, started.created_sequence)

    @pytest.mark.parametrize("ended", ["attempt.failed", "lapsed"])
    def test_an_attempt_that_never_was_ready_is_replaced_by_the_next_one_once_it_has_ended(self, ended: str) -> None:
        story, grant = working()
        if ended == "lapsed":
            story.now += 60 * SECOND
        else:
            say(story, grant, part("attempt.failed", run_id=RUN))
        story.claim(label="2")
        graph = graph_of(story.events)
        assert node(graph, f"{RUN}.1").state == "failed"
        assert edges(graph, "replaces") == [(f"{RUN}.2", f"{RUN}.1")]

    def test_that_one_attempt_follows_another_replaces_nothing_while_no_fact_says_that_the_first_has_ended(self) -> None:
        story, grant = working()
        say(story, grant, part("attempt.failed", run_id=RUN))
        story.claim(label="2")
        kept = [event for event in story.events if event.type != "attempt.failed"]
        graph = folded(kept).graph()
        assert unexplained(graph, kept) == []
        assert node(graph, f"{RUN}.1").state == "started"
        assert edges(graph, "replaces") == []
        assert [gap.reason for gap in graph.gaps] == ["sequence.missing"]


class TestForks:
    def test_a_source_tells_of_its_fork_and_that_the_rest_is_elsewhere(self) -> None:
        story, _ = working()
        boundary = story.events[-1]
        child = fork(story)
        graph = graph_of(story.events)
        seen = node(graph, child.events[0].session_id)
        assert (seen.type, seen.state, seen.fork_id) == ("session", None, FORK)
        from_source = edge(graph, "forked_from", seen.id, SESSION)
        assert (from_source.through_sequence, from_source.through_event_id) == (boundary.sequence, boundary.event_id)
        assert [(gap.reason, gap.node_id, gap.target) for gap in graph.gaps] == [("elsewhere", seen.id, seen.id)]
        assert node(graph, SESSION).state == "open"

    def test_a_fork_by_checkpoint_consumes_it_and_is_forked_from_it(self) -> None:
        story, grant = working()
        leave_checkpoint(story, grant, **native())
        child = fork(story, checkpoint_id=CHECKPOINT)
        graph = graph_of(story.events)
        assert edges(graph, "forked_from") == [(child.events[0].session_id, CHECKPOINT), (child.events[0].session_id, SESSION)]
        assert edges(graph, "consumed") == [(child.events[0].session_id, CHECKPOINT)]

    def test_a_fork_tells_of_its_source_and_of_the_checkpoint_that_it_brought_along(self) -> None:
        story, grant = working()
        leave_checkpoint(story, grant, **native())
        child = fork(story, checkpoint_id=CHECKPOINT)
        graph = graph_of(child.events)
        own, source = node(graph, child.events[0].session_id), node(graph, SESSION)
        assert (own.state, own.kind, own.fork_id) == ("open", "live", FORK)
        assert (source.type, source.state) == ("session", None)
        assert edges(graph, "forked_from") == [(own.id, SESSION), (own.id, CHECKPOINT)]
        assert edges(graph, "produced") == [(SESSION, CHECKPOINT)]
        brought, made = node(graph, CHECKPOINT), node(graph_of(story.events), CHECKPOINT)
        assert (brought.expires_at, brought.through_sequence) == (made.expires_at, made.through_sequence)
        assert [(gap.reason, gap.node_id) for gap in graph.gaps] == [("elsewhere", SESSION)]
        assert graph.head.session_id == own.id

    def test_nothing_of_the_source_is_made_up_in_the_fork(self) -> None:
        """Runs, Turns and effects of the source stay in the source's graph."""
        story = recovered()
        child = fork(story, label="another")
        assert types(graph_of(child.events)) == ["session", "session"]


class TestExternalEffects:
    def test_approvals_and_receipts_are_correlated_and_neither_becomes_the_other(self) -> None:
        story, grant = working()
        say(story, grant, part("approval.requested", ApprovalAttributes(approval_id=APPROVAL, action_digest=ACTION), run_id=RUN))
        story.tell(part("approval.granted", ApprovalAttributes(approval_id=APPROVAL), actor_id=ACTOR))
        dispatched = EffectAttributes(
            effect_id=EFFECT, provider="payments", request_digest=REQUEST, action_digest=ACTION, approval_id=APPROVAL
        )  # fmt: skip
        say(story, grant, part("effect.dispatched", dispatched, run_id=RUN))
        graph = graph_of(story.events)
        assert edges(graph, "authorised_by") == [(EFFECT, APPROVAL)]
        assert (node(graph, EFFECT).state, edges(graph, "settled_by")) == ("dispatched", [])
        say(story, grant, part("effect.receipt_accepted", EffectAttributes(effect_id=EFFECT, receipt_digest=RECEIPT), run_id=RUN))
        graph = graph_of(story.events)
        approval, effect = node(graph, APPROVAL), node(graph, EFFECT)
        assert (approval.state, approval.receipt_digest) == ("granted", None)
        assert (effect.state, effect.receipt_digest) == ("settled", RECEIPT)
        assert [target for _, target in edges(graph, "settled_by")] == [story.events[-1].event_id]

    def test_a_receipt_makes_no_approval(self) -> None:
        story, grant = working()
        dispatched = EffectAttributes(effect_id=EFFECT, provider="payments", request_digest=REQUEST, action_digest=ACTION)
        say(story, grant, part("effect.dispatched", dispatched, run_id=RUN))
        say(story, grant, part("effect.receipt_accepted", EffectAttributes(effect_id=EFFECT, receipt_digest=RECEIPT), run_id=RUN))
        graph = graph_of(story.events)
        assert "approval" not in types(graph)
        assert edges(graph, "authorised_by") == []

    def test_a_restored_checkpoint_leaves_the_same_effect_indeterminate(self) -> None:
        story, grant = working()
        say(story, grant, part("attempt.ready", run_id=RUN))
        dispatched = EffectAttributes(effect_id=EFFECT, provider="payments", request_digest=REQUEST, action_digest=ACTION)
        say(story, grant, part("effect.dispatched", dispatched, run_id=RUN))
        leave_checkpoint(story, grant, **native())
        say(story, grant, part("attempt.failed", run_id=RUN))
        replaced(story)
        graph = graph_of(story.events)
        assert [(each.id, each.state) for each in graph.nodes if each.type == "effect"] == [(EFFECT, "indeterminate")]
        assert edges(graph, "dispatched") == [(f"{RUN}.1", EFFECT)]


class TestRetention:
    def test_content_never_enters(self) -> None:
        story = Story().created()
        content = structs.replace(sealed(), ciphertext=b"swordfish" * 8)
        story.tell(part("turn.started", turn_id=TURN, content=content))
        graph = graph_of(story.events)
        assert b"swordfish" not in msgspec.json.encode(graph)
        assert "ciphertext" not in values(graph)

    def test_it_reconstructs_no_deleted_bytes(self) -> None:
        """Structural identities stay; what was omitted is told as omitted, with no digest and no bytes in its place."""
        story = Story().created()
        story.tell(part("turn.started", turn_id=TURN, content=Content(OMITTED)))
        turn = node(graph_of(story.events), TURN)
        assert turn.content is not None
        assert (turn.content.state, turn.content.digest, turn.content.expiry_day) == ("omitted", None, None)


class TestNothingIsInferred:
    def test_unsupported_collaboration_stays_explicit_and_no_team_is_inferred_from_timing(self) -> None:
        """Two Runs at the same moment, of one actor, with the same tools: no edge between them, because no fact draws one."""
        story = Story().created()
        runs = [made_up_id("run", label) for label in "ab"]
        story.tell(*[part("run.accepted", run_id=run_id, actor_id=ACTOR) for run_id in runs])
        graph = graph_of(story.events)
        assert not [each for each in graph.edges if {each.source, each.target} == set(runs)]

    def test_what_a_fact_names_and_the_session_does_not_have_is_a_gap(self) -> None:
        story = Story().created()
        other, absent = made_up_id("sess", "other"), made_up_id("run", "absent")
        links = (Link("parent_session", other), Link("parent_run", absent))
        story.tell(part("run.accepted", run_id=RUN, links=links))
        graph = graph_of(story.events)
        assert {(gap.reason, gap.target) for gap in graph.gaps} == {("elsewhere", other), ("endpoint_missing", absent)}
        assert edges(graph, "child_of") == []

    def test_tool_calls_and_messages_are_the_tape_and_not_the_graph(self) -> None:
        assert {"message.appended", "tool.called", "tool.returned", "source.recorded"}.isdisjoint(TELLS)


def values(item: object) -> set[str]:
    """The names of all fields within."""
    if isinstance(item, msgspec.Struct):
        return {name for field in item.__struct_fields__ for name in (field, *values(getattr(item, field)))}
    return {name for each in item for name in values(each)} if isinstance(item, tuple) else set()
