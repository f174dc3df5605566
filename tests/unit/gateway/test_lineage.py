"""The events of a fork with those of its ancestors, in pages and as a stream."""

from typing import Any, NamedTuple

import httpx
import pytest

from connectors.gateway.lineage import Stretch, within
from session_streams.sse import Message, Parser
from streams.errors import ProjectionBehind
from streams.query.pages import EventsPage, Gap
from tests.support.gateway import OTHER_WORKSPACE, World, message, new_session, post
from tests.support.workers import event_at


class Family(NamedTuple):
    """Each forked from the one before, at its fourth and third position."""

    grandparent: str
    parent: str
    child: str

    @property
    def places(self) -> list[tuple[str, int]]:
        return [
            *((self.grandparent, sequence) for sequence in range(1, 5)),
            *((self.parent, sequence) for sequence in range(1, 4)),
            *((self.child, sequence) for sequence in range(1, 4)),
        ]


@pytest.fixture(scope="module")
def family(client: httpx.Client) -> Family:
    def grown(session: str, count: int) -> str:
        for number in range(count):
            post(client, f"/v1/sessions/{session}/events", message(f"{session} {number}"))
        return session

    def forked(session: str, sequence: int) -> str:
        body = {"at_event": event_at(client, session, sequence)["event_id"]}
        return str(post(client, f"/v1/sessions/{session}/forks", body, status=201)["session_id"])

    grandparent = grown(new_session(client), 5)
    parent = grown(forked(grandparent, 4), 4)
    return Family(grandparent, parent, grown(forked(parent, 3), 2))


def page(client: httpx.Client, session: str, **query: Any) -> dict[str, Any]:
    response = client.get(f"/v1/sessions/{session}/events", params={"lineage": "true", **query})
    assert response.status_code == 200, response.text
    return dict(response.json())


def stream(client: httpx.Client, session: str, *, last: str | None = None, **query: Any) -> list[Message]:
    headers = {"accept": "text/event-stream"} | ({} if last is None else {"last-event-id": last})
    found: list[Message] = []
    parser = Parser()
    with client.stream("GET", f"/v1/sessions/{session}/events", params={"lineage": "true", **query}, headers=headers) as response:
        assert response.status_code == 200, response.read()
        for chunk in response.iter_raw():
            found.extend(parser.feed(chunk))
    return found


def places(found: dict[str, Any]) -> list[tuple[str, int]]:
    assert all(event["session_id"] == found["session_id"] for event in found["events"])
    return [(event["session_id"], event["sequence"]) for event in found["events"]]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_lead_from_the_oldest_ancestor_to_the_session_itself(client: httpx.Client, family: Family, limit: int) -> None:
    told: list[tuple[str, int]] = []
    cursor: str | None = f"{family.grandparent}:0"
    while cursor is not None:
        found = page(client, family.child, cursor=cursor, limit=limit)
        told += places(found)
        cursor = found["next_cursor"]
    assert told == family.places


def test_a_page_says_where_its_session_was_forked(client: httpx.Client, family: Family) -> None:
    first = page(client, family.child)
    assert (first["session_id"], first["end_sequence"], first["next_after_sequence"]) == (family.grandparent, 4, None)
    assert first["next_cursor"] == f"{family.parent}:0"
    last = page(client, family.child, cursor=f"{family.child}:2")
    assert (places(last), last["next_cursor"], last["end_sequence"]) == ([(family.child, 3)], None, 3)


def test_without_lineage_a_fork_is_its_own_positions_only(client: httpx.Client, family: Family) -> None:
    found = client.get(f"/v1/sessions/{family.child}/events").json()
    assert (places(found), found["next_cursor"]) == ([(family.child, 1), (family.child, 2), (family.child, 3)], None)


def test_a_session_that_is_no_fork_is_its_own_lineage(client: httpx.Client, family: Family) -> None:
    assert len(page(client, family.grandparent)["events"]) == 7


@pytest.mark.parametrize("size", [1, 200])
def test_a_stream_tells_places_and_is_resumed_behind_any_of_them(
    client: httpx.Client, family: Family, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("connectors.gateway.reading._STREAM_PAGE", size)
    expected = [f"{session}:{sequence}" for session, sequence in family.places]
    whole = stream(client, family.child, replay_only="true")
    assert [each.id for each in whole[:-1]] == expected
    assert whole[-1].event == "end"
    for at in (0, 3, 4, 6, 9):
        rest = stream(client, family.child, replay_only="true", last=expected[at])
        assert [each.id for each in rest[:-1]] == expected[at + 1 :]


def test_a_stream_goes_on_with_what_comes(client: httpx.Client, family: Family) -> None:
    body = {"at_event": event_at(client, family.parent, 1)["event_id"]}
    session = post(client, f"/v1/sessions/{family.parent}/forks", body, status=201)["session_id"]
    headers = {"accept": "text/event-stream", "last-event-id": f"{session}:1"}
    parser = Parser()
    with client.stream("GET", f"/v1/sessions/{session}/events", params={"lineage": "true"}, headers=headers) as response:
        pieces = response.iter_raw()
        next(pieces)
        post(client, f"/v1/sessions/{session}/events", message("more"))
        found: list[Message] = []
        while not found:
            found = list(parser.feed(next(pieces)))
    assert (found[0].id, found[0].event) == (f"{session}:2", "message.appended")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("lineage=true&after_sequence=1", 422, "request.invalid"),
        ("cursor=sess_" + "0" * 32 + ":1", 422, "request.invalid"),
        ("lineage=true&cursor=sess_" + "0" * 32 + ":1", 422, "request.invalid"),
        ("lineage=true&cursor=sess_" + "0" * 32, 422, "request.invalid"),
        ("lineage=true&cursor=7", 422, "request.invalid"),
        ("lineage=yes", 422, "request.invalid"),
    ],
)
def test_a_place_that_the_lineage_does_not_have_is_refused(
    client: httpx.Client, family: Family, query: str, status: int, code: str
) -> None:
    response = client.get(f"/v1/sessions/{family.child}/events?{query}")
    assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.mark.parametrize(("last", "lineage"), [("7", "true"), ("sess_1:2", "true"), ("sess_" + "0" * 32 + ":1", "false")])
def test_an_event_id_of_the_other_form_is_malformed(client: httpx.Client, family: Family, last: str, lineage: str) -> None:
    headers = {"accept": "text/event-stream", "last-event-id": last}
    response = client.get(f"/v1/sessions/{family.child}/events", params={"lineage": lineage}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "request.malformed")


def test_ancestors_are_seen_by_whoever_sees_the_fork(client: httpx.Client, family: Family, shared: World) -> None:
    path = f"/v1/sessions/{family.child}/events?lineage=true"
    assert shared.client("sessions:read").get(path).status_code == 200
    assert shared.client(workspace_id=OTHER_WORKSPACE).get(path).status_code == 404
    assert shared.client(subject_id="subj_" + "0" * 32).get(path).status_code == 404


def test_what_an_owner_lacks_of_a_stretch_is_missing_or_waited_for(family: Family, shared: World) -> None:
    row = shared.log.rows[family.grandparent]
    empty = EventsPage(row, (), (), 2)
    assert within(empty, Stretch(row.session_id, 4), 2).gaps == (Gap(3, 4, "sequence.missing"),)
    with pytest.raises(ProjectionBehind):
        within(empty, Stretch(row.session_id, row.sequence + 1), 2)
    assert within(empty, Stretch(row.session_id, None), 2) is empty
