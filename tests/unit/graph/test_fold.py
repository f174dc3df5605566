"""What each fact adds to the graph: told through the pure core, so that only what may happen is asked about."""

import pytest
from msgspec import structs

from streams.graph import fold
from streams.graph.facts import TELLS
from streams.graph.items import EDGE_TYPES, NODE_TYPES, Edge, Gap, Graph, Node, edge_ends
from streams.graph.memory import MemoryGraph
from streams.session.events import (
    FAMILIES,
    OMITTED,
    TYPES,
    ApprovalAttributes,
    ArtifactAttributes,
    ChildAttributes,
    Content,
    ContextAttributes,
    Draft,
    EffectAttributes,
    Event,
    Link,
    MessageAttributes,
    RunAttributes,
    SessionAttributes,
    SteeringAttributes,
    ThreadAttributes,
    ToolAttributes,
    TurnAttributes,
    WaitAttributes,
    family_of,
)
from tests.support.examples import made_up_id
from tests.support.graphs import folded
from tests.support.story import NOON, SECOND, SESSION, WORKER, Story, part, sealed
from tests.support.walking import unexplained

RUN, TURN, THREAD, ACTOR = (made_up_id(prefix) for prefix in ("run", "turn", "sthr", "actr"))
WAIT, APPROVAL, EFFECT, CHILD, ARTIFACT = (made_up_id(prefix) for prefix in ("wait", "appr", "eff", "chld", "art"))
ACTION, REQUEST, RECEIPT = ("sha256:" + digit * 64 for digit in "123")


def graph_of(story: Story) -> Graph:
    graph = folded(story.events).graph()
    assert unexplained(graph, story.events) == []
    return graph


def node(graph: Graph, node_id: str) -> Node:
    return next(each for each in graph.nodes if each.id == node_id)


def edges(graph: Graph, edge_type: str) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in graph.edges if edge.type == edge_type]


def working(**attributes: object) -> tuple[Story, dict[str, object]]:
    """A Run in a Turn in a thread, and what its worker sends with every command."""
    story = Story().created()
    story.tell(part("thread.opened", thread_id=THREAD), part("turn.started", thread_id=THREAD, turn_id=TURN))
    story.tell(part("run.accepted", RunAttributes(**attributes), run_id=RUN, thread_id=THREAD, turn_id=TURN))  # type: ignore[arg-type]
    grant = story.claim()
    return story, {"by": WORKER, "report": story.report(grant)}


def again(story: Story, proof: dict[str, object]) -> dict[str, object]:
    """The same proof, with all that was seen since."""
    report = proof["report"]
    return {**proof, "report": structs.replace(report, expected_run_sequence=story.run().sequence)}  # type: ignore[type-var]


def test_a_session_with_its_threads_turns_and_runs() -> None:
    story, _ = working()
    graph = graph_of(story)
    assert [each.type for each in graph.nodes] == ["session", "thread", "turn", "run", "attempt"]
    assert edges(graph, "contains") == [(SESSION, THREAD), (THREAD, TURN), (TURN, RUN)]
    assert edges(graph, "attempt_of") == [(f"{RUN}.1", RUN)]
    assert (node(graph, SESSION).state, node(graph, SESSION).kind) == ("open", "live")
    assert (node(graph, RUN).state, node(graph, f"{RUN}.1").state, node(graph, TURN).state) == ("running", "started", "started")
    assert graph.head.sequence == len(story.events)
    assert graph.gaps == ()


def test_every_item_names_the_event_that_made_it_and_the_one_that_changed_it_last() -> None:
    story, proof = working()
    story.tell(part("run.completed", RunAttributes(outcome="done"), run_id=RUN), **proof)
    story.tell(part("turn.completed", TurnAttributes(outcome="completed"), turn_id=TURN))
    story.tell(part("session.closed", SessionAttributes(reason="done")))
    graph = graph_of(story)
    sequence = {each: story.types.index(each) + 1 for each in story.types}
    run, turn, session = node(graph, RUN), node(graph, TURN), node(graph, SESSION)
    assert (run.created_sequence, run.changed_sequence, run.state) == (sequence["run.accepted"], sequence["run.completed"], "completed")
    assert (turn.created_sequence, turn.changed_sequence, turn.outcome) == (
        sequence["turn.started"], sequence["turn.completed"], "completed",
    )  # fmt: skip
    assert (session.state, session.reason, session.changed_event_id) == ("closed", "done", story.events[-1].event_id)


def test_child_threads_and_child_work_keep_their_parents() -> None:
    story, proof = working()
    story.tell(part("child.started", ChildAttributes(child_id=CHILD, kind="agent", native=True), run_id=RUN), **proof)
    child_thread = made_up_id("sthr", "child")
    attributes = ThreadAttributes(kind="child", parent_thread_id=THREAD)
    story.tell(part("thread.opened", attributes, thread_id=child_thread, links=(Link("child", CHILD),)))
    story.tell(part("child.settled", ChildAttributes(child_id=CHILD, outcome="completed"), run_id=RUN), **again(story, proof))
    graph = graph_of(story)
    assert edges(graph, "child_of") == [(CHILD, RUN), (child_thread, CHILD), (child_thread, THREAD)]
    child = node(graph, CHILD)
    assert (child.type, child.state, child.outcome, child.native) == ("child", "settled", "completed", True)
    # A native helper is no public Run.
    assert [each.id for each in graph.nodes if each.type == "run"] == [RUN]


def test_a_run_of_another_run_and_what_it_was_caused_by() -> None:
    story, _ = working()
    second = made_up_id("run", "second")
    cause = story.events[2].event_id
    story.tell(part("run.accepted", run_id=second, links=(Link("parent_run", RUN), Link("cause", cause)), actor_id=ACTOR))
    graph = graph_of(story)
    assert edges(graph, "child_of") == [(second, RUN)]
    assert sorted(edges(graph, "caused_by")) == sorted([(second, TURN), (second, ACTOR)])
    assert (SESSION, ACTOR) in edges(graph, "contains")
    assert (SESSION, second) in edges(graph, "contains")


def test_a_new_generation_replaces_the_one_before() -> None:
    story, proof = working()
    story.tell(part("attempt.failed", run_id=RUN), **proof)
    story.claim(label="2")
    graph = graph_of(story)
    assert edges(graph, "replaces") == [(f"{RUN}.2", f"{RUN}.1")]
    assert edges(graph, "attempt_of") == [(f"{RUN}.1", RUN), (f"{RUN}.2", RUN)]
    assert [node(graph, f"{RUN}.{generation}").state for generation in (1, 2)] == ["failed", "started"]


def test_a_wait_of_a_run_and_its_answer() -> None:
    story, proof = working()
    story.tell(part("wait.opened", WaitAttributes(wait_id=WAIT, kind="human", expires_at=NOON + 60 * SECOND), run_id=RUN), **proof)
    assert node(graph_of(story), RUN).state == "waiting"
    story.tell(part("wait.answered", WaitAttributes(wait_id=WAIT), actor_id=ACTOR))
    graph = graph_of(story)
    assert edges(graph, "waits_on") == [(RUN, WAIT)]
    assert edges(graph, "answered_by") == [(WAIT, ACTOR)]
    assert (node(graph, WAIT).state, node(graph, WAIT).kind, node(graph, WAIT).expires_at) == ("answered", "human", NOON + 60 * SECOND)
    assert node(graph, RUN).state == "running"
    # The Run that waited is said to wait by two events: the wait's own, and the Run's.
    (edge,) = [each for each in graph.edges if each.type == "waits_on"]
    told = [story.events[sequence - 1].type for sequence in (edge.created_sequence, edge.changed_sequence)]
    assert told == ["wait.opened", "run.waiting"]


def test_a_wait_outside_of_runs_expires() -> None:
    story = Story().created()
    story.tell(part("wait.opened", WaitAttributes(wait_id=WAIT, kind="timer", expires_at=NOON + SECOND)))
    story.now += 2 * SECOND
    story.tell(part("wait.expired", WaitAttributes(wait_id=WAIT)))
    graph = graph_of(story)
    assert edges(graph, "contains") == [(SESSION, WAIT)]
    assert node(graph, WAIT).state == "expired"


def effect(event_type: str, **attributes: object) -> Draft:
    return part(event_type, EffectAttributes(effect_id=EFFECT, **attributes), run_id=RUN)  # type: ignore[arg-type]


def approved() -> tuple[Story, dict[str, object]]:
    story, proof = working()
    story.tell(part("approval.requested", ApprovalAttributes(approval_id=APPROVAL, action_digest=ACTION), run_id=RUN), **proof)
    story.tell(part("approval.granted", ApprovalAttributes(approval_id=APPROVAL), actor_id=ACTOR))
    dispatch = effect("effect.dispatched", provider="payments", request_digest=REQUEST, action_digest=ACTION, approval_id=APPROVAL)
    story.tell(dispatch, **again(story, proof))
    return story, proof


def test_an_effect_is_authorised_by_an_approval_and_settled_by_its_receipt_and_the_two_stay_apart() -> None:
    story, proof = approved()
    graph = graph_of(story)
    assert edges(graph, "contains")[-1] == (SESSION, ACTOR)
    assert (RUN, APPROVAL) in edges(graph, "contains")
    assert edges(graph, "answered_by") == [(APPROVAL, ACTOR)]
    assert edges(graph, "dispatched") == [(f"{RUN}.1", EFFECT)]
    assert edges(graph, "authorised_by") == [(EFFECT, APPROVAL)]
    assert (node(graph, APPROVAL).state, node(graph, EFFECT).state, edges(graph, "settled_by")) == ("granted", "dispatched", [])
    story.tell(effect("effect.receipt_accepted", receipt_digest=RECEIPT), **again(story, proof))
    graph = graph_of(story)
    evidence = story.events[-1].event_id
    assert edges(graph, "settled_by") == [(EFFECT, evidence)]
    settled, receipt = node(graph, EFFECT), node(graph, evidence)
    assert (settled.state, settled.outcome, settled.receipt_digest, settled.action_digest) == ("settled", "succeeded", RECEIPT, ACTION)
    assert (receipt.type, receipt.kind, receipt.receipt_digest) == ("evidence", "receipt", RECEIPT)


def test_an_effect_whose_attempt_is_gone_stays_indeterminate_until_evidence_settles_it() -> None:
    story, proof = approved()
    story.tell(part("attempt.failed", run_id=RUN), **again(story, proof))
    assert node(graph_of(story), EFFECT).state == "indeterminate"
    story.tell(effect("effect.reconciled", evidence_kind="provider_lookup", outcome="not_performed"))
    graph = graph_of(story)
    evidence = node(graph, story.events[-1].event_id)
    assert (evidence.kind, evidence.outcome) == ("provider_lookup", "not_performed")
    assert edges(graph, "settled_by") == [(EFFECT, evidence.id)]


def test_a_denied_approval() -> None:
    story = Story().created()
    story.tell(part("approval.requested", ApprovalAttributes(approval_id=APPROVAL, action_digest=ACTION)))
    story.tell(part("approval.denied", ApprovalAttributes(approval_id=APPROVAL)))
    graph = graph_of(story)
    assert (node(graph, APPROVAL).state, edges(graph, "answered_by")) == ("denied", [])


def test_artifacts_are_produced_and_replaced_and_context_is_consumed() -> None:
    story, proof = working()
    newer, digest = made_up_id("art", "newer"), "sha256:" + "9" * 64
    story.tell(part("context.pinned", ContextAttributes(pin_kind="repository", revision="main@1", digest=digest), run_id=RUN), **proof)
    recorded = part("artifact.recorded", ArtifactAttributes(artifact_id=ARTIFACT, digest=digest), run_id=RUN, attempt_generation=1)
    superseding = part("artifact.recorded", ArtifactAttributes(artifact_id=newer), run_id=RUN, links=(Link("supersedes", ARTIFACT),))
    story.tell(recorded, superseding, part("artifact.recorded", run_id=RUN), **again(story, proof))
    story.tell(part("artifact.recorded", ArtifactAttributes(artifact_id=made_up_id("art", "loose")), thread_id=THREAD))
    graph = graph_of(story)
    assert edges(graph, "consumed") == [(RUN, f"{RUN}.repository")]
    assert node(graph, f"{RUN}.repository").revision == "main@1"
    nameless = story.events[-2].event_id
    assert edges(graph, "produced") == [(f"{RUN}.1", ARTIFACT), (RUN, newer), (RUN, nameless)]
    assert edges(graph, "replaces") == [(newer, ARTIFACT)]
    assert (THREAD, made_up_id("art", "loose")) in edges(graph, "contains")


def test_runs_with_equal_context_do_not_merge() -> None:
    story = Story().created()
    for label in "ab":
        run_id = made_up_id("run", label)
        story.tell(part("run.accepted", run_id=run_id))
        story.tell(part("context.pinned", ContextAttributes(pin_kind="repository", revision="main@1"), run_id=run_id))
    graph = graph_of(story)
    assert len({target for _, target in edges(graph, "consumed")}) == 2


def test_steering_belongs_to_the_run_that_it_targets() -> None:
    story, _ = working()
    story.tell(part("steering.applied", SteeringAttributes(kind="hint", target_run_id=RUN), run_id=RUN, actor_id=ACTOR))
    graph = graph_of(story)
    assert node(graph, RUN).changed_event_id == story.events[-1].event_id
    assert [each.type for each in graph.nodes].count("run") == 1


def test_messages_and_tool_calls_leave_nothing_but_the_gaps_that_their_source_had() -> None:
    story = Story().created()
    run_id = made_up_id("run", "imported")
    story.with_imported_run(run_id)
    before = len(graph_of(story).nodes)
    story.tell(
        part("message.appended", MessageAttributes(role="user", source_gap="parent_missing"), run_id=run_id),
        part("tool.called", ToolAttributes(call_id=made_up_id("call")), run_id=run_id),
        part("tool.returned", ToolAttributes(call_id=made_up_id("call", 2), gap="call_missing"), run_id=run_id),
        importing=True,
    )
    graph = graph_of(story)
    assert len(graph.nodes) == before
    assert [(gap.reason, gap.node_id, story.events[gap.first_sequence - 1].type) for gap in graph.gaps] == [
        ("parent_missing", run_id, "message.appended"), ("call_missing", run_id, "tool.returned"),
    ]  # fmt: skip


def test_content_never_enters_but_that_there_was_some() -> None:
    story = Story().created()
    story.tell(part("turn.started", turn_id=TURN, content=sealed()))
    story.tell(part("turn.completed", turn_id=TURN, content=Content(OMITTED)))
    turn = node(graph_of(story), TURN)
    assert turn.content is not None
    assert (turn.content.state, turn.content.digest) == ("sealed", "00" * 32)
    assert turn.changed_content is not None
    assert (turn.changed_content.state, turn.changed_content.digest) == ("omitted", None)
    assert "ciphertext" not in repr(turn)


def test_what_no_event_has_made_is_a_gap_and_not_a_node() -> None:
    story = Story().created()
    nowhere, elsewhere = made_up_id("run", "nowhere"), made_up_id("sess", "elsewhere")
    story.tell(part("run.accepted", run_id=RUN, links=(Link("parent_run", nowhere), Link("parent_session", elsewhere))))
    graph = graph_of(story)
    assert [(gap.reason, gap.target, gap.node_id) for gap in graph.gaps] == [
        ("elsewhere", elsewhere, RUN), ("endpoint_missing", nowhere, RUN),
    ]  # fmt: skip
    assert edges(graph, "child_of") == []


def hollow(story: Story, *missing: int) -> list[Event]:
    return [event for event in story.events if event.sequence not in missing]


def test_events_that_are_missing_are_a_gap_and_what_tells_of_theirs_says_so() -> None:
    story, _ = working()
    events = hollow(story, 4, 5)  # run.accepted, attempt.started; run.started is left
    graph = folded(events).graph()
    assert unexplained(graph, events) == []
    hole, told = graph.gaps
    assert (hole.reason, hole.first_sequence, hole.last_sequence, hole.node_id) == ("sequence.missing", 4, 5, SESSION)
    assert (told.reason, told.target) == ("node_missing", RUN)
    assert graph.head.sequence == 6


def test_a_session_whose_first_event_is_missing_is_there_in_an_unknown_state() -> None:
    story, _ = working()
    graph = folded(hollow(story, 1)).graph()
    session = graph.nodes[0]
    assert (session.id, session.state, session.created_sequence, session.content) == (SESSION, None, 2, None)


def test_a_record_that_cannot_be_read_is_a_gap_whose_size_the_next_event_tells() -> None:
    story, _ = working()
    rows = MemoryGraph()
    for event in story.events[:2]:
        fold.apply(rows, event)
    fold.set_aside(rows, SESSION, 70, "wire.magic")
    fold.set_aside(rows, SESSION, 71, "key.misplaced")
    assert [(gap.first_sequence, gap.last_sequence) for gap in rows.graph().gaps] == [(3, 2), (3, 2)]
    fold.apply(rows, story.events[3])
    first, second = [gap for gap in rows.graph().gaps if gap.offset is not None]
    assert (first.reason, first.offset, first.first_sequence, first.last_sequence) == ("wire.magic", 70, 3, 3)
    assert (second.reason, second.offset, second.last_sequence) == ("key.misplaced", 71, 2)
    # One more, in whose place no sequence is missing.
    fold.set_aside(rows, SESSION, 90, "wire.magic")
    fold.apply(rows, story.events[4])
    assert [(gap.first_sequence, gap.last_sequence) for gap in rows.graph().gaps if gap.offset == 90] == [(5, 4)]


def test_accepted_events_are_not_rewritten() -> None:
    story = Story().created()
    rows = folded(story.events)
    assert not fold.follows(rows, story.events[0])


@pytest.mark.parametrize("event_type", sorted(TYPES))
def test_no_event_however_bare_makes_the_fold_fail(event_type: str) -> None:
    for attributes in (None, FAMILIES[family_of(event_type)]()):
        draft = part(event_type, attributes)
        added = {"sequence": 1, "command_offset": 0, "command_last": True, "accepted_at": NOON, "previous_hash": bytes(32)}
        event = Event(**{**structs.asdict(draft), "event_id": made_up_id("evt"), **added}, hash=bytes(32))
        rows = MemoryGraph()
        fold.apply(rows, event)
        assert rows.node(SESSION) is not None


def test_a_type_of_a_newer_release_makes_nothing() -> None:
    story = Story().created()
    newer = structs.replace(story.events[0], type="dream.dreamt", sequence=2)
    assert [each.type for each in folded([*story.events, newer]).graph().nodes] == ["session"]


def test_the_tables_cover_the_vocabulary() -> None:
    assert TELLS.keys() <= TYPES
    capsules = {f"capsule.{what}" for what in ("created", "revoked", "imported", "decided")}
    assert TYPES - TELLS.keys() == {"message.appended", "source.recorded", "tool.called", "tool.returned"} | capsules
    assert len(set(NODE_TYPES)) == 14
    for edge_type in EDGE_TYPES:
        edge = Edge(
            id=f"{edge_type}:{RUN}.1:{SESSION}", type=edge_type, source=f"{RUN}.1", target=SESSION, created_sequence=1, created_event_id="",
            changed_sequence=1, changed_event_id="",
        )  # fmt: skip
        assert edge_ends(edge.id) == (edge.source, edge.target)
    gap = Gap(id=f"gap:{made_up_id('evt')}:node_missing", reason="", first_sequence=1, last_sequence=1, node_id=SESSION)
    assert edge_ends(gap.id) is None
