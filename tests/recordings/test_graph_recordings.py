"""Every recorded session as a graph: each node and edge is walked back to the events that tell of it."""

from collections import Counter

import pytest

from connectors.graph.dot import dot
from connectors.graph.mermaid import mermaid
from streams.session.events import Event
from tests.recordings.conftest import Ingested
from tests.support.graphs import folded
from tests.support.walking import unexplained


@pytest.fixture
def events(ingested: Ingested) -> dict[str, list[Event]]:
    """By session, as the pure core accepted them."""
    assert ingested.report.ok
    return ingested.service.accepted


def test_every_edge_of_every_recorded_session_is_explained_by_events(events: dict[str, list[Event]]) -> None:
    nodes: Counter[str] = Counter()
    edges: Counter[str] = Counter()
    gaps: Counter[str] = Counter()
    for accepted in events.values():
        graph = folded(accepted).graph()
        assert unexplained(graph, accepted) == []
        assert graph.head.sequence == len(accepted)
        nodes.update(node.type for node in graph.nodes)
        edges.update(edge.type for edge in graph.edges)
        gaps.update(gap.reason for gap in graph.gaps)
        assert mermaid(graph).count(" -->|") == dot(graph).count(" -> ") - len(graph.gaps) == len(graph.edges)
    assert len(events) == 41 + 150
    assert nodes == {"session": 191, "thread": 191, "turn": 427, "run": 427, "attempt": 427, "child": 13}
    assert edges == {"contains": 191 + 427 + 427, "attempt_of": 427, "child_of": 13}
    assert gaps == {"parent_missing": 9, "call_missing": 1}


def test_runs_end_as_their_recordings_do_and_helpers_are_no_runs(events: dict[str, list[Event]]) -> None:
    states: Counter[str | None] = Counter()
    for accepted in events.values():
        graph = folded(accepted).graph()
        states.update(node.state for node in graph.nodes if node.type == "run")
        assert all(node.native for node in graph.nodes if node.type == "child")
    assert (states["completed"], states["cancelled"], states.total()) == (210 + 150, 26, 427)
