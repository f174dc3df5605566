"""Walks every node and edge of a graph back to the event that it names, and asks that event whether it says so.

Written from the events alone, without the fold's own tables: what the fold draws and no event says is found here.
"""

from collections.abc import Callable, Iterable

from streams.graph.items import EDGE_TYPES, Edge, Graph, Node
from streams.session.events import (
    ApprovalAttributes,
    ArtifactAttributes,
    AttemptAttributes,
    CheckpointAttributes,
    ChildAttributes,
    ContextAttributes,
    EffectAttributes,
    Event,
    SessionAttributes,
    ThreadAttributes,
    WaitAttributes,
)

Says = Callable[[Event, Node, Node], bool]


def unexplained(graph: Graph, events: Iterable[Event]) -> list[str]:
    """What the events do not explain; empty where all is well."""
    known = {event.event_id: event for event in events}
    nodes = {node.id: node for node in graph.nodes}
    wrong: list[str] = []
    for item in (*graph.nodes, *graph.edges):
        for told in ("created", "changed"):
            event = known.get(getattr(item, f"{told}_event_id"))
            if event is None or event.sequence != getattr(item, f"{told}_sequence"):
                wrong.append(f"{item.id}: {told} by no event of the session")
        if item.created_sequence > item.changed_sequence:
            wrong.append(f"{item.id}: changed before it was made")
    for node in graph.nodes:
        event = known.get(node.created_event_id)
        if event is not None and not names(event, node):
            wrong.append(f"{node.id}: {event.type} does not name it")
        changed = known.get(node.changed_event_id)
        if changed is not None and not names(changed, node):
            wrong.append(f"{node.id}: {changed.type} changed it and does not name it")
    for edge in graph.edges:
        wrong += _edge(edge, nodes, known)
    for gap in graph.gaps:
        if gap.node_id not in nodes:
            wrong.append(f"{gap.id}: at no node")
        if gap.event_id is not None and gap.event_id not in known:
            wrong.append(f"{gap.id}: of no event")
    return wrong


def _edge(edge: Edge, nodes: dict[str, Node], known: dict[str, Event]) -> list[str]:
    source, target = nodes.get(edge.source), nodes.get(edge.target)
    if source is None or target is None:
        return [f"{edge.id}: an end is not there"]
    if edge.type not in SAYS:
        return [f"{edge.id}: nobody knows what would explain it"]
    wrong = []
    if edge.created_sequence < max(source.created_sequence, target.created_sequence):
        wrong.append(f"{edge.id}: drawn before its ends were made")
    for event_id in (edge.created_event_id, edge.changed_event_id):
        event = known.get(event_id)
        if event is None or not SAYS[edge.type](event, source, target):
            wrong.append(f"{edge.id}: {event.type if event is not None else event_id} does not say so")
    return wrong


def names(event: Event, node: Node) -> bool:
    """Whether the event holds the node's id, or what it is made of."""
    attempt = f"{event.run_id}.{event.attempt_generation}"
    held = {
        event.session_id, event.thread_id, event.turn_id, event.run_id, event.actor_id, event.event_id, attempt, named(event),
    }  # fmt: skip
    return node.id in held | other_sessions(event)


def named(event: Event) -> str | None:
    """What the event's own family calls its thing."""
    match event.attributes:
        case WaitAttributes(wait_id=identifier) | ApprovalAttributes(approval_id=identifier) | EffectAttributes(effect_id=identifier):
            return identifier
        case ChildAttributes(child_id=identifier) | ArtifactAttributes(artifact_id=identifier):
            return identifier
        case CheckpointAttributes(checkpoint_id=identifier):
            return identifier
        case ContextAttributes(pin_kind=kind):
            return f"{event.run_id}.{kind}"
    return None


def other_sessions(event: Event) -> set[str | None]:
    match event.attributes:
        case SessionAttributes(source_session_id=source, child_session_id=child):
            return {source, child}
        case CheckpointAttributes(origin_session_id=origin):
            return {origin}
    return set()


def links(event: Event, relation: str) -> list[str]:
    return [link.id for link in event.links if link.relation == relation]


def speakers(event: Event) -> set[str | None]:
    return {event.run_id, f"{event.run_id}.{event.attempt_generation}"}


def _contains(event: Event, source: Node, target: Node) -> bool:
    return names(event, target) and source.id in (event.session_id, event.thread_id, event.turn_id, event.run_id) and source is not target


def _attempt_of(event: Event, source: Node, target: Node) -> bool:
    return event.type == "attempt.started" and (source.id, target.id) == (f"{event.run_id}.{event.attempt_generation}", event.run_id)


def _replaces(event: Event, source: Node, target: Node) -> bool:
    if event.type == "artifact.recorded":
        return names(event, source) and target.id in links(event, "supersedes")
    before = (event.attempt_generation or 0) - 1
    if isinstance(event.attributes, AttemptAttributes) and event.attributes.replaces is not None:
        before = event.attributes.replaces
    return event.type == "attempt.started" and source.generation == event.attempt_generation and target.id == f"{event.run_id}.{before}"


def _child_of(event: Event, source: Node, target: Node) -> bool:
    match event.type, event.attributes:
        case "run.accepted", _:
            return source.id == event.run_id and target.id in links(event, "parent_run")
        case "thread.opened", ThreadAttributes(parent_thread_id=parent):
            return source.id == event.thread_id and target.id in (parent, *links(event, "child"))
        case "child.started", ChildAttributes(child_id=child):
            return (source.id, target.id) == (child, event.run_id)
    return False


def _waits_on(event: Event, source: Node, target: Node) -> bool:
    if event.type == "run.waiting":
        return source.id == event.run_id and target.id in links(event, "wait")
    return event.type == "wait.opened" and (source.id, target.id) == (event.run_id, named(event))


def _answered_by(event: Event, source: Node, target: Node) -> bool:
    answers = ("wait.answered", "approval.granted", "approval.denied")
    return event.type in answers and (source.id, target.id) == (named(event), event.actor_id)


def _produced(event: Event, source: Node, target: Node) -> bool:
    if event.type == "checkpoint.created":
        return target.id == named(event) and source.id in speakers(event) | other_sessions(event)
    return event.type == "artifact.recorded" and source.id in speakers(event) and target.id in (named(event), event.event_id)


def _consumed(event: Event, source: Node, target: Node) -> bool:
    if event.type == "checkpoint.consumed":
        by = source.created_event_id in links(event, "cause") or source.id in speakers(event)
        return by and target.id == named(event)
    return event.type == "context.pinned" and (source.id, target.id) == (event.run_id, named(event))


def _dispatched(event: Event, source: Node, target: Node) -> bool:
    return event.type == "effect.dispatched" and source.id in speakers(event) and target.id == named(event)


def _settled_by(event: Event, source: Node, target: Node) -> bool:
    return event.type in ("effect.receipt_accepted", "effect.reconciled") and (source.id, target.id) == (named(event), event.event_id)


def _authorised_by(event: Event, source: Node, target: Node) -> bool:
    attributes = event.attributes
    return isinstance(attributes, EffectAttributes) and (source.id, target.id) == (attributes.effect_id, attributes.approval_id)


def _forked_from(event: Event, source: Node, target: Node) -> bool:
    match event.type, event.attributes:
        case "session.created", SessionAttributes(source_session_id=origin):
            return (source.id, target.id) == (event.session_id, origin)
        case "session.forked", SessionAttributes(child_session_id=child, checkpoint_id=checkpoint):
            return source.id == child and target.id in (event.session_id, checkpoint)
        case "checkpoint.created", CheckpointAttributes(checkpoint_id=checkpoint, fork_id=str()):
            return (source.id, target.id) == (event.session_id, checkpoint)
    return False


def _rebuilt_from(event: Event, source: Node, target: Node) -> bool:
    match event.type, event.attributes:
        case "attempt.started", AttemptAttributes(recovery_mode="event_log_rebuild"):
            return (source.id, target.id) == (f"{event.run_id}.{event.attempt_generation}", event.session_id)
    return False


def _caused_by(event: Event, source: Node, target: Node) -> bool:
    return names(event, source) and (target.id == event.actor_id or target.created_event_id in links(event, "cause"))


SAYS: dict[str, Says] = {
    "contains": _contains,
    "attempt_of": _attempt_of,
    "replaces": _replaces,
    "child_of": _child_of,
    "waits_on": _waits_on,
    "answered_by": _answered_by,
    "produced": _produced,
    "consumed": _consumed,
    "dispatched": _dispatched,
    "settled_by": _settled_by,
    "authorised_by": _authorised_by,
    "forked_from": _forked_from,
    "rebuilt_from": _rebuilt_from,
    "caused_by": _caused_by,
}
assert SAYS.keys() == set(EDGE_TYPES)
