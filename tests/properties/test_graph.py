"""Random histories: every edge is explained, the graph as it was is the graph of one that stopped there, and neither the
cuts between transactions nor a restore from the topic change a byte."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import event as seen
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from connectors.gateway.graph import fold_page
from streams.graph.items import Graph
from streams.graph.memory import MemoryGraph
from streams.graph.neighbourhood import around
from streams.log.reader import Record
from streams.projections.sessions import SessionRow
from streams.query.pages import EventsPage
from streams.session.events import Event
from tests.support.graphs import GraphStore, event_value, folded, graph_of, records
from tests.support.histories import PICKS, Pick, history
from tests.support.story import NOON, SESSION, WORKSPACE
from tests.support.walking import unexplained

_MANY = hypothesis_settings(max_examples=60, deadline=None)


def row(sequence: int) -> SessionRow:
    return SessionRow(SESSION, WORKSPACE, None, "open", "imported", "standard", 30, NOON, NOON, sequence, 0, {}, None)


def pages(events: Sequence[Event], size: int) -> Iterator[EventsPage]:
    for start in range(0, len(events), size):
        part = events[start : start + size]
        yield EventsPage(row(len(events)), tuple(map(event_value, part)), (), part[-1].sequence)


def as_it_was(events: Sequence[Event], through: int, page_size: int) -> Graph:
    """As the gateway makes it, from pages of the session as it is now."""
    rows = MemoryGraph()
    for page in pages(events, page_size):
        fold_page(rows, page, through)
        if page.next_after >= through:
            break
    return rows.graph()


def table(events: Sequence[Event], cuts: Sequence[int]) -> GraphStore:
    store, written = GraphStore(), records(events)
    bounds = sorted({0, len(written), *(cut % (len(written) + 1) for cut in cuts)})
    for first, last in pairwise(bounds):
        store.apply(written[first:last])
    return store


@_MANY
@given(PICKS)
def test_every_node_and_edge_is_explained_by_events(picks: Sequence[Pick]) -> None:
    story = history(picks)
    graph = folded(story.events).graph()
    for edge_type in Counter(edge.type for edge in graph.edges):
        seen(edge_type)
    assert unexplained(graph, story.events) == []


@_MANY
@given(PICKS, st.integers(0, 10**6), st.integers(1, 20))
def test_the_graph_as_it_was_is_that_of_a_run_that_stopped_there(picks: Sequence[Pick], anywhere: int, page_size: int) -> None:
    events = history(picks).events
    through = 1 + anywhere % len(events)
    stopped = table(events[:through], ())
    assert as_it_was(events, through, page_size) == graph_of(stopped.model().graph(WORKSPACE, SESSION, items_max=10_000))


@_MANY
@given(PICKS, st.lists(st.integers(0, 10**6), max_size=6))
def test_cuts_between_transactions_and_restores_change_no_byte(picks: Sequence[Pick], cuts: Sequence[int]) -> None:
    events = history(picks).events
    whole, cut = table(events, ()), table(events, cuts)
    assert cut.store.digest() == whole.store.digest()
    assert cut.restored().digest() == whole.store.digest()


@_MANY
@given(PICKS, st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 30))
def test_a_neighbourhood_of_the_table_is_that_of_the_graph_in_memory(picks: Sequence[Pick], anywhere: int, depth: int, limit: int) -> None:
    events = history(picks).events
    rows = folded(events)
    nodes = rows.graph().nodes
    centre = nodes[anywhere % len(nodes)].id
    found = around(centre, depth, limit, rows.at)
    page = table(events, ()).model().around(WORKSPACE, SESSION, centre, depth=depth, nodes_max=limit)
    assert graph_of(page) == rows.part((*found.nodes, *found.edges, *found.gaps), truncated=found.truncated)
    assert len(found.nodes) <= limit
    if not found.truncated:
        assert set(found.nodes) == within(rows.graph(), centre, depth)


def within(graph: Graph, centre: str, depth: int) -> set[str]:
    """The nodes at most so many edges away, the long way."""
    found = {centre}
    for _ in range(depth):
        touching = [edge for edge in graph.edges if edge.source in found or edge.target in found]
        found |= {end for edge in touching for end in (edge.source, edge.target)}
    return found


@_MANY
@given(PICKS, st.data())
def test_records_that_cannot_be_read_leave_the_same_gaps_in_both(picks: Sequence[Pick], data: st.DataObject) -> None:
    """Broken ones among the good ones, some in the place of an event: the table, the graph as it was, and a rebuild agree."""
    events = history(picks).events
    lost = data.draw(st.sets(st.integers(2, len(events)), max_size=3))
    written: list[Record] = []
    for record, event in zip(records(events), events, strict=True):
        value = b"\x00 unreadable" if event.sequence in lost else record.value
        written.append(record._replace(offset=len(written), value=value))
    store = GraphStore()
    for record in written:
        store.apply([record])
    once = GraphStore()
    once.apply(written)
    assert once.store.digest() == store.store.digest() == once.restored().digest()
    graph = graph_of(store.model().graph(WORKSPACE, SESSION, items_max=10_000))
    kept = [event for event in events if event.sequence not in lost]
    assert unexplained(graph, kept) == []
    aside = [gap for gap in graph.gaps if gap.offset is not None]
    assert {gap.offset for gap in aside} == {sequence - 1 for sequence in lost}
