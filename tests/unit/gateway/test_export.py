"""The export of a session over HTTP: its lines, who may have it, how it goes on after a break, and how it ends badly."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import structs

from connectors.gateway.limits import GatewayLimits
from session_streams import AsyncClient, Client, ConnectionFailed, ExportChanged, NotFound, Retries, Unauthenticated, Unavailable
from session_streams.export import read, verify
from streams.custody.keyring import SecretRef
from streams.errors import NotOwner, StreamsError
from streams.query.pages import EventsPage, Gap
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, message, ndjson, new_session, post, world
from tests.support.waiting import eventually

TEXTS = [
    {"text": "hello", "n": 10**40, "nested": [[], {}, None, True]},
    '\u2028 \u0000 \\ " é 😀',
    1.5,
    [],
]


@pytest.fixture(scope="module")
def session_id(client: httpx.Client) -> str:
    """A session of 9 positions, of several kinds, some with content."""
    session = new_session(client, subject="mia_li_3668", metadata={"purpose": "test"})
    for text in TEXTS:
        post(client, f"/v1/sessions/{session}/events", {**message(), "content": text})
    raw = b'{"type":"message.appended","content": { "big" : 123456789012345678901234567890, "e":"\\u00e9" , "f":1.50e+3 } }\n'
    headers = {"idempotency-key": f"raw-{session}", "content-type": "application/x-ndjson"}
    assert client.post(f"/v1/sessions/{session}/events", content=raw, headers=headers).status_code == 200
    run = post(client, f"/v1/sessions/{session}/runs", {"harness": "test"}, status=201)["run_id"]
    post(client, f"/v1/sessions/{session}/runs/{run}/claim", {})
    return session


def exported(client: httpx.Client, session: str, **query: Any) -> list[bytes]:
    answer = client.get(f"/v1/sessions/{session}/export", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return answer.content.splitlines(keepends=True)


class TestAnExport:
    def test_verifies_and_comes_back_deep_equal(self, client: httpx.Client, session_id: str) -> None:
        lines = exported(client, session_id)
        verdict = verify(lines)
        assert verdict.ok, verdict
        entries = list(read(lines))
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.content for entry in entries[:5]] == [{"purpose": "test"}, *TEXTS]
        assert entries[5].text == '{ "big" : 123456789012345678901234567890, "e":"\\u00e9" , "f":1.50e+3 }'
        assert entries[6].type == "run.accepted"

    def test_shows_what_the_events_route_shows(self, client: httpx.Client, session_id: str) -> None:
        shown = client.get(f"/v1/sessions/{session_id}/events?limit=100").json()["events"]
        for entry, event in zip(read(exported(client, session_id)), shown, strict=True):
            for name in ("event_id", "type", "workspace_id", "command_id", "previous_hash", "hash", "sequence", "command_last"):
                assert entry.fields[name] == event[name]
            assert entry.fields["content"]["digest"] == event.get("content_digest")
            assert entry.content == event.get("content")

    def test_names_its_end_first_and_keeps_to_it_though_the_session_grows(self, client: httpx.Client) -> None:
        session = new_session(client)
        post(client, f"/v1/sessions/{session}/events", message("before"))
        before = exported(client, session)
        post(client, f"/v1/sessions/{session}/events", message("after"))
        assert json.loads(before[0])["end_sequence"] == 2
        assert exported(client, session, end_sequence=2) == before
        assert json.loads(exported(client, session)[0])["end_sequence"] == 3

    def test_goes_on_anywhere_with_the_same_bytes(self, client: httpx.Client, session_id: str) -> None:
        lines = exported(client, session_id)
        end = len(lines) - 2
        for start in range(1, end + 2):
            part = exported(client, session_id, from_sequence=start, end_sequence=end)
            assert lines[:start] + part[1:] == lines
            assert verify(part, part=True).ok

    def test_is_refused_where_it_would_begin_or_end_behind_the_session(self, client: httpx.Client, session_id: str) -> None:
        path = f"/v1/sessions/{session_id}/export"
        end = len(exported(client, session_id)) - 2
        for query, status in (
            (f"from_sequence={end + 2}", 422), (f"end_sequence={end + 1}", 422), ("from_sequence=0", 422), ("end_sequence=0", 422),
            ("from_sequence=3&end_sequence=1", 422), ("from_sequence=x", 422), ("after=1", 422), ("from_sequence=1&from_sequence=2", 400),
            (f"from_sequence={2**63}", 422),
        ):  # fmt: skip
            assert client.get(f"{path}?{query}").status_code == status, query

    def test_of_a_thousand_positions_comes_page_by_page(self, client: httpx.Client) -> None:
        session = new_session(client)
        headers = {"idempotency-key": f"many-{session}", "content-type": "application/x-ndjson"}
        body = ndjson(*(message(f"text {number} " + "x" * 500) for number in range(1000)))
        assert client.post(f"/v1/sessions/{session}/events", content=body, headers=headers).status_code == 200
        lines = exported(client, session)
        assert verify(lines).positions == 1001
        assert [entry.content["text"].split()[1] for entry in list(read(lines))[1:]] == [str(number) for number in range(1000)]


class TestWhoMayHaveIt:
    def test_needs_its_own_scope(self, shared: World, session_id: str) -> None:
        answer = shared.client("sessions:read", "sessions:write").get(f"/v1/sessions/{session_id}/export")
        assert (answer.status_code, answer.json()["code"]) == (403, "auth.scope")
        assert shared.client("export:read").get(f"/v1/sessions/{session_id}/export").status_code == 200

    def test_another_workspaces_session_is_not_found(self, shared: World, session_id: str) -> None:
        other = shared.client(workspace_id=OTHER_WORKSPACE)
        absent = other.get(f"/v1/sessions/sess_{'0' * 32}/export").json()
        found = other.get(f"/v1/sessions/{session_id}/export")
        assert found.status_code == 404
        assert found.json()["detail"].replace(session_id, "sess_" + "0" * 32) == absent["detail"]

    def test_a_key_for_one_subject_gets_that_subjects_sessions_only(self, shared: World, client: httpx.Client, session_id: str) -> None:
        subject = client.get(f"/v1/sessions/{session_id}").json()["subject_id"]
        assert shared.client("export:read", subject_id=subject).get(f"/v1/sessions/{session_id}/export").status_code == 200
        other = shared.client("export:read", subject_id="subj_" + "7" * 32)
        assert other.get(f"/v1/sessions/{session_id}/export").status_code == 404

    def test_so_many_at_once(self, shared: World, client: httpx.Client, session_id: str) -> None:
        exports = shared.gateway.exports
        exports.take(exports.limit)
        try:
            answer = client.get(f"/v1/sessions/{session_id}/export")
        finally:
            exports.give_back(exports.limit)
        assert (answer.status_code, answer.json()["code"]) == (503, "service.overloaded")
        assert exports.taken == 0
        for _ in range(exports.limit + 1):
            client.get(f"/v1/sessions/{session_id}/export")
            client.get(f"/v1/sessions/sess_{'0' * 32}/export")
        eventually(lambda: exports.taken == 0)


class TestContentThatIsGone:
    def test_leaves_a_chain_that_verifies_and_a_reason(self, client: httpx.Client, shared: World) -> None:
        session = new_session(client, metadata="m")
        post(client, f"/v1/sessions/{session}/events", message("swordfish"))
        post(client, f"/v1/sessions/{session}/events", {"type": "message.appended"})
        whole = exported(client, session)
        shared.keyring.destroy([SecretRef("session", WORKSPACE, session)])
        shared.sealer.forget_all()
        lines = exported(client, session)
        verdict = verify(lines)
        assert verdict.ok, verdict
        assert verdict.unavailable == {"erased": 2}
        assert verdict.last_hash == verify(whole).last_hash
        assert [entry.unavailable for entry in read(lines)] == ["erased", "erased", None]
        assert b"swordfish" not in b"".join(lines)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    """A gateway of one's own that gives up soon."""
    limits = GatewayLimits(threads=2, export_patience_s=0.6, stall_s=1.0, exports_max=2)
    with world(tmp_path, limits=limits) as made:
        yield made


def long_session(client: httpx.Client, positions: int = 600, size: int = 100) -> str:
    session = new_session(client)
    headers = {"idempotency-key": f"many-{session}", "content-type": "application/x-ndjson"}
    body = ndjson(*(message(f"{number}" + "x" * size) for number in range(positions - 1)))
    assert client.post(f"/v1/sessions/{session}/events", content=body, headers=headers).status_code == 200
    return session


class Failing:
    """Wraps the owners of a world: `failures` are raised, one a page, from the second page on; `on_page` changes a page."""

    def __init__(self, made: World) -> None:
        self.failures: list[StreamsError] = []
        self.on_page: Callable[[EventsPage], EventsPage] = lambda page: page
        self.pages = 0
        self.at_end: list[bool] = []
        inner = made.owners.events

        async def events(*arguments: Any, **named: Any) -> EventsPage:
            if named["after"] > 0 and self.failures:
                raise self.failures.pop(0)
            self.pages += 1
            self.at_end.append(named.get("at_end", False))
            return self.on_page(await inner(*arguments, **named))

        made.owners.events = events  # type: ignore[method-assign]


def away(times: int) -> list[StreamsError]:
    return [NotOwner("gone", retry_after_s=0.1)] * times


def test_an_export_asks_for_the_whole_session_as_it_stands_now(small: World) -> None:
    """A short one from a table that lags would verify all the same."""
    client, asked = small.client(), Failing(small)
    session = long_session(client)
    assert verify(exported(client, session)).positions == 600
    assert asked.at_end == [True, *[False] * (asked.pages - 1)]


class TestWhenTheOwnerGoesAway:
    def test_the_next_one_goes_on(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client)
        failing.failures = away(2)
        assert verify(exported(client, session)).positions == 600

    def test_and_stays_away_the_export_says_so_and_is_not_whole(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client)
        failing.failures = away(50)
        lines = exported(client, session)
        assert json.loads(lines[-1]) == {"kind": "error", "status": 503, "code": "service.not_owner", "next_sequence": 201}
        verdict = verify(lines)
        assert (verdict.code, verdict.next_sequence) == ("incomplete", 201)
        failing.failures = []
        rest = exported(client, session, from_sequence=201, end_sequence=600)
        assert verify([*lines[:-1], *rest[1:]]).positions == 600

    def test_an_owner_that_is_behind_is_not_taken_for_the_end(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client)

        def behind(page: EventsPage) -> EventsPage:
            stale = structs.replace(page, session=structs.replace(page.session, sequence=200), events=())
            return stale if failing.pages == 2 else page

        failing.on_page = behind
        assert verify(exported(client, session)).positions == 600

    def test_a_key_that_is_revoked_ends_it(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client)
        secret = small.secret("export:read")

        def revoke(page: EventsPage) -> EventsPage:
            small.rows = {}
            return page

        reader = small.client_with(secret)
        failing.on_page = revoke
        lines = exported(reader, session)
        assert json.loads(lines[-1])["kind"] == "error"
        assert json.loads(lines[-1])["status"] == 401


class TestPositionsThatTheOwnerLacks:
    def test_are_told_one_by_one_and_named_by_the_check(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client, 6)

        def lacking(page: EventsPage) -> EventsPage:
            return structs.replace(page, events=(*page.events[:2], *page.events[4:]), gaps=(Gap(3, 3, "wire.body", 17),))

        failing.on_page = lacking
        lines = exported(client, session)
        assert [json.loads(line) for line in lines[3:5]] == [
            {"kind": "missing", "sequence": 3, "reason": "wire.body"},
            {"kind": "missing", "sequence": 4, "reason": "sequence.missing"},
        ]
        verdict = verify(lines)
        assert (verdict.code, verdict.sequence) == ("missing_position", 3)

    def test_at_the_end_and_unreadable_ones_too(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client, 6)

        def lacking(page: EventsPage) -> EventsPage:
            events = (b"\1nonsense", *page.events[1:4]) if len(page.events) == 6 else ()
            return structs.replace(page, events=events, next_after=page.next_after)

        failing.on_page = lacking
        kinds = [(json.loads(line)["kind"], json.loads(line).get("reason")) for line in exported(client, session)]
        assert kinds == [
            ("header", None), ("missing", "wire.magic"), *[("event", None)] * 3, *[("missing", "sequence.missing")] * 2, ("trailer", None),
        ]  # fmt: skip


class TestACallerWhoDoesNotRead:
    def test_is_waited_for_and_then_given_up_while_little_is_held(self, small: World) -> None:
        """Two megabytes a page, of which the gateway asks for no more than the caller takes."""
        client, failing = small.client(), Failing(small)
        session = long_session(client, 400, 15_000)
        secret = small.secret("export:read")
        port = int(small.url.rsplit(":", 1)[1])
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            plain.connect(("127.0.0.1", port))
            plain.sendall(f"GET /v1/sessions/{session}/export HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n".encode())
            eventually(lambda: small.gateway.exports.taken == 1)
            eventually(lambda: small.gateway.exports.taken == 0, timeout_s=10)
            assert failing.pages <= 3

    def test_is_not_gone_on_for_when_it_leaves(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client, 400, 15_000)
        headers = {"authorization": f"Bearer {small.secret('export:read')}"}
        with httpx.stream("GET", f"{small.url}/v1/sessions/{session}/export", headers=headers) as answer:
            next(answer.iter_raw())
        eventually(lambda: small.gateway.exports.taken == 0)
        assert failing.pages <= 3

    def test_gets_a_line_when_the_gateway_stops(self, small: World) -> None:
        client, failing = small.client(), Failing(small)
        session = long_session(client)

        def stop(page: EventsPage) -> EventsPage:
            small.stop_streams()
            return page

        failing.on_page = stop
        assert json.loads(exported(client, session)[-1])["code"] == "service.unavailable"


class TestTheClient:
    RETRIES = Retries(total_s=5, first_pause_s=0.01)

    def test_goes_on_by_itself_where_an_export_broke_off(self, small: World) -> None:
        failing = Failing(small)
        session = long_session(small.client())
        failing.failures = away(4)
        with Client(small.url, small.secret("export:read"), retries=self.RETRIES) as client:
            lines = list(client.export(session))
        assert verify(lines).positions == 600
        assert lines == exported(small.client(), session)

    def test_may_begin_where_a_file_ends(self, shared: World, session_id: str) -> None:
        with Client(shared.url, shared.secret("export:read")) as client:
            whole = list(client.export(session_id))
            assert whole[:4] + list(client.export(session_id, from_sequence=4, end_sequence=len(whole) - 2))[1:] == whole

    def test_has_an_asynchronous_twin(self, small: World) -> None:
        failing = Failing(small)
        session = long_session(small.client())
        failing.failures = away(4)

        async def collect() -> list[bytes]:
            async with AsyncClient(small.url, small.secret("export:read"), retries=self.RETRIES) as client:
                return [line async for line in client.export(session)]

        assert verify(asyncio.run(collect())).positions == 600

    def test_is_refused_as_everywhere(self, shared: World, session_id: str) -> None:
        with Client(shared.url, shared.secret("export:read", workspace_id=OTHER_WORKSPACE)) as client, pytest.raises(NotFound):
            list(client.export(session_id))
        with Client(shared.url, "sks_" + "x" * 43) as client, pytest.raises(Unauthenticated):
            list(client.export(session_id))

    def test_gives_up_in_the_end(self, small: World) -> None:
        failing = Failing(small)
        session = long_session(small.client())
        failing.failures = away(10_000)
        with Client(small.url, small.secret("export:read"), retries=Retries(total_s=0.5)) as client:
            begun = time.monotonic()
            with pytest.raises(Unavailable):
                list(client.export(session))
            assert time.monotonic() - begun < 10

    @pytest.mark.parametrize("body", [b"<html>\n", b'{"kind":"header","session_id":"sess_x"}\n', b"null\n", b"\xff\n"])
    def test_takes_nothing_else_for_an_export(self, body: bytes) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
        with Client("http://x", "sks_x", retries=Retries(total_s=0), transport=transport) as client, pytest.raises(ExportChanged):
            list(client.export("sess_" + "0" * 32))

    def test_does_not_take_silence_for_an_export(self) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200))
        with Client("http://x", "sks_x", retries=Retries(total_s=0), transport=transport) as client, pytest.raises(ConnectionFailed):
            list(client.export("sess_" + "0" * 32))

    def test_does_not_join_two_different_exports(self, shared: World, session_id: str, client: httpx.Client) -> None:
        """The second answer is of another version of the format, as after an upgrade in between."""
        lines = exported(client, session_id)
        other = exported(client, session_id, from_sequence=3)
        other[0] = other[0].replace(b'"format_version":1', b'"format_version":2')
        answers = iter([b"".join(lines[:3]), b"".join(other)])
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=next(answers)))
        with Client("http://x", "sks_x", retries=self.RETRIES, transport=transport) as reader, pytest.raises(ExportChanged):
            list(reader.export(session_id))
