"""Mermaid, DOT and SVG: every node and edge is in them, nothing escapes, and large ones take bounded time."""

import re
import time
from itertools import combinations
from xml.etree import ElementTree

import pytest
from msgspec import structs

from connectors.graph import labels
from connectors.graph.dot import dot
from connectors.graph.layout import layered
from connectors.graph.mermaid import mermaid
from connectors.graph.svg import svg
from streams.errors import Invalid
from streams.graph.items import EDGE_TYPES, NODE_TYPES, Edge, Gap, Graph, Head, Node, attempt_id, edge_id, in_order
from tests.support.examples import made_up_id

SESSION = made_up_id("sess")
SVG = "{http://www.w3.org/2000/svg}"


def node(node_id: str, node_type: str, **more: object) -> Node:
    made = {"created_at": 1, "changed_at": 1, "created_sequence": 1, "created_event_id": "", "changed_sequence": 1, "changed_event_id": ""}
    return Node(id=node_id, type=node_type, **{**made, **more})  # type: ignore[arg-type]


def edge(edge_type: str, source: str, target: str) -> Edge:
    return Edge(
        id=edge_id(edge_type, source, target), type=edge_type, source=source, target=target, created_sequence=1, created_event_id="",
        changed_sequence=1, changed_event_id="",
    )  # fmt: skip


def graph(*items: Node | Edge | Gap) -> Graph:
    head = Head(session_id=SESSION, workspace_id=made_up_id("ws"), subject_id=None, sequence=9)
    return in_order(head, [node(SESSION, "session"), *items])


def runs(count: int) -> Graph:
    """A session of Turns with a Run, an attempt, an effect and its evidence each."""
    items: list[Node | Edge | Gap] = []
    thread = made_up_id("sthr")
    items += [node(thread, "thread"), edge("contains", SESSION, thread)]
    for number in range(count):
        turn, run, effect, evidence = (made_up_id(prefix, number) for prefix in ("turn", "run", "eff", "evt"))
        attempt = attempt_id(run, 1)
        items += [
            node(turn, "turn", state="completed"), node(run, "run", state="completed"), node(attempt, "attempt", state="ready"),
            node(effect, "effect", state="settled"), node(evidence, "evidence"),
            edge("contains", thread, turn), edge("contains", turn, run), edge("attempt_of", attempt, run),
            edge("dispatched", attempt, effect), edge("settled_by", effect, evidence),
        ]  # fmt: skip
    return graph(*items)


def drawn(shown: Graph, **limits: int) -> str:
    return svg(shown, lambda nodes, edges: layered(nodes, edges, seconds=5), **{"nodes_max": 2000, "edges_max": 6000, **limits})


HOSTILE = '"]; click n0 "javascript:alert(1)"\n<script>&--></script>'


def hostile() -> Graph:
    """What no authority lets in: whatever it is, it must not become language."""
    other = f"run_{HOSTILE}"
    gap = Gap(id="gap:1:2", reason=HOSTILE, first_sequence=1, last_sequence=1, node_id=SESSION)
    return graph(node(other, HOSTILE, state=HOSTILE), edge(HOSTILE, SESSION, other), gap)


def test_mermaid_has_a_line_for_every_node_edge_and_gap() -> None:
    shown = runs(3)
    gap = Gap(id="gap:1:2", reason="parent_missing", first_sequence=1, last_sequence=1, node_id=SESSION)
    lines = mermaid(structs.replace(shown, gaps=(gap,))).splitlines()
    assert lines[0] == "flowchart LR"
    nodes = [line for line in lines if re.fullmatch(r'    n[0-9]+\["[A-Za-z0-9 _.-]+(<br/>[a-z]+)?"\]:::[a-z_]+', line)]
    edges = [line for line in lines if re.fullmatch(r"    n[0-9]+ -->\|[a-z_]+\| n[0-9]+", line)]
    assert (len(nodes), len(edges)) == (len(shown.nodes), len(shown.edges))
    assert '    g0["gap: parent_missing"]:::gap' in lines
    assert any(re.fullmatch(r"    n[0-9]+ -\.- g0", line) for line in lines)
    assert {line.split()[1] for line in lines if line.startswith("    classDef")} == {node.type for node in shown.nodes} | {"gap"}


def test_dot_has_a_statement_for_every_node_and_edge() -> None:
    shown = runs(3)
    lines = dot(shown).splitlines()
    assert (lines[0], lines[-1]) == ("digraph session {", "}")
    statements = lines[1:-1]
    assert all(line.endswith(";") and line.count('"') % 2 == 0 for line in statements)
    nodes = {match[1] for line in statements if (match := re.match(r'    "([^"]+)" \[label=', line))}
    edges = {(match[1], match[2]) for line in statements if (match := re.match(r'    "([^"]+)" -> "([^"]+)" \[label=', line))}
    assert nodes == {each.id for each in shown.nodes}
    assert edges == {(each.source, each.target) for each in shown.edges}


def test_nothing_that_stands_in_a_graph_becomes_language() -> None:
    shown = hostile()
    for text in (mermaid(shown), dot(shown)):
        assert "<script>" not in re.sub(r'"(\\.|[^"\\])*"', "", text)
    assert 'click n0 "' not in mermaid(shown)
    assert "\n<script" not in dot(shown)
    tree = ElementTree.fromstring(drawn(shown))
    assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
        "svg", "style", "defs", "marker", "path", "g", "title", "rect", "text",
    }  # fmt: skip


def test_an_svg_is_well_formed_and_needs_nothing_from_elsewhere() -> None:
    shown = runs(4)
    text = drawn(shown)
    tree = ElementTree.fromstring(text)
    assert len(tree.findall(f".//{SVG}rect")) == len(shown.nodes)
    assert len(tree.findall(f"./{SVG}g/{SVG}path")) == len(shown.edges)
    assert "href" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert drawn(shown) == text


def test_a_drawing_runs_from_the_larger_to_the_smaller_and_no_node_lies_on_another() -> None:
    shown = runs(5)
    tree = ElementTree.fromstring(drawn(shown))
    corners = [(float(rect.get("x") or 0), float(rect.get("y") or 0)) for rect in tree.findall(f".//{SVG}rect")]
    places = dict(zip((each.id for each in shown.nodes), corners, strict=True))
    assert all(places[first][0] < places[second][0] for first, second in map(labels.downwards, shown.edges))
    for one, other in combinations(corners, 2):
        assert abs(one[0] - other[0]) >= 138 or abs(one[1] - other[1]) >= 34


def test_gaps_are_marked_at_the_node_where_they_are_felt() -> None:
    gap = Gap(id="gap:1:2", reason="parent_missing", first_sequence=3, last_sequence=3, node_id=SESSION)
    text = drawn(graph(gap))
    assert 'class="g"' in text
    assert "gap at event 3: parent_missing" in text


def test_nodes_that_hang_on_nothing_have_a_place_too() -> None:
    shown = graph(node(made_up_id("run"), "run"), node(made_up_id("wait"), "wait"))
    assert len(set(layered(3, [], seconds=5))) == 3
    assert len(ElementTree.fromstring(drawn(shown)).findall(f".//{SVG}rect")) == 3


def test_two_thousand_nodes_are_drawn_in_bounded_time() -> None:
    shown = runs(399)
    assert len(shown.nodes) == 1997
    began = time.monotonic()
    ElementTree.fromstring(drawn(shown))
    assert time.monotonic() - began < 8, "five seconds for the layout, and the rest"


def test_a_graph_beyond_the_limits_is_refused_naming_them() -> None:
    with pytest.raises(Invalid, match="at most 10 nodes") as refused:
        drawn(runs(3), nodes_max=10)
    assert refused.value.code == "graph.too_large"


def test_a_shape_that_takes_too_long_is_given_up() -> None:
    """A chain whose first node reaches every other: the layers between are filled with what keeps edges apart."""
    count = 2000
    edges = [(number, number + 1) for number in range(count - 1)] + [(0, number) for number in range(2, count)]
    began = time.monotonic()
    with pytest.raises(Invalid, match="takes more than") as refused:
        layered(count, edges, seconds=0.5)
    assert refused.value.code == "graph.too_large"
    assert time.monotonic() - began < 4


def test_every_type_has_a_colour_and_a_direction() -> None:
    assert labels.FILLS.keys() == set(NODE_TYPES)
    for edge_type in EDGE_TYPES:
        assert set(labels.downwards(edge(edge_type, "a", "b"))) == {"a", "b"}
    assert labels.fill("dream") == labels.OTHER_FILL
