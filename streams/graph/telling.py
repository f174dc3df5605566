"""One event at work on the graph: makes nodes, changes them, draws edges, and notes what is missing.

An edge is drawn only between two nodes that are there; what an event names and nothing has made is a gap at the place
where the event stands, never a node that nobody told of.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import structs

from streams.graph.items import (
    ANSWERED_BY,
    CAUSED_BY,
    CONTAINS,
    SESSION,
    Edge,
    Gap,
    Node,
    NodeContent,
    attempt_id,
    edge_id,
)
from streams.graph.rows import Rows
from streams.session.events import NONE, Attributes, Content, Event

A = TypeVar("A", bound=Attributes)

NODE_MISSING = "node_missing"
"""An event tells of something that no event has made."""
ENDPOINT_MISSING = "endpoint_missing"
"""An event relates to something that no event has made."""
ELSEWHERE = "elsewhere"
"""An event relates to something in another session."""
HISTORY_UNAVAILABLE = "history_unavailable"
"""What an attempt goes on from has positions whose content could not be read any more."""


class Telling:
    """Of `event`, which comes next."""

    def __init__(self, rows: Rows, event: Event) -> None:
        self.rows = rows
        self.event = event

    def read(self, kind: type[A]) -> A:
        """The event's attributes; those of no attributes where it has none."""
        attributes = self.event.attributes
        return attributes if isinstance(attributes, kind) else kind()

    def linked(self, relation: str) -> list[str]:
        return [link.id for link in self.event.links if link.relation == relation]

    # -- places -------------------------------------------------------------------------------------------------------

    def place(self, *, above: str | None = None) -> str:
        """The innermost node that the event stands in: Run, Turn, thread, session; `above` is not it."""
        event = self.event
        for node_id in (event.run_id, event.turn_id, event.thread_id):
            if node_id is not None and node_id != above and self.rows.node(node_id) is not None:
                return node_id
        return event.session_id

    @property
    def run(self) -> str | None:
        """The Run that the event stands in, where it is in the graph."""
        run_id = self.event.run_id
        return None if run_id is None or self.rows.node(run_id) is None else run_id

    @property
    def worker(self) -> str | None:
        """The attempt that the event speaks for, else its Run; None where the graph has neither."""
        run_id, generation = self.event.run_id, self.event.attempt_generation
        if run_id is not None and generation is not None and self.rows.node(attempt_id(run_id, generation)) is not None:
            return attempt_id(run_id, generation)
        return self.run

    # -- nodes --------------------------------------------------------------------------------------------------------

    def name(self, node_id: str, node_type: str) -> None:
        """A new node that the event names and is not about, unless it is the one that creates the session."""
        self._put(node_id, node_type, about=self.event.type == "session.created" and node_id == self.event.session_id)

    def name_session(self, session_id: str) -> None:
        """Another session: what is known of it here is that it is there."""
        if self.rows.node(session_id) is None:
            self.name(session_id, SESSION)
            self.miss(ELSEWHERE, session_id, at=session_id)

    def make(self, node_id: str, node_type: str, **fields: Any) -> None:
        """The node that the event is about, and what it says caused it. One that is there already is changed."""
        if self.rows.node(node_id) is not None:
            self.change(node_id, **{name: value for name, value in fields.items() if value is not None})
            return
        self._put(node_id, node_type, about=True, **fields)
        self.name_causes(node_id)

    def name_causes(self, node_id: str) -> None:
        """The node that the event's cause made, and whoever acted."""
        for cause in self.linked("cause"):
            made = self.rows.made_by(cause)
            if made is not None and made != node_id:
                self.draw(CAUSED_BY, node_id, made)
        if self.event.actor_id is not None:
            self.draw(CAUSED_BY, node_id, self.event.actor_id)

    def _put(self, node_id: str, node_type: str, *, about: bool, **fields: Any) -> None:
        event = self.event
        stands: dict[str, Any] = {}
        if about:
            stands = {
                "thread_id": event.thread_id,
                "turn_id": event.turn_id,
                "run_id": event.run_id,
                "generation": event.attempt_generation,
                "native_task_id": event.native_task_id,
                "occurred_at": event.occurred_at,
                "content": content_of(event.content),
            }
        self.rows.put(
            Node(
                id=node_id,
                type=node_type,
                created_at=event.accepted_at,
                changed_at=event.accepted_at,
                created_sequence=event.sequence,
                created_event_id=event.event_id,
                changed_sequence=event.sequence,
                changed_event_id=event.event_id,
                **stands,
                **fields,
            )
        )

    def change(self, node_id: str | None, **fields: Any) -> bool:
        """Answers False, with a gap noted, where there is no such node."""
        node = None if node_id is None else self.rows.node(node_id)
        if node is None:
            self.miss(NODE_MISSING, node_id)
            return False
        event = self.event
        self.rows.put(
            structs.replace(
                node,
                changed_at=event.accepted_at,
                changed_content=content_of(event.content),
                changed_sequence=event.sequence,
                changed_event_id=event.event_id,
                **fields,
            )
        )
        return True

    def answered(self, node_id: str | None, state: str) -> None:
        """A wait or an approval has its answer, from the event's actor where it names one."""
        if self.change(node_id, state=state) and node_id is not None and self.event.actor_id is not None:
            self.draw(ANSWERED_BY, node_id, self.event.actor_id)

    # -- edges and gaps -----------------------------------------------------------------------------------------------

    def draw(self, edge_type: str, source: str, target: str, **fields: Any) -> None:
        for end in (source, target):
            if self.rows.node(end) is None:
                self.miss(ENDPOINT_MISSING, end)
                return
        event, identifier = self.event, edge_id(edge_type, source, target)
        known = self.rows.edge(identifier)
        if known is not None:
            self.rows.put(structs.replace(known, changed_sequence=event.sequence, changed_event_id=event.event_id, **fields))
            return
        self.rows.put(
            Edge(
                id=identifier,
                type=edge_type,
                source=source,
                target=target,
                created_sequence=event.sequence,
                created_event_id=event.event_id,
                changed_sequence=event.sequence,
                changed_event_id=event.event_id,
                **fields,
            )
        )

    def attach(self, edge_type: str, holder: str | None, node_id: str) -> None:
        """To what the event says it belongs to; outside of Runs, or where its Run is not there, to the place where it stands."""
        if holder is not None:
            self.draw(edge_type, holder, node_id)
        else:
            self.put_in_place(node_id)

    def put_in_place(self, node_id: str) -> None:
        """Into the innermost node around it; one that the event names and that is missing is a gap."""
        event = self.event
        for named in (event.run_id, event.turn_id, event.thread_id):
            if named is not None and named != node_id and self.rows.node(named) is None:
                self.miss(ENDPOINT_MISSING, named)
        self.draw(CONTAINS, self.place(above=node_id), node_id)

    def miss(self, reason: str, target: str | None = None, *, at: str | None = None) -> None:
        """Felt `at` a node that is there; by default, where the event stands."""
        event = self.event
        identifier = f"gap:{event.event_id}:{reason}" + ("" if target is None else f":{target}")
        self.rows.put(
            Gap(
                id=identifier,
                reason=reason,
                first_sequence=event.sequence,
                last_sequence=event.sequence,
                node_id=at or self.place(),
                event_id=event.event_id,
                target=target,
            )
        )


Tells = Callable[[Telling], None]


def content_of(content: Content) -> NodeContent | None:
    if content.state == NONE:
        return None
    reference = content.key_reference
    return NodeContent(
        state=content.state,
        digest=None if content.digest is None else content.digest.hex(),
        subject_id=None if reference is None else reference.subject_id,
        expiry_day=None if reference is None else reference.expiry_day,
    )
