"""The graph over HTTP: as it is, as it was, around a node, told and drawn; and what is refused."""

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from connectors.gateway.graph import preferred
from streams.errors import ProjectionBehind
from tests.support.examples import made_up_id
from tests.support.gateway import OTHER_WORKSPACE, World, ndjson, new_session, post
from tests.support.workers import worker_of

PERSON = "mia_li_3668"


@pytest.fixture(scope="module")
def session(client: httpx.Client) -> str:
    """A person's turn, and a worker's Run that waits for an answer."""
    session_id = new_session(client, subject=PERSON)
    base = f"/v1/sessions/{session_id}"
    thread = post(client, f"{base}/threads", {}, status=201)["thread_id"]
    turn = post(client, f"{base}/turns", {"thread_id": thread, "actor": PERSON, "content": {"text": "hello"}}, status=201)["turn_id"]
    run = post(client, f"{base}/runs", {"thread_id": thread, "turn_id": turn}, status=201)["run_id"]
    grant = post(client, f"{base}/runs/{run}/claim")
    proof = f"{run};{grant['generation']};{grant['native_task_id']};{grant['run_sequence']}"
    wait = post(client, f"{base}/waits", {"kind": "human"}, status=201, session_streams_report=proof)["wait_id"]
    post(client, f"{base}/waits/{wait}/answer", {"actor": PERSON, "content": "yes"})
    return session_id


def read(client: httpx.Client, session_id: str, status: int = 200, **params: Any) -> httpx.Response:
    response = client.get(f"/v1/sessions/{session_id}/graph", params=params)
    assert response.status_code == status, response.text
    return response


def of_type(graph: dict[str, Any], node_type: str) -> dict[str, Any]:
    return next(node for node in graph["nodes"] if node["type"] == node_type)


def test_the_graph_tells_of_nodes_edges_and_how_far_it_is(client: httpx.Client, session: str) -> None:
    graph = read(client, session).json()
    events = client.get(f"/v1/sessions/{session}/events").json()["events"]
    assert graph["through_sequence"] == len(events) == 10
    assert [node["type"] for node in graph["nodes"]] == ["session", "thread", "actor", "turn", "run", "attempt", "wait"]
    assert {edge["type"] for edge in graph["edges"]} == {
        "contains", "caused_by", "attempt_of", "rebuilt_from", "waits_on", "answered_by",
    }  # fmt: skip
    for item in (*graph["nodes"], *graph["edges"]):
        assert events[item["created_sequence"] - 1]["event_id"] == item["created_event_id"]
        assert events[item["changed_sequence"] - 1]["event_id"] == item["changed_event_id"]
    wait = of_type(graph, "wait")
    assert (wait["state"], wait["kind"], wait["run_id"]) == ("answered", "human", of_type(graph, "run")["id"])


def test_content_and_names_of_people_stay_out(client: httpx.Client, session: str) -> None:
    for form in ("json", "mermaid", "dot", "svg"):
        text = read(client, session, format=form).text
        assert PERSON not in text
        assert "hello" not in text
    turn = of_type(read(client, session).json(), "turn")
    assert turn["content"].keys() == {"state", "digest"}


def test_content_that_is_gone_is_a_typed_gap(shared: World, client: httpx.Client, session: str) -> None:
    now = shared.sealer._now_us
    shared.sealer._now_us = lambda: now() + 40 * 86_400_000_000
    try:
        turn = of_type(read(client, session).json(), "turn")
    finally:
        shared.sealer._now_us = now
    assert turn["content"]["gap"] == {"reason": "expired"}
    assert turn["content"]["digest"]


@pytest.mark.parametrize("through", [1, 3, 5, 10])
def test_the_graph_as_it_was_is_folded_from_the_events(client: httpx.Client, session: str, through: int) -> None:
    was, now = read(client, session, through_sequence=through).json(), read(client, session).json()
    assert was["through_sequence"] == through
    expected = [node["id"] for node in now["nodes"] if node["created_sequence"] <= through]
    assert [node["id"] for node in was["nodes"]] == expected
    if through == 10:
        assert was == now


def test_what_lies_around_a_node(client: httpx.Client, session: str) -> None:
    graph = read(client, session).json()
    wait, run = of_type(graph, "wait")["id"], of_type(graph, "run")["id"]
    near = read(client, session, around=wait, depth=1).json()
    assert {node["type"] for node in near["nodes"]} == {"wait", "run", "actor"}
    assert not near["truncated"]
    attempt = f"{run}.1"
    assert {node["id"] for node in read(client, session, around=attempt, depth=1).json()["nodes"]} == {attempt, run, session}
    assert [node["id"] for node in read(client, session, around=attempt, depth=0).json()["nodes"]] == [attempt]
    was = read(client, session, around=run, depth=2, through_sequence=4).json()
    assert {node["type"] for node in was["nodes"]} == {"run", "turn", "thread", "actor"}


def test_checkpoints_and_forks_are_told_and_drawn(client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.post(f"{worker.attempt}/ready", {})
    checkpoint = worker.checkpoint(native=b"state")["checkpoint_id"]
    child = post(client, f"{worker.session}/forks", {"checkpoint_id": checkpoint}, status=201)["session_id"]
    graph = read(client, worker.session_id).json()
    drawn = {(edge["type"], edge["from"], edge["to"]) for edge in graph["edges"]}
    assert {
        ("produced", f"{worker.run_id}.1", checkpoint), ("consumed", child, checkpoint), ("forked_from", child, checkpoint),
        ("forked_from", child, worker.session_id), ("rebuilt_from", f"{worker.run_id}.1", worker.session_id),
    } <= drawn  # fmt: skip
    (rebuilt,) = [edge for edge in graph["edges"] if edge["type"] == "rebuilt_from"]
    assert rebuilt["reason"] == "no_checkpoint"
    told = of_type(graph, "checkpoint")
    assert told["kind"] == "native"
    assert told["through_sequence"] < told["created_sequence"]
    assert told["expires_at"] > told["created_at"]
    assert [(gap["reason"], gap["node"]) for gap in graph["gaps"]] == [("elsewhere", child)]
    near = read(client, worker.session_id, around=checkpoint, depth=1).json()
    assert {node["id"] for node in near["nodes"]} == {checkpoint, f"{worker.run_id}.1", child}
    before = read(client, worker.session_id, through_sequence=told["created_sequence"] - 1).json()
    assert checkpoint not in {node["id"] for node in before["nodes"]}
    assert read(client, worker.session_id, through_sequence=graph["through_sequence"]).json() == graph
    for form in ("mermaid", "dot", "svg"):
        text = read(client, worker.session_id, format=form).text
        assert f"checkpoint {checkpoint.removeprefix('ckpt_')[:8]}" in text
        assert "forked_from" in text
        assert "elsewhere" in text


def test_the_header_accept_and_the_format_choose_the_form(client: httpx.Client, session: str) -> None:
    for media_type, beginning in (
        ("text/vnd.mermaid", "flowchart LR"), ("text/vnd.graphviz", "digraph session {"), ("image/svg+xml", "<svg "),
    ):  # fmt: skip
        answer = client.get(f"/v1/sessions/{session}/graph", headers={"accept": media_type})
        assert answer.headers["content-type"] == f"{media_type}; charset=utf-8"
        assert answer.text.startswith(beginning)
    answer = client.get(f"/v1/sessions/{session}/graph?format=json", headers={"accept": "image/svg+xml"})
    assert json.loads(answer.content)["session_id"] == session
    drawn = ElementTree.fromstring(read(client, session, format="svg").text)
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) == 7


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("image/svg+xml;q=0.5, text/vnd.mermaid", "text/vnd.mermaid"),
        ("application/json;q=0.2, IMAGE/SVG+XML; q=0.9", "image/svg+xml"),
        ("image/svg+xml;q=0", "application/json"),
    ],
)
def test_what_is_most_wanted_is_given(accept: str | None, media_type: str) -> None:
    assert preferred(accept) == media_type


def test_what_is_not_there_is_not_found(shared: World, client: httpx.Client, session: str) -> None:
    assert read(client, made_up_id("sess"), status=404).json()["code"] == "resource.not_found"
    assert read(client, session, status=404, around=made_up_id("run", "nowhere")).json()["code"] == "resource.not_found"
    assert read(client, session, status=404, around=f"{made_up_id('run')}.7", through_sequence=3).json()["code"] == "resource.not_found"
    other = shared.client(workspace_id=OTHER_WORKSPACE)
    assert read(other, session, status=404).json()["detail"] == f"session {session}"
    assert read(other, session, status=404, through_sequence=1).json()["code"] == "resource.not_found"
    restricted = shared.client("sessions:read", subject_id=made_up_id("subj", "somebody else"))
    assert read(restricted, session, status=404).json()["detail"] == f"session {session}"
    assert read(shared.client("sessions:write"), session, status=403).json()["code"] == "auth.scope"


@pytest.mark.parametrize(
    "params",
    [
        {"through_sequence": 0}, {"through_sequence": 11}, {"depth": 21}, {"depth": -1}, {"format": "png"}, {"around": "run_x"},
        {"around": "run_" + "0" * 32 + "./../x"}, {"unknown": 1},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(client: httpx.Client, session: str, params: dict[str, Any]) -> None:
    assert read(client, session, status=422, **params).json()["code"] == "request.invalid"


@pytest.mark.parametrize(
    ("limit", "params"),
    [
        ({"graph_items_max": 5}, {}),
        ({"graph_items_max": 5}, {"through_sequence": 9}),
        ({"graph_events_max": 5}, {"through_sequence": 9}),
        ({"graph_drawn_nodes_max": 3}, {"format": "svg"}),
        ({"graph_drawn_edges_max": 3}, {"format": "svg"}),
        ({"graph_layout_s": -0.999}, {"format": "svg"}),
    ],
)
def test_what_is_too_large_is_refused_and_says_how_to_ask_for_a_part(
    shared: World, client: httpx.Client, session: str, limit: dict[str, float], params: dict[str, Any]
) -> None:
    limits = shared.gateway.limits
    run = of_type(read(client, session).json(), "run")["id"]
    shared.gateway.limits = replace(limits, **limit)
    try:
        problem = read(client, session, status=422, **params).json()
        near = read(client, session, around=run, depth=0).json()
    finally:
        shared.gateway.limits = limits
    assert problem["code"] == "graph.too_large"
    assert "around=" in problem["detail"]
    assert len(near["nodes"]) == 1


def test_a_neighbourhood_beyond_its_limit_says_that_there_is_more(shared: World, client: httpx.Client) -> None:
    importer = shared.client()
    session_id = new_session(importer)
    waits = [{"type": "wait.opened", "attributes": {"wait_id": made_up_id("wait", n), "kind": "human"}} for n in range(30)]
    importer.post(
        f"/v1/sessions/{session_id}/events", content=ndjson(*waits),
        headers={"content-type": "application/x-ndjson", "idempotency-key": "waits"},
    ).raise_for_status()  # fmt: skip
    limits = shared.gateway.limits
    shared.gateway.limits = replace(limits, graph_around_max=10)
    try:
        now = read(importer, session_id, around=session_id).json()
        was = read(importer, session_id, around=session_id, through_sequence=31).json()
    finally:
        shared.gateway.limits = limits
    assert now == was
    assert (len(now["nodes"]), now["truncated"]) == (10, True)
    # The oldest.
    assert [node["created_sequence"] for node in now["nodes"]] == list(range(1, 11))


def test_a_table_that_is_behind_says_when_to_come_again(shared: World, client: httpx.Client, session: str) -> None:
    shared.graph_owners.failure = ProjectionBehind("catching up", retry_after_s=2)
    try:
        answer = read(client, session, status=503)
    finally:
        shared.graph_owners.failure = None
    assert answer.json()["code"] == "service.projection_behind"
    assert int(answer.headers["retry-after"]) >= 2


def test_the_document_tells_of_every_form(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/sessions/{session_id}/graph"]["get"]
    assert operation["responses"]["200"]["content"].keys() == {
        "application/json", "text/vnd.mermaid", "text/vnd.graphviz", "image/svg+xml",
    }  # fmt: skip
    assert "graph.too_large" in operation["responses"]["422"]["description"]
    assert [parameter["name"] for parameter in operation["parameters"]] == [
        "session_id", "through_sequence", "around", "depth", "format", "Session-Streams-Position",
    ]  # fmt: skip
