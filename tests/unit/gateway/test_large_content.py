"""Content that no record holds: stored beside the log, and read as any other."""

import asyncio
import base64
import json
import random
import threading
from collections.abc import AsyncIterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from session_streams.export import read, verify
from streams.custody.claim_checks import ClaimCheck
from streams.custody.keyring import SecretRef
from streams.errors import BlobStoreUnavailable
from tests.support.gateway import WORKSPACE, World, key, message, ndjson, new_session, post, world
from tests.support.workers import worker_of

LARGE = "large " * 1_600_000


def noise(seed: int, size: int) -> str:
    """Does not compress."""
    return base64.b64encode(random.Random(seed).randbytes(size * 3 // 4)).decode()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def client(made: World) -> httpx.Client:
    return made.client()


def texts(made: World) -> list[Path]:
    """Files of claimed texts."""
    return sorted(path for path in (made.settings.data_dir / "blobs").rglob("evt_*") if path.is_file())


def events_of(client: httpx.Client, session: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/sessions/{session}/events", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def append(client: httpx.Client, session: str, body: dict[str, Any], idempotency_key: str) -> httpx.Response:
    return client.post(f"/v1/sessions/{session}/events", json=body, headers={"idempotency-key": idempotency_key})


def test_what_is_larger_than_a_record_reads_back_in_pages_and_streams_and_is_small_in_the_log(made: World, client: httpx.Client) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message("before"))
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    post(client, f"/v1/sessions/{session}/events", message("after"))
    contents = [event.get("content") for event in events_of(client, session)["events"]]
    assert contents[1:] == [message(text)["content"] for text in ("before", LARGE, "after")]
    assert max(len(value) for value in made.log.events[session]) < 2000
    assert len(texts(made)) == 1
    assert LARGE[:60].encode() not in texts(made)[0].read_bytes()
    answer = client.get(f"/v1/sessions/{session}/events?replay_only=true", headers={"accept": "text/event-stream"})
    data = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert [each.get("content") for each in data[1:4]] == contents[1:]


def test_an_export_holds_the_whole_text_and_verifies(client: httpx.Client) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    lines = client.get(f"/v1/sessions/{session}/export").content.splitlines(keepends=True)
    assert verify(lines).ok
    assert [entry.content for entry in read(lines)][1] == message(LARGE)["content"]


def test_many_events_that_are_too_large_together_are_one_command_all_the_same(made: World, client: httpx.Client) -> None:
    session = new_session(client)
    bodies = [message(noise(number, 4_000_000)) for number in range(4)]
    headers = {"content-type": "application/x-ndjson", **key()}
    answer = client.post(f"/v1/sessions/{session}/events", content=ndjson(*bodies), headers=headers)
    assert (answer.status_code, answer.json()["last_sequence"] - answer.json()["first_sequence"]) == (200, 3)
    assert [event.get("content") for event in events_of(client, session)["events"][1:]] == [body["content"] for body in bodies]
    assert 1 <= len(texts(made)) <= 3


def test_a_repeat_is_told_what_was_decided_and_stores_nothing_more(made: World, client: httpx.Client) -> None:
    session = new_session(client)
    first = append(client, session, message(LARGE), "same")
    stored = [(path, path.read_bytes()) for path in texts(made)]
    again = append(client, session, message(LARGE), "same")
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["session-streams-repeated"] == "true"
    assert [(path, path.read_bytes()) for path in texts(made)] == stored
    assert events_of(client, session)["events"][-1]["content"] == message(LARGE)["content"]


def test_a_refused_command_leaves_no_text(made: World, client: httpx.Client) -> None:
    session = new_session(client)
    append(client, session, message("first"), "same")
    for _ in range(2):
        answer = append(client, session, message(LARGE), "same")
        assert (answer.status_code, answer.json()["code"]) == (409, "request.idempotency_mismatch")
    headers = {"session-streams-expected-sequence": "7", **key()}
    answer = client.post(f"/v1/sessions/{session}/events", json=message(LARGE), headers=headers)
    assert answer.json()["code"] == "runtime.sequence_conflict"
    assert texts(made) == []


def test_while_the_store_is_away_nothing_large_is_sent_and_small_content_goes_on(
    made: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))

    async def away(name: str, chunks: AsyncIterable[bytes]) -> None:
        raise BlobStoreUnavailable("away")

    sent = len(made.log.events[session])
    with monkeypatch.context() as patched:
        patched.setattr(made.blobs, "put", away)
        answer = append(client, session, message(LARGE), "later")
        assert (answer.status_code, answer.json()["code"]) == (503, "service.blob_store_unavailable")
        assert len(made.log.events[session]) == sent
        post(client, f"/v1/sessions/{session}/events", message("small"))
    assert append(client, session, message(LARGE), "later").status_code == 200


def test_a_store_that_cannot_be_read_refuses_the_page_and_a_text_that_is_gone_is_a_gap(
    made: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    post(client, f"/v1/sessions/{session}/events", message("small"))

    async def away(name: str) -> Any:
        raise BlobStoreUnavailable("away")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(made.blobs, "get", away)
        answer = client.get(f"/v1/sessions/{session}/events")
        assert (answer.status_code, answer.json()["code"]) == (503, "service.blob_store_unavailable")
    texts(made)[0].unlink()
    large, small = events_of(client, session)["events"][1:]
    assert large["gap"] == {"reason": "unreadable"}
    assert small["content"] == message("small")["content"]
    lines = client.get(f"/v1/sessions/{session}/export").content.splitlines(keepends=True)
    assert [json.loads(line).get("reason") for line in lines[1:4]] == [None, "unreadable", None]


def test_erasing_the_session_takes_the_text_along(made: World, client: httpx.Client) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    made.keyring.destroy([SecretRef("session", WORKSPACE, session)])
    made.sealer.forget_all()
    assert events_of(client, session)["events"][1]["gap"] == {"reason": "erased"}


def test_a_page_ends_with_the_event_that_makes_it_large_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(opened_bytes_max=1_000_000, threads=4)) as made:
        client = made.client()
        session = new_session(client)
        for number in range(7):
            post(client, f"/v1/sessions/{session}/events", message(f"{number}" * 400_000))
        sequences, after, pages = [], 0, 0
        while after is not None:
            page = events_of(client, session, after_sequence=after)
            sequences += [event["sequence"] for event in page["events"]]
            after, pages = page["next_after_sequence"], pages + 1
            assert sum(len(json.dumps(event.get("content"))) for event in page["events"]) < 1_500_000
        assert sequences == list(range(1, 9))
        assert pages == 3
        answer = client.get(f"/v1/sessions/{session}/events?replay_only=true", headers={"accept": "text/event-stream"})
        assert [int(line.removeprefix("id: ")) for line in answer.text.splitlines() if line.startswith("id: ")] == sequences


def test_without_retention_a_large_text_is_left_out_and_never_stored(made: World) -> None:
    made.policies.set(WORKSPACE, mode="zdr")
    client = made.client()
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    assert events_of(client, session)["events"][1]["gap"] == {"reason": "omitted"}
    assert texts(made) == []


def test_texts_are_read_by_so_many_threads_at_once_and_no_more(made: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [new_session(client) for _ in range(6)]
    for session in sessions:
        post(client, f"/v1/sessions/{session}/events", message(LARGE))
    inside, most, lock = 0, 0, threading.Lock()
    fetch = made.gateway.texts.fetch

    async def counted(claim: ClaimCheck) -> bytes:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        await asyncio.sleep(0.05)
        with lock:
            inside -= 1
        return await fetch(claim)

    monkeypatch.setattr(made.gateway.texts, "fetch", counted)

    def read_one(session: str) -> int:
        return client.get(f"/v1/sessions/{session}/events").status_code

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(read_one, sessions)) == {200}
    assert most <= 2
    assert made.gateway.opened.taken == 0


def test_a_place_that_does_not_become_free_is_told_as_too_much_at_once(
    made: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message(LARGE))
    monkeypatch.setattr(made.gateway.text_gate, "_patience_s", 0.01)
    places = made.gateway.text_gate._places
    assert places.acquire()
    assert places.acquire()
    answer = client.get(f"/v1/sessions/{session}/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "service.overloaded")
    places.release()
    places.release()
    assert client.get(f"/v1/sessions/{session}/events").status_code == 200


def test_what_waits_for_its_callers_is_bounded_and_refused_beyond(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(opened_total_bytes_max=5_000_000, threads=4)) as made:
        client = made.client()
        session = new_session(client)
        post(client, f"/v1/sessions/{session}/events", message(LARGE))
        answer = client.get(f"/v1/sessions/{session}/events")
        assert (answer.status_code, answer.json()["code"]) == (503, "service.overloaded")
        lines = client.get(f"/v1/sessions/{session}/export").content.splitlines()
        assert json.loads(lines[-1])["code"] == "service.overloaded"
        stream = client.get(f"/v1/sessions/{session}/events?replay_only=true", headers={"accept": "text/event-stream"})
        assert ": service.overloaded" in stream.text
        assert made.gateway.opened.taken == 0
        assert client.get(f"/v1/sessions/{session}/events?limit=1").status_code == 200


def test_that_a_text_is_gone_shows_where_a_history_is_read_and_not_before(made: World, client: httpx.Client) -> None:
    worker = worker_of(client, new_session(client))
    worker.say(noise(4, 9 * 1024 * 1024))
    whole = worker.conversation(require_complete=True)
    assert json.loads(whole.text.splitlines()[-1])["complete"] is True
    texts(made)[0].unlink()
    answer = worker.conversation(require_complete=True)
    assert answer.status_code == 200
    gap, end = [json.loads(line) for line in answer.text.splitlines()]
    assert (gap["kind"], gap["reason"], end["kind"], end["complete"]) == ("gap", "content.unreadable", "end", False)
