"""The graph as JSON. Content never stands in it: where an event had some, its state and digest do, and why it is gone."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from connectors.edge import fields as f
from connectors.gateway.answers import Sequence
from connectors.gateway.views import ContentGap, gap_of
from streams.custody.sealing import Sealer
from streams.graph.items import Edge, Gap, Graph, Node, NodeContent
from streams.session.events import OMITTED, KeyReference
from streams.session.words import CONTENT_OMITTED


class ContentView(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`gap` says why it cannot be shown any more; the event itself holds it otherwise."""

    state: str
    digest: f.Hex32 | None = None
    gap: ContentGap | None = None


class NodeView(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`content` is of the event that made the node, `changed_content` of the one that last changed it. A session without a
    `state` is another one than the graph's own."""

    id: f.NodeId
    type: str
    state: str | None = None
    kind: str | None = None
    native: bool | None = None
    outcome: str | None = None
    reason: str | None = None
    revision: str | None = None
    thread_id: f.ThreadId | None = None
    turn_id: f.TurnId | None = None
    run_id: f.RunId | None = None
    generation: f.Generation | None = None
    native_task_id: f.TaskId | None = None
    action_digest: str | None = None
    request_digest: str | None = None
    receipt_digest: str | None = None
    digest: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    through_sequence: Sequence | None = None
    through_event_id: f.EventId | None = None
    fork_id: f.ForkId | None = None
    occurred_at: f.Moment | None = None
    expires_at: f.Moment | None = None
    created_at: f.Moment
    changed_at: f.Moment
    content: ContentView | None = None
    changed_content: ContentView | None = None
    created_sequence: Sequence
    created_event_id: f.EventId
    changed_sequence: Sequence
    changed_event_id: f.EventId


class EdgeView(
    Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from", "target": "to"}, forbid_unknown_fields=True
):  # fmt: skip
    """Read as a sentence: from, type, to. The two events explain it. `through_sequence`: how far what it leads to is meant;
    `reason`: why a harness was rebuilt_from the log."""

    id: str
    type: str
    source: f.NodeId
    target: f.NodeId
    reason: str | None = None
    through_sequence: Sequence | None = None
    through_event_id: f.EventId | None = None
    created_sequence: Sequence
    created_event_id: f.EventId
    changed_sequence: Sequence
    changed_event_id: f.EventId


class GraphGapView(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that the facts say exists and that is not here. `node` is where it is felt, `target` the id that is missing."""

    reason: str
    node: f.NodeId
    first_sequence: Sequence
    last_sequence: Sequence
    event_id: f.EventId | None = None
    target: str | None = None


class GraphView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`truncated`: there is more around the same node than the limit lets through."""

    session_id: f.SessionId
    through_sequence: Sequence
    nodes: list[NodeView]
    edges: list[EdgeView]
    gaps: list[GraphGapView]
    truncated: bool


_TOLD_OTHERWISE: Final = frozenset({"occurred_at", "expires_at", "created_at", "changed_at", "content", "changed_content"})
_FIELDS: Final = tuple(name for name in NodeView.__struct_fields__ if name not in _TOLD_OTHERWISE)


def graph_view(graph: Graph, sealer: Sealer) -> GraphView:
    """Blocks on the keyring. Raises `KeyringUnavailable`."""
    session_id = graph.head.session_id
    references = {_reference(session_id, content) for content in _contents(graph.nodes) if content.state != OMITTED}
    closed = sealer.why_closed(graph.head.workspace_id or "", references)
    return GraphView(
        session_id=session_id,
        through_sequence=graph.head.sequence,
        nodes=[_node(node, session_id, closed) for node in graph.nodes],
        edges=[_edge(edge) for edge in graph.edges],
        gaps=[_gap(gap) for gap in graph.gaps],
        truncated=graph.truncated,
    )


def _reference(session_id: str, content: NodeContent) -> KeyReference:
    """A day that is not known is none, so nothing opens under it."""
    return KeyReference(content.subject_id, session_id, content.expiry_day or "")


def _contents(nodes: Iterable[Node]) -> Iterable[NodeContent]:
    for node in nodes:
        for content in (node.content, node.changed_content):
            if content is not None:
                yield content


def _node(node: Node, session_id: str, closed: dict[KeyReference, str]) -> NodeView:
    return NodeView(
        **{name: getattr(node, name) for name in _FIELDS},
        occurred_at=None if node.occurred_at is None else f.when(node.occurred_at),
        expires_at=None if node.expires_at is None else f.when(node.expires_at),
        created_at=f.when(node.created_at),
        changed_at=f.when(node.changed_at),
        content=_content(node.content, session_id, closed),
        changed_content=_content(node.changed_content, session_id, closed),
    )


def _content(content: NodeContent | None, session_id: str, closed: dict[KeyReference, str]) -> ContentView | None:
    if content is None:
        return None
    code = CONTENT_OMITTED if content.state == OMITTED else closed.get(_reference(session_id, content))
    return ContentView(state=content.state, digest=content.digest, gap=None if code is None else gap_of(code))


def _edge(edge: Edge) -> EdgeView:
    return msgspec.convert(edge, EdgeView, from_attributes=True)


def _gap(gap: Gap) -> GraphGapView:
    return GraphGapView(
        reason=gap.reason,
        node=gap.node_id,
        first_sequence=gap.first_sequence,
        last_sequence=gap.last_sequence,
        event_id=gap.event_id,
        target=gap.target,
    )
