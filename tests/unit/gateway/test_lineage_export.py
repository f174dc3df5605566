"""The export of a fork with its lineage: the ancestors' exports first, tied by what each fork names, continued anywhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from session_streams import Client, Retries
from session_streams.export import read, verify
from streams.errors import NotOwner
from streams.query.pages import EventsPage
from tests.support.gateway import World, message, ndjson, new_session, post, world


@pytest.fixture(scope="module")
def sessions(client: httpx.Client) -> list[str]:
    """A session, a fork of it at its third position, and a fork of that at its second; all of them went on."""
    made = [new_session(client)]
    for end in (3, 2):
        for number in range(end + 1):
            post(client, f"/v1/sessions/{made[-1]}/events", message(f"{len(made)}.{number}"))
        at = client.get(f"/v1/sessions/{made[-1]}/events").json()["events"][end - 1]["event_id"]
        made.append(post(client, f"/v1/sessions/{made[-1]}/forks", {"at_event": at}, status=201)["session_id"])
    post(client, f"/v1/sessions/{made[-1]}/events", message("the last"))
    return made


def exported(client: httpx.Client, session: str, status: int = 200, **query: Any) -> list[bytes]:
    answer = client.get(f"/v1/sessions/{session}/export", params=query)
    assert answer.status_code == status, answer.text
    return answer.content.splitlines(keepends=True)


def whole(client: httpx.Client, sessions: list[str]) -> list[bytes]:
    return exported(client, sessions[2], lineage="true")


def test_the_ancestors_come_first_each_to_where_it_was_forked(client: httpx.Client, sessions: list[str]) -> None:
    lines = whole(client, sessions)
    verdict = verify(lines, lineage=True)
    assert verdict.ok, verdict
    assert [(session_id, end) for session_id, end, _ in verdict.ancestors] == [(sessions[0], 3), (sessions[1], 2)]
    assert (verdict.session_id, verdict.end_sequence) == (sessions[2], 2)
    texts = [entry.content["text"] for entry in read(lines) if entry.type == "message.appended"]
    assert texts == ["1.0", "1.1", "2.0", "the last"]


def test_each_part_is_that_sessions_own_export_to_the_byte(client: httpx.Client, sessions: list[str]) -> None:
    parts = [
        exported(client, sessions[0], end_sequence=3), exported(client, sessions[1], end_sequence=2), exported(client, sessions[2]),
    ]  # fmt: skip
    assert [line for part in parts for line in part] == whole(client, sessions)


def test_without_lineage_a_fork_is_its_own_positions_alone(client: httpx.Client, sessions: list[str]) -> None:
    lines = exported(client, sessions[1])
    assert verify(lines).ok
    assert verify(lines, lineage=True).code == "not_whole"


def test_a_session_that_is_no_fork_has_a_lineage_of_itself(client: httpx.Client, sessions: list[str]) -> None:
    assert exported(client, sessions[0], lineage="true") == exported(client, sessions[0])


def test_it_goes_on_behind_any_position_with_the_same_bytes(client: httpx.Client, sessions: list[str]) -> None:
    lines = whole(client, sessions)
    section, first = "", 0
    for number, line in enumerate(lines):
        told = json.loads(line)
        if told["kind"] == "header":
            section, first = told["session_id"], number
        sequence = told.get("sequence", 0)
        if told["kind"] == "trailer":
            continue
        part = exported(client, sessions[2], lineage="true", cursor=f"{section}:{sequence}")
        assert json.loads(part[0]) == {**json.loads(lines[first]), "from_sequence": sequence + 1}
        assert part[1:] == lines[number + 1 :]


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "sess_" + "0" * 32 + ":1", "lineage": "true"}, {"cursor": "{1}:1"}, {"lineage": "true", "from_sequence": 2},
        {"lineage": "true", "cursor": "{2}:9"}, {"lineage": "true", "cursor": "nonsense"}, {"lineage": "maybe"},
    ],
    ids=["no-ancestor", "cursor-alone", "from-sequence", "behind-the-end", "no-place", "no-flag"],
)  # fmt: skip
def test_what_it_cannot_go_on_behind_is_refused(client: httpx.Client, sessions: list[str], query: dict[str, str]) -> None:
    asked = {name: value.format(*sessions) if isinstance(value, str) else value for name, value in query.items()}
    answer = client.get(f"/v1/sessions/{sessions[2]}/export", params=asked)
    assert answer.status_code in (400, 422), answer.text


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, limits=GatewayLimits(threads=2, export_patience_s=0.6)) as made:
        yield made


def long_fork(client: httpx.Client) -> str:
    """Two forks deep, each session of more than two pages."""
    session = new_session(client)
    for last in (False, False, True):
        headers = {"idempotency-key": f"many-{session}", "content-type": "application/x-ndjson"}
        body = ndjson(*(message(f"{number}") for number in range(449)))
        assert client.post(f"/v1/sessions/{session}/events", content=body, headers=headers).status_code == 200
        if not last:
            (event,) = client.get(f"/v1/sessions/{session}/events?after_sequence=429&limit=1").json()["events"]
            session = post(client, f"/v1/sessions/{session}/forks", {"at_event": event["event_id"]}, status=201)["session_id"]
    return session


def test_the_client_goes_on_by_itself_wherever_it_broke_off(small: World) -> None:
    client = small.client()
    fork = long_fork(client)
    undisturbed = exported(client, fork, lineage="true")
    assert verify(undisturbed, lineage=True).ok
    inner, asked = small.owners.events, 0

    async def failing(*arguments: Any, **named: Any) -> EventsPage:
        """Every fourth page and those behind it are not there, for longer than the export waits."""
        nonlocal asked
        asked += 1
        if asked % 8 > 3:
            raise NotOwner("gone", retry_after_s=0.1)
        return await inner(*arguments, **named)

    small.owners.events = failing  # type: ignore[method-assign]
    with Client(small.url, small.secret("export:read"), retries=Retries(total_s=5, first_pause_s=0.01)) as reader:
        assert list(reader.export(fork, lineage=True)) == undisturbed
    assert asked > 16


def test_a_transfer_goes_on_behind_every_line(client: httpx.Client, sessions: list[str]) -> None:
    """The answer is cut behind each line in turn; what the client puts together is the whole."""
    lines = whole(client, sessions)
    for cut in range(len(lines)):
        asked: list[dict[str, str]] = []

        def answered(request: httpx.Request, asked: list[dict[str, str]] = asked, cut: int = cut) -> httpx.Response:
            asked.append(dict(request.url.params))
            if len(asked) == 1:
                return httpx.Response(200, content=b"".join(lines[:cut]))
            return httpx.Response(200, content=b"".join(exported(client, sessions[2], **asked[-1])))

        retries = Retries(total_s=5, first_pause_s=0.001)
        with Client("http://x", "sks_x", retries=retries, transport=httpx.MockTransport(answered)) as reader:
            assert list(reader.export(sessions[2], lineage=True)) == lines, cut
        assert len(asked) == 2
