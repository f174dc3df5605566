"""The bundle of a session over HTTP: what is in it, who may have it, that its bytes are the same again, and how it ends badly."""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import rfc8785
from msgspec import structs

from connectors.edge.compose import SessionFacts
from connectors.gateway.bundle import MEDIA_TYPE
from connectors.gateway.limits import GatewayLimits
from session_streams import AsyncClient, Client, Retries, Unavailable
from session_streams.bundle import items, verify
from streams.custody.sealing import Opened
from streams.custody.signers import Signers
from streams.errors import ContentUnavailable, KeyringUnavailable
from streams.exports.bundle import Bundle
from streams.query.pages import EventsPage, Gap
from streams.session.events import Draft
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, message, ndjson, new_session, post, world
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def session_id(client: httpx.Client) -> str:
    session = new_session(client, subject="mia_li_3668", metadata={"purpose": "test"})
    for number in range(5):
        post(client, f"/v1/sessions/{session}/events", message(f"text {number}"))
    run = post(client, f"/v1/sessions/{session}/runs", {"harness": "test"}, status=201)["run_id"]
    post(client, f"/v1/sessions/{session}/runs/{run}/claim", {})
    return session


@pytest.fixture
def trust(client: httpx.Client) -> bytes:
    return client.get("/v1/signing-keys").content


def bundled(client: httpx.Client, session: str, **query: Any) -> bytes:
    answer = client.get(f"/v1/sessions/{session}/bundle", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    return answer.content


class TestABundle:
    def test_verifies_by_the_keys_that_anybody_with_a_key_is_told(self, shared: World, client: httpx.Client, session_id: str) -> None:
        file = bundled(client, session_id)
        trust = shared.client("sessions:read").get("/v1/signing-keys")
        assert trust.status_code == 200
        verdict = verify(file, trust.content, session_id=session_id)
        assert verdict.ok, verdict
        assert (verdict.session_id, verdict.end_sequence) == (session_id, 9)
        assert {section.name: section.items for section in verdict.sections} == {
            "events": 9, "actors": 1, "work": 2, "interactions": 0, "context-snapshots": 0, "artifacts": 0, "continuation-capsules": 0,
        }  # fmt: skip
        assert all(section.gaps for section in verdict.sections if section.items == 0)

    def test_has_the_export_and_a_line_for_each_object(self, client: httpx.Client, session_id: str, trust: bytes) -> None:
        file = bundled(client, session_id)
        assert file.startswith(client.get(f"/v1/sessions/{session_id}/export").content + b'{"facts":')
        run, attempt = items(file, trust, "work")
        assert (run["kind"], run["facts"], run["latest"]["type"]) == ("run", 2, "run.started")
        assert (attempt["kind"], attempt["id"], attempt["latest"]["attempt_generation"]) == ("attempt", f"{run['id']}#1", 1)

    def test_has_the_same_bytes_again_and_those_of_then_once_the_session_has_grown(self, client: httpx.Client) -> None:
        session = new_session(client)
        post(client, f"/v1/sessions/{session}/events", message("before"))
        before = bundled(client, session)
        assert bundled(client, session) == before
        post(client, f"/v1/sessions/{session}/events", message("after"))
        assert bundled(client, session, end_sequence=2) == before
        assert bundled(client, session) != before

    def test_stays_good_once_its_key_was_followed_and_not_once_it_is_revoked(
        self, shared: World, client: httpx.Client, session_id: str
    ) -> None:  # fmt: skip
        file, signers = bundled(client, session_id), Signers(shared.settings.signers_path)
        key_id = signers.current("bundles").public.key_id
        signers.rotate("bundles")
        assert verify(file, client.get("/v1/signing-keys").content).key_id == key_id
        assert verify(bundled(client, session_id), client.get("/v1/signing-keys").content).key_id != key_id
        signers.revoke(key_id)
        assert verify(file, client.get("/v1/signing-keys").content).code == "revoked_key"

    def test_of_what_cannot_be_read_names_the_gap(self, tmp_path: Path) -> None:
        with world(tmp_path) as made:
            client = made.client()
            session = new_session(client)
            for text in "abc":
                post(client, f"/v1/sessions/{session}/events", message(text))
            inner = made.owners.events

            async def lacking(*arguments: Any, **named: Any) -> EventsPage:
                page = await inner(*arguments, **named)
                return structs.replace(page, events=(page.events[0], *page.events[3:]), gaps=(Gap(2, 3, "wire.body", 17),))

            made.owners.events = lacking  # type: ignore[method-assign]
            verdict = verify(bundled(client, session), client.get("/v1/signing-keys").content)
            assert verdict.ok, verdict
            missing = {"reason": "missing", "count": 2, "first_sequence": 2, "last_sequence": 3}
            assert all(missing in section.gaps for section in verdict.sections)

    def test_names_content_that_was_omitted_that_is_erased_and_that_expired(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        session = new_session(client)
        path = f"/v1/sessions/{session}/events"
        first = post(client, path, message("erased text"))["event_ids"][0]
        post(client, path, message("kept text"))
        facts = SessionFacts(
            session_id=session, workspace_id=WORKSPACE, subject_id=None, policy_mode="standard", content_window_days=30
        )  # fmt: skip
        # No session mixes them on its own: its policy is pinned, and an erasure takes all of it.
        shared.gateway.facts.put(structs.replace(facts, policy_mode="zdr"))
        post(client, path, message("omitted text"))
        shared.gateway.facts.put(facts)
        last = [post(client, path, message("expired text"))["event_ids"][0] for _ in range(2)]
        gone = {first: "content.erased", **dict.fromkeys(last, "content.expired")}
        inner = shared.sealer.open_each

        def opened(events: Sequence[Draft]) -> Iterator[Opened | ContentUnavailable | None]:
            for event, found in zip(events, inner(events), strict=True):
                yield ContentUnavailable("gone", code=gone[event.event_id]) if event.event_id in gone else found

        before = bundled(client, session)
        monkeypatch.setattr(shared.sealer, "open_each", opened)
        file = bundled(client, session)
        assert bundled(client, session) == file
        verdict = verify(file, client.get("/v1/signing-keys").content)
        assert verdict.ok, verdict
        assert list(verdict.sections[0].gaps) == [
            {"reason": "erased", "count": 1, "first_sequence": 2, "last_sequence": 2},
            {"reason": "expired", "count": 2, "first_sequence": 5, "last_sequence": 6},
            {"reason": "omitted", "count": 1, "first_sequence": 4, "last_sequence": 4},
        ]
        said = (b"erased text", b"kept text", b"omitted text", b"expired text")
        assert [before.count(text) for text in said] == [1, 1, 0, 2]
        assert [file.count(text) for text in said] == [0, 1, 0, 0]
        assert [gap["reason"] for gap in verify(before, client.get("/v1/signing-keys").content).sections[0].gaps] == ["omitted"]

    def test_is_refused_beyond_the_end(self, client: httpx.Client, session_id: str) -> None:
        for query, status in (
            ("end_sequence=10", 422),
            ("end_sequence=0", 422),
            ("lineage=true", 422),
            ("end_sequence=1&end_sequence=1", 400),
        ):
            assert client.get(f"/v1/sessions/{session_id}/bundle?{query}").status_code == status, query


class TestWhoMayHaveIt:
    def test_needs_the_scope_of_an_export(self, shared: World, session_id: str) -> None:
        path = f"/v1/sessions/{session_id}/bundle"
        answer = shared.client("sessions:read", "sessions:write").get(path)
        assert (answer.status_code, answer.json()["code"]) == (403, "auth.scope")
        assert shared.client("export:read").get(path).status_code == 200
        assert shared.client(workspace_id=OTHER_WORKSPACE).get(path).status_code == 404

    def test_keys_are_told_to_nobody_without_one(self, shared: World) -> None:
        assert httpx.get(f"{shared.url}/v1/signing-keys").status_code == 401


def before(monkeypatch: pytest.MonkeyPatch, step: str, happens: Callable[[], object]) -> None:
    """That happens before this step of whoever writes a bundle."""
    inner = getattr(Bundle, step)

    def done(*arguments: Any) -> Any:
        happens()
        return inner(*arguments)

    monkeypatch.setattr(Bundle, step, done)


def failing(failure: Exception) -> Callable[[], object]:
    def fails() -> object:
        raise failure

    return fails


class TestHowItEndsBadly:
    def test_what_cannot_go_on_says_so_and_has_no_manifest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with world(tmp_path, limits=GatewayLimits(threads=4, exports_max=1)) as made:
            client = made.client()
            session = new_session(client)
            post(client, f"/v1/sessions/{session}/events", message("x"))

            def away(*_: Any, **__: Any) -> Any:
                raise KeyringUnavailable("away")

            with monkeypatch.context() as patched:
                patched.setattr(made.sealer, "open_each", away)
                file = bundled(client, session)
                assert file.splitlines()[-1] == (
                    b'{"kind":"error","status":503,"code":"service.keyring_unavailable","next_sequence":1}'
                )  # fmt: skip
                assert verify(file, client.get("/v1/signing-keys").content).code == "malformed_envelope"
                once = Client(made.url, made.secret(), retries=Retries(total_s=0))
                with once as theirs, (tmp_path / "a").open("w+b") as into, pytest.raises(Unavailable) as raised:
                    theirs.bundle(session, into)
                assert raised.value.code == "service.keyring_unavailable"
            assert verify(bundled(client, session), client.get("/v1/signing-keys").content).ok

    @pytest.mark.parametrize(
        ("failure", "status", "code"),
        [
            (sqlite3.OperationalError("database or disk is full"), 503, "service.unavailable"),
            (OSError("no space left"), 503, "service.unavailable"),
            (rfc8785.IntegerDomainError(2**53), 500, "service.internal"),
        ],
    )
    def test_nor_has_what_finds_no_room_or_fails(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, failure: Exception, status: int, code: str
    ) -> None:  # fmt: skip
        session = new_session(client)
        with monkeypatch.context() as patched:
            before(patched, "behind", failing(failure))
            file = bundled(client, session)
        assert json.loads(file.splitlines()[-1]) == {"kind": "error", "status": status, "code": code, "next_sequence": 2}
        assert shared.gateway.exports.taken == 0
        assert list((shared.settings.data_dir / "spool").iterdir()) == []

    def test_nor_has_what_the_gateway_stops_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with world(tmp_path) as made:
            client = made.client()
            session = new_session(client, subject="mia_li_3668")

            async def stops() -> None:
                made.gateway.stopping.set()

            # The section is told, and what is behind it is not.
            before(monkeypatch, "_piece", lambda: made.run(stops()))
            lines = bundled(client, session).splitlines()
            assert [json.loads(line).get("kind") for line in lines] == ["header", "event", "trailer", "subject", "error"]
            assert json.loads(lines[-1])["code"] == "service.unavailable"

    @pytest.mark.parametrize("step", ["behind", "_piece"])
    def test_nor_has_what_its_caller_may_not_have_any_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        """Before the sections, and before the envelope."""
        with world(tmp_path) as made:
            client = made.client()
            session = new_session(client, subject="mia_li_3668")

            def revoked() -> None:
                made.rows = {}

            before(monkeypatch, step, revoked)
            last = json.loads(bundled(client, session).splitlines()[-1])
            assert (last["kind"], last["status"]) == ("error", 401)

    def test_nor_has_what_cannot_be_signed_in_the_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with world(tmp_path) as made:
            client = made.client()
            session = new_session(client)
            before(monkeypatch, "behind", lambda: (made.settings.signers_path / "trust.json").write_text("{"))
            last = json.loads(bundled(client, session).splitlines()[-1])
            assert (last["kind"], last["code"]) == ("error", "service.internal")

    def test_the_key_of_the_end_signs_and_not_that_of_the_beginning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with world(tmp_path) as made:
            client, signers = made.client(), Signers(made.settings.signers_path)
            session = new_session(client)
            before(monkeypatch, "behind", lambda: signers.revoke(signers.current("bundles").public.key_id))
            assert verify(bundled(client, session), client.get("/v1/signing-keys").content).ok

    def test_without_its_keys_it_is_refused(self, tmp_path: Path) -> None:
        with world(tmp_path) as made:
            client = made.client()
            session = new_session(client)
            made.settings.signers_path.mkdir(parents=True)
            (made.settings.signers_path / "trust.json").write_text("{")
            answer = client.get(f"/v1/sessions/{session}/bundle")
            assert answer.status_code == 500
            assert made.gateway.exports.taken == 0

    def test_a_caller_who_leaves_gives_its_place_back(self, tmp_path: Path) -> None:
        with world(tmp_path, limits=GatewayLimits(threads=4, exports_max=1)) as made:
            client = made.client()
            session = new_session(client)
            for _ in range(20):
                post(client, f"/v1/sessions/{session}/events", message("x" * 300_000))
            with client.stream("GET", f"/v1/sessions/{session}/bundle") as answer:
                next(answer.iter_bytes())
            eventually(lambda: made.gateway.exports.taken == 0)


@pytest.fixture
def few() -> Retries:
    return Retries(total_s=0.0)


class TestTheClients:
    def test_write_a_bundle_to_a_file_and_tell_the_keys(self, shared: World, session_id: str, tmp_path: Path) -> None:
        with Client(shared.url, shared.secret()) as client, (tmp_path / "a").open("w+b") as file:
            file.write(b"what was there before" * 10_000)
            client.bundle(session_id, file, end_sequence=4)
            trust = msgspec.json.encode(client.signing_keys())
        assert verify(tmp_path / "a", trust).end_sequence == 4

    def test_so_does_the_asynchronous_one(self, shared: World, session_id: str, tmp_path: Path) -> None:
        async def fetched() -> bytes:
            async with AsyncClient(shared.url, shared.secret()) as client:
                with (tmp_path / "b").open("w+b") as file:
                    await client.bundle(session_id, file)
                return msgspec.json.encode(await client.signing_keys())

        assert verify(tmp_path / "b", asyncio.run(fetched())).ok

    def test_begin_anew_where_it_broke_off(self, tmp_path: Path) -> None:
        asked: list[int] = []

        def answered(request: httpx.Request) -> httpx.Response:
            asked.append(1)
            if len(asked) == 1:
                return httpx.Response(200, stream=_Broken())
            return httpx.Response(200, content=b'{"payload":"whole","signatures":[]}\n')

        again = Client("http://x", "k", transport=httpx.MockTransport(answered), sleep=lambda _: None)
        with again as client, (tmp_path / "c").open("w+b") as file:
            client.bundle("sess_x", file)
        assert (tmp_path / "c").read_bytes() == b'{"payload":"whole","signatures":[]}\n'

    def test_raise_what_the_service_refuses(self, tmp_path: Path, few: Retries) -> None:
        refusal = httpx.Response(503, json={"code": "service.unavailable", "detail": "no"})
        once = Client("http://x", "k", retries=few, transport=httpx.MockTransport(lambda _: refusal))
        with once as client, (tmp_path / "d").open("w+b") as file, pytest.raises(Unavailable):
            client.bundle("sess_x", file)


class _Broken(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"a piece, and no more of what was to come"
        raise httpx.ReadError("reset")


def test_a_bundle_of_many_pages_is_what_its_digest_says(client: httpx.Client, trust: bytes) -> None:
    session = new_session(client)
    headers = {"idempotency-key": f"many-{session}", "content-type": "application/x-ndjson"}
    body = ndjson(*(message(f"text {number} " + "x" * 500) for number in range(1000)))
    assert client.post(f"/v1/sessions/{session}/events", content=body, headers=headers).status_code == 200
    file = bundled(client, session)
    verdict = verify(file, trust)
    assert (verdict.ok, verdict.end_sequence) == (True, 1001)
    exported = client.get(f"/v1/sessions/{session}/export").content
    assert verdict.sections[0].digest == f"sha256:{hashlib.sha256(exported).hexdigest()}"
