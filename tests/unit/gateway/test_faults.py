"""When the log, the owners or the keyring do not answer, or too much is asked."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.gateway.limits import GatewayLimits
from streams.custody.group_commit import connect
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import BrokerUnavailable
from streams.log.record import decode_event
from tests.support.gateway import World, key, message, ndjson, new_session, post, world
from tests.support.object_server import CREDENTIALS, object_server
from tests.support.waiting import eventually


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[World]:
    """Gives up on outcomes after 0.3 s."""
    with world(tmp_path, request_timeout_s=0.3) as made:
        yield made


def refused(response: httpx.Response, code: str) -> None:
    assert (response.status_code, response.json()["code"]) == (503, code)
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["retry_after"] >= 1


def test_a_lost_outcome_is_unknown_and_the_same_key_finds_out(impatient: World) -> None:
    client = impatient.client()
    session = new_session(client)
    headers = key()
    impatient.log.withhold = 1
    refused(client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers), "service.outcome_unknown")
    again = client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers)
    assert (again.status_code, again.headers["session-streams-repeated"]) == (200, "true")
    assert len(impatient.log.events[session]) == 2


def test_a_command_that_nobody_decided_takes_effect_once_when_it_is_sent_again(impatient: World) -> None:
    client = impatient.client()
    session = new_session(client)
    headers = key()
    impatient.log.mute = 1
    refused(client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers), "service.outcome_unknown")
    assert client.post(f"/v1/sessions/{session}/events", json=message(), headers=headers).status_code == 200
    assert len(impatient.log.events[session]) == 2


def test_a_command_that_was_not_delivered_may_have_been_stored(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    shared.log.undeliverable = BrokerUnavailable("timed out")
    try:
        refused(client.post(f"/v1/sessions/{session}/events", json=message(), headers=key()), "service.outcome_unknown")
    finally:
        shared.log.undeliverable = None
    assert shared.gateway.submitter.under_way == 0


def test_more_commands_than_may_be_under_way_are_refused_at_once(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(commands_max=3), request_timeout_s=2) as made:
        client = made.client()
        session = new_session(client)
        made.log.mute = 100
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(client.post, f"/v1/sessions/{session}/events", json=message(), headers=key()) for _ in range(3)]
            eventually(lambda: made.gateway.submitter.under_way == 3)
            refused(client.post(f"/v1/sessions/{session}/events", json=message(), headers=key()), "service.overloaded")
            assert client.get(f"/v1/sessions/{session}").status_code == 200
            assert {each.result().json()["code"] for each in waiting} == {"service.outcome_unknown"}
        assert (made.gateway.changes.taken, made.gateway.bodies.taken) == (0, 0)


def test_bodies_that_are_held_at_once_are_bounded(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(bodies_bytes_max=1_000_000)) as made:
        client = made.client()
        session = new_session(client)
        body = ndjson(message("x" * 1_200_000))
        headers = {"content-type": "application/x-ndjson", **key()}
        refused(client.post(f"/v1/sessions/{session}/events", content=body, headers=headers), "service.overloaded")
        assert made.gateway.bodies.taken == 0


def test_a_key_that_asks_too_often_is_slowed_down_and_others_are_not(tmp_path: Path) -> None:
    with world(tmp_path, limits=GatewayLimits(requests_per_s=0.5, requests_burst=3)) as made:
        client, other = made.client(), made.client()
        path = "/v1/sessions/sess_" + "0" * 32
        assert [client.get(path).status_code for _ in range(4)] == [404, 404, 404, 429]
        response = client.get(path)
        assert response.json()["code"] == "request.rate_limited"
        assert 1 <= int(response.headers["retry-after"]) <= 3
        assert other.get(path).status_code == 404


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with closing(connect(folder / "keyring.sqlite", timeout_s=1)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        yield
        intruder.execute("ROLLBACK")


@contextmanager
def gone(folder: Path) -> Iterator[None]:
    away = folder.rename(folder.with_name("away"))
    yield
    away.rename(folder)


@pytest.mark.parametrize("away", [locked, gone])
def test_nothing_is_sealed_while_the_keyring_is_away(
    shared: World, client: httpx.Client, away: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """What needs a secret or a name that is not there yet is refused and not sent; the same request succeeds afterwards."""
    session, sent = new_session(client), len(shared.log.commands)
    requests = [
        ("/v1/sessions", {"subject": f"new while {away.__name__}"}, key()),
        (f"/v1/sessions/{session}/events", message(actor=f"new while {away.__name__}"), key()),
    ]
    with away(shared.settings.data_dir / "keyring"):
        for path, body, headers in requests:
            refused(client.post(path, json=body, headers=headers), "service.keyring_unavailable")
    assert len(shared.log.commands) == sent
    for path, body, headers in requests:
        assert client.post(path, json=body, headers=headers).status_code < 300


def test_nothing_is_sealed_while_the_bucket_of_the_keyring_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with (
        object_server() as server,
        world(tmp_path, keyring=f"s3://{server.new_bucket()}/keys", keyring_endpoint=server.url) as made,
    ):
        client = made.client()
        session = new_session(client, subject="before")
        post(client, f"/v1/sessions/{session}/events", message())
        sent = len(made.log.commands)
        server.process.kill()
        server.process.wait()
        refused(client.post("/v1/sessions", json={"subject": "new"}, headers=key()), "service.keyring_unavailable")
        refused(client.post(f"/v1/sessions/{session}/events", json=message(actor="new"), headers=key()), "service.keyring_unavailable")
        assert len(made.log.commands) == sent


def copied(folder: Path, to: Path) -> Path:
    """A keyring's files as the disk has them, with no process ended and nothing flushed for it."""
    to.mkdir()
    for path in folder.iterdir():
        # Read by another process: opening SQLite's files in this one would give up its locks.
        content = subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout
        if not path.name.endswith("-shm"):
            (to / path.name).write_bytes(content)
            (to / path.name).chmod(0o600)
    return to


def test_what_leaves_for_kafka_opens_with_the_keyring_as_the_disk_had_it_then(
    shared: World, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between keyring and Kafka: the secrets are on the disk before the command leaves, so the copy of the files that is
    taken at that moment opens what is answered later."""
    send, copies = shared.log.send, list[Path]()

    def cut_here(*given: Any, **more: Any) -> None:
        copies.append(copied(shared.settings.data_dir / "keyring", tmp_path / f"keyring-{len(copies)}"))
        send(*given, **more)

    monkeypatch.setattr(shared.log, "send", cut_here)
    session = new_session(client, subject="power-cut", metadata={"first": "words"})
    told = post(client, f"/v1/sessions/{session}/events", message("said before the lights went out"))
    created, said = map(decode_event, shared.log.events[session])
    assert told["event_ids"] == [said.event_id]
    for directory, event, content in (
        (copies[0], created, {"first": "words"}),
        (copies[1], said, {"text": "said before the lights went out"}),
    ):
        with closing(open_local_keyring(directory)) as keyring:
            (opened,) = Sealer(keyring, cache_seconds=1).open_many([event])
        assert isinstance(opened, bytes)
        assert json.loads(opened) == content


def test_a_gateway_that_may_have_missed_a_revocation_refuses_everybody(client: httpx.Client, shared: World) -> None:
    shared.stale_keys = True
    try:
        refused(client.get("/v1/sessions"), "service.not_ready")
        refused(client.get("/readyz"), "service.not_ready")
        assert client.get("/healthz").status_code == 200
    finally:
        shared.stale_keys = False
    assert client.get("/readyz").json() == {"ready": True}


def test_what_nobody_foresaw_is_told_without_its_words(
    client: httpx.Client, shared: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = new_session(client)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("mia_li_3668 said hello")

    monkeypatch.setattr(shared.gateway.composer, "compose", broken)
    problem = post(client, f"/v1/sessions/{session}/events", message("hello"), status=500)
    assert problem["code"] == "service.internal"
    logged = capsys.readouterr().out
    assert "request_crashed" in logged
    assert "mia_li" not in str(problem) + logged


def test_logs_hold_neither_content_nor_keys_nor_names(shared: World, capsys: pytest.CaptureFixture[str]) -> None:
    secret = shared.secret()
    client = shared.client_with(secret)
    session = new_session(client, subject="mia_li_3668", metadata={"canary": "words-of-a-person"})
    post(client, f"/v1/sessions/{session}/events", message("words-of-a-person", actor="agent_smith"))
    post(client, f"/v1/sessions/{session}/events", message("words-of-a-person", run_id="nonsense"), status=422)
    client.get(f"/v1/sessions/{session}/events")
    shared.log.undeliverable = BrokerUnavailable("away")
    try:
        client.post(f"/v1/sessions/{session}/events", json=message("words-of-a-person"), headers={"idempotency-key": "key-of-mia"})
        shared.owners.failure = shared.graph_owners.failure = BrokerUnavailable("away")
        for path in ("/v1/sessions/mia_li_3668", f"/v1/sessions/{session}", "/v1/sessions/mia_li_3668/graph"):
            client.get(path)
        shared.stale_keys = True
        client.get("/v1/sessions/mia_li_3668")
        client.get(f"/v1/sessions/{session}/export")
    finally:
        shared.stale_keys, shared.log.undeliverable = False, None
        shared.owners.failure = shared.graph_owners.failure = None
    captured = capsys.readouterr()
    logged = captured.out + captured.err
    assert session in logged
    assert logged.count("request_failed") == 4
    for word in (secret, secret[4:20], "words-of-a-person", "mia_li_3668", "agent_smith", "key-of-mia"):
        assert word not in logged


def test_concurrent_changes_of_many_callers_are_each_answered_with_their_own_outcome(client: httpx.Client) -> None:
    session = new_session(client)
    answers: list[dict[str, object]] = []
    lock = threading.Lock()

    def send(number: int) -> None:
        response = client.post(f"/v1/sessions/{session}/events", json=message(str(number)), headers=key())
        with lock:
            answers.append({"number": str(number), **response.json()})

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, range(100)))
    events = {event["sequence"]: event for event in client.get(f"/v1/sessions/{session}/events?limit=200").json()["events"]}
    assert sorted(answer["last_sequence"] for answer in answers) == list(range(2, 102))  # type: ignore[type-var]
    assert all(events[answer["last_sequence"]]["content"]["text"] == answer["number"] for answer in answers)
