"""The execution graph of a session: as it is, as it was (`through_sequence`), or around a node; as JSON or drawn.

- As it is comes from the table, read-your-writes included; as it was is folded from the session's events on demand.
- What is too large to answer or to draw within its limits is refused, and the refusal says how to ask for a part.
"""

import re
import time
from collections import deque
from functools import partial
from typing import Final

from connectors.gateway import bodies
from connectors.gateway.answers import JSON, Answer, plain
from connectors.gateway.call import Call
from connectors.gateway.graph_views import GraphView, graph_view
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from connectors.graph.dot import MEDIA_TYPE as DOT
from connectors.graph.dot import dot
from connectors.graph.layout import layered
from connectors.graph.mermaid import MEDIA_TYPE as MERMAID
from connectors.graph.mermaid import mermaid
from connectors.graph.svg import MEDIA_TYPE as SVG
from connectors.graph.svg import svg
from streams.errors import Invalid, NotFound
from streams.graph import fold
from streams.graph.items import Graph, Head, in_order
from streams.graph.memory import MemoryGraph
from streams.graph.neighbourhood import around
from streams.log.record import decode_event
from streams.projections.graph.encoding import decode_item
from streams.query.graphs import TOO_LARGE, GraphPage
from streams.query.pages import EventsPage, Gap

FORMATS: Final = {"json": JSON, "mermaid": MERMAID, "dot": DOT, "svg": SVG}
_FOLD_PAGE: Final = 1000
_FOLD_PAGE_BYTES: Final = 2 * 1024 * 1024
_QUALITY: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_A_PART: Final = "ask for a part of it with around=<node id>&depth=<n>"


async def graph(gateway: Gateway, call: Call, query: bodies.GraphQuery) -> Answer:
    media_type = FORMATS[query.format] if query.format is not None else preferred(call.header("accept"))
    gateway.graphs.take()
    try:
        found = await (_as_it_is if query.through_sequence is None else _as_it_was)(gateway, call, query)
        answer = await gateway.in_thread(partial(_answered, gateway, found, media_type))
        gateway.still(call)
        return answer
    except Invalid as error:
        if error.code != TOO_LARGE:
            raise
        raise Invalid(f"{error.detail}; {_A_PART}", code=TOO_LARGE) from error
    finally:
        gateway.graphs.give_back()


def preferred(accept: str | None) -> str:
    """The first of our media types among those most wanted; JSON where none is named."""
    wanted: list[tuple[float, int, str]] = []
    for place, part in enumerate((accept or "").split(",")):
        name, *parameters = [piece.strip().lower() for piece in part.split(";")]
        quality = next((float(match[1]) for parameter in parameters if (match := _QUALITY.fullmatch(parameter))), 1.0)
        if name in FORMATS.values() and quality > 0:
            wanted.append((-quality, place, name))
    return min(wanted)[2] if wanted else JSON


async def _as_it_is(gateway: Gateway, call: Call, query: bodies.GraphQuery) -> Graph:
    session_id, limits = call.path["session_id"], gateway.limits
    page = await gateway.graph_owners.graph(
        call.principal.workspace_id, session_id, subject_id=call.principal.subject_id, node_id=query.around, depth=query.depth,
        nodes_max=limits.graph_around_max, items_max=limits.graph_items_max, position=call.position(), wait_s=limits.position_wait_s,
    )  # fmt: skip
    _require_sight(call, page.head)
    return await gateway.in_thread(partial(_decoded, page))


def _decoded(page: GraphPage) -> Graph:
    return in_order(page.head, [decode_item(value) for value in page.items], truncated=page.truncated)


async def _as_it_was(gateway: Gateway, call: Call, query: bodies.GraphQuery) -> Graph:
    through, limits = query.through_sequence or 0, gateway.limits
    if through > limits.graph_events_max:
        raise Invalid(f"a graph as it was is folded from at most {limits.graph_events_max} events", code=TOO_LARGE)
    folded = MemoryGraph()
    deadline_s = time.monotonic() + limits.graph_fold_s
    after = 0
    while True:
        page = await gateway.owners.events(
            call.principal.workspace_id, call.path["session_id"], subject_id=call.principal.subject_id,
            after=after, limit=min(_FOLD_PAGE, through - after), max_bytes=_FOLD_PAGE_BYTES,
            position=call.position() if after == 0 else None, wait_s=limits.position_wait_s,
        )  # fmt: skip
        call.principal.require_sight_of(page.session.session_id, page.session.workspace_id, page.session.subject_id)
        if page.end_sequence < through:
            raise Invalid(f"through_sequence: the session is at {page.end_sequence}")
        await gateway.in_thread(partial(fold_page, folded, page, through))
        after = page.next_after
        if after >= through:
            break
        if time.monotonic() > deadline_s:
            raise Invalid(f"folding the events takes more than {limits.graph_fold_s:g} s", code=TOO_LARGE)
    if folded.head() is None:
        raise NotFound(f"nothing of session {call.path['session_id']} up to {through} can be read")
    if query.around is None:
        if len(folded.items) > limits.graph_items_max + 1:
            raise Invalid(f"the graph has more than {limits.graph_items_max} nodes, edges and gaps", code=TOO_LARGE)
        return folded.graph()
    if folded.node(query.around) is None:
        raise NotFound(f"session {call.path['session_id']} had no node {query.around}")
    part = around(query.around, query.depth, limits.graph_around_max, folded.at)
    return folded.part((*part.nodes, *part.edges, *part.gaps), truncated=part.truncated)


def fold_page(rows: MemoryGraph, page: EventsPage, through: int) -> None:
    """Adds a page of events and what is missing between them, as the projection met it."""
    events = [event for event in map(decode_event, page.events) if event.sequence <= through]
    # Holes are seen again by the fold; what it cannot see by itself are the records that were set aside.
    aside = deque(gap for gap in page.gaps if gap.offset is not None and gap.first_sequence <= through)
    for event in events:
        while aside and aside[0].first_sequence <= event.sequence:
            _set_aside(rows, event.session_id, aside.popleft())
        fold.apply(rows, event)
    for gap in aside:
        _set_aside(rows, page.session.session_id, gap)


def _set_aside(rows: MemoryGraph, session_id: str, gap: Gap) -> None:
    assert gap.offset is not None
    fold.set_aside(rows, session_id, gap.offset, gap.reason)


def _require_sight(call: Call, head: Head) -> None:
    call.principal.require_sight_of(head.session_id, head.workspace_id or "", head.subject_id)


def _answered(gateway: Gateway, found: Graph, media_type: str) -> Answer:
    limits = gateway.limits
    if media_type == JSON:
        return plain(graph_view(found, gateway.sealer))
    if media_type == SVG:
        layout = partial(layered, seconds=limits.graph_layout_s)
        drawn = svg(found, layout, nodes_max=limits.graph_drawn_nodes_max, edges_max=limits.graph_drawn_edges_max)
    else:
        drawn = mermaid(found) if media_type == MERMAID else dot(found)
    return Answer(200, drawn.encode(), [], f"{media_type}; charset=utf-8")


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/graph", name="read_graph",
        summary="The execution graph, now or as it was, as JSON or (Accept, format) drawn", handler=graph,
        scope="sessions:read", query=bodies.GraphQuery, answer=GraphView, other_media_types={MERMAID: "", DOT: "", SVG: ""},
        refusals=(TOO_LARGE,),
    ),
)  # fmt: skip
