"""Nodes, edges and gaps of the execution graph, and how they are named.

Rules: types, ids, times, states and digests only, never content; every item names the event that made it and the one
that last changed it; an id says what the item is, so nobody needs a table to read one:

    session, thread, turn, run, child, checkpoint, wait, approval, effect, artifact, actor    the id that the events name
    attempt         <run id>.<generation>
    context_pin     <run id>.<kind of the pin>
    evidence        the id of the event that told of it
    edge            <type>:<source>:<target>
    gap             gap:<event id>:<reason>[:<missing id>], or gap:<first sequence>:<offset>

A graph is of one session. Another session that its events name (the source of a fork, a fork) is a node in it without a
state, and with a gap that says where the rest is: elsewhere.

Times are in microseconds since the epoch, UTC.
"""

from typing import Final, TypeAlias

from msgspec import Struct

SESSION: Final = "session"
THREAD: Final = "thread"
TURN: Final = "turn"
RUN: Final = "run"
ATTEMPT: Final = "attempt"
ACTOR: Final = "actor"
CHILD: Final = "child"
CHECKPOINT: Final = "checkpoint"
WAIT: Final = "wait"
APPROVAL: Final = "approval"
EFFECT: Final = "effect"
ARTIFACT: Final = "artifact"
CONTEXT_PIN: Final = "context_pin"
EVIDENCE: Final = "evidence"

NODE_TYPES: Final = (
    SESSION, THREAD, TURN, RUN, ATTEMPT, ACTOR, CHILD, CHECKPOINT, WAIT, APPROVAL, EFFECT, ARTIFACT, CONTEXT_PIN,
    EVIDENCE,
)  # fmt: skip

CONTAINS: Final = "contains"
ATTEMPT_OF: Final = "attempt_of"
REPLACES: Final = "replaces"
CHILD_OF: Final = "child_of"
WAITS_ON: Final = "waits_on"
ANSWERED_BY: Final = "answered_by"
PRODUCED: Final = "produced"
CONSUMED: Final = "consumed"
DISPATCHED: Final = "dispatched"
SETTLED_BY: Final = "settled_by"
AUTHORISED_BY: Final = "authorised_by"
FORKED_FROM: Final = "forked_from"
REBUILT_FROM: Final = "rebuilt_from"
CAUSED_BY: Final = "caused_by"

EDGE_TYPES: Final = (
    CONTAINS, ATTEMPT_OF, REPLACES, CHILD_OF, WAITS_ON, ANSWERED_BY, PRODUCED, CONSUMED, DISPATCHED, SETTLED_BY,
    AUTHORISED_BY, FORKED_FROM, REBUILT_FROM, CAUSED_BY,
)  # fmt: skip


class NodeContent(Struct, frozen=True, kw_only=True):
    """That there is sealed content, or was omitted (`state`), and what tells later whether it can still be opened."""

    state: str
    digest: str | None = None
    subject_id: str | None = None
    expiry_day: str | None = None


class Node(Struct, frozen=True, kw_only=True):
    """`thread_id`, `turn_id`, `run_id` and `generation` say where the event that made it stood.

    `content` is that of this event, `changed_content` that of the one that last changed the node; None where it had none.
    """

    id: str
    type: str
    state: str | None = None
    kind: str | None = None
    native: bool | None = None
    outcome: str | None = None
    reason: str | None = None
    revision: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    generation: int | None = None
    native_task_id: str | None = None
    action_digest: str | None = None
    request_digest: str | None = None
    receipt_digest: str | None = None
    digest: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    through_sequence: int | None = None
    through_event_id: str | None = None
    fork_id: str | None = None
    occurred_at: int | None = None
    expires_at: int | None = None
    created_at: int
    changed_at: int
    content: NodeContent | None = None
    changed_content: NodeContent | None = None
    created_sequence: int
    created_event_id: str
    changed_sequence: int
    changed_event_id: str


class Edge(Struct, frozen=True, kw_only=True):
    """Read as a sentence: source, type, target ("an attempt is attempt_of a run").

    `through_sequence`, with its event: how far what the edge leads to is meant. `reason`: why a harness is rebuilt_from the log.
    """

    id: str
    type: str
    source: str
    target: str
    reason: str | None = None
    through_sequence: int | None = None
    through_event_id: str | None = None
    created_sequence: int
    created_event_id: str
    changed_sequence: int
    changed_event_id: str


class Gap(Struct, frozen=True, kw_only=True):
    """Something that the facts say exists and that is not here. `node_id` is the node at which it is felt.

    Of an event: `event_id`, and `target` where an id is named that nothing has made. Of the log: the sequences
    first..last are missing (last < first: none is known to be), `offset` is that of a record which could not be read.
    """

    id: str
    reason: str
    first_sequence: int
    last_sequence: int
    node_id: str
    event_id: str | None = None
    target: str | None = None
    offset: int | None = None


class Head(Struct, frozen=True, kw_only=True):
    """How far the graph is: every event up to `sequence` is in it.

    `open_gap` names the gap of the first record behind `sequence` that could not be read: the next event tells its size.
    """

    session_id: str
    workspace_id: str | None
    subject_id: str | None
    sequence: int
    open_gap: str | None = None


Item: TypeAlias = Node | Edge | Gap | Head

HEAD_ID: Final = "head"


def item_id(item: Item) -> str:
    """Unique within a session."""
    return HEAD_ID if isinstance(item, Head) else item.id


def attempt_id(run_id: str, generation: int) -> str:
    return f"{run_id}.{generation}"


def pin_id(run_id: str, kind: str) -> str:
    """No attempt's: a kind begins with a letter."""
    return f"{run_id}.{kind}"


def edge_id(edge_type: str, source: str, target: str) -> str:
    return f"{edge_type}:{source}:{target}"


def edge_ends(identifier: str) -> tuple[str, str] | None:
    """Source and target of an edge, by its id alone; None for the id of anything else."""
    parts = identifier.split(":")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] in EDGE_TYPES else None


class Graph(Struct, frozen=True, kw_only=True):
    """A session's graph, or a part of it, in order of creation. `truncated`: there is more around the same node."""

    head: Head
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    gaps: tuple[Gap, ...]
    truncated: bool = False


def in_order(head: Head, items: "list[Item] | tuple[Item, ...]", *, truncated: bool = False) -> Graph:
    """The graph of these items; the same for any order in which they come."""
    nodes = sorted((item for item in items if isinstance(item, Node)), key=lambda node: (node.created_sequence, node.id))
    edges = sorted((item for item in items if isinstance(item, Edge)), key=lambda edge: (edge.created_sequence, edge.id))
    gaps = sorted((item for item in items if isinstance(item, Gap)), key=lambda gap: (gap.first_sequence, gap.id))
    return Graph(head=head, nodes=tuple(nodes), edges=tuple(edges), gaps=tuple(gaps), truncated=truncated)
