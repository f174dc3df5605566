"""A workspace under zero data retention: nothing of what it is sent reaches Kafka, RocksDB, the blob store or a log, not even sealed;
structure, graph and counts still work (design 04, "Policies").

The same is sent in a workspace that keeps content, so that what is looked for is shown to be there.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.cli.kafka import LocalKafka
from connectors.edge.policies import PolicyAdministration
from connectors.sources.direct import direct_transport
from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.samples import FOLDER
from streams.custody.dead_letters import Address, open_dead_letter
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import RecordUnreadable
from streams.log.reader import PartitionReader, end_offsets
from streams.log.record import decode_command, decode_dead_letter, decode_event
from streams.log.topics import Topics
from streams.session.dead_letters import DeadLetter
from streams.session.events import SEALED
from tests.support.erasing import ROLES, Erasing, erasing_installation, quick_broker, quick_settings
from tests.support.erasure_world import CANARIES, leave_canaries
from tests.support.gateway import key, message, post
from tests.support.reading_logs import consumed, stored
from tests.support.roles import WORKSPACE
from tests.support.rows import key_administration
from tests.support.searching import Needles, Search, search_twice
from tests.support.waiting import eventually
from tests.support.workers import Worker, claimed, opened

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

KEEPS_NOTHING = "ws_" + "e" * 32
ACTION, ANOTHER, REQUEST = ("sha256:" + digit * 64 for digit in "123")
SCOPES = ("admin", "agent-checkpoints:read", "agent-checkpoints:write", "context:compile", "sessions:import")
SAID = {
    "message": b"what a person told an agent", "metadata": b"a purpose that nobody may know", "large": b"the text that is very large",
    "question": b"may I book the blue room", "snapshot": b"bytes of a whole sandbox disk", "native": b"opaque bytes of a harness",
    "letter": b"a line that could not be read", "place": b"/home/mia/a-file-of-hers.jsonl", "subject": b"mia_li_3668_of_nowhere",
    "reference": b"the name of a snapshot elsewhere", "state": b"where an agent has come to with it",
    "answer": b"take the green room instead", "leave": b"why the lamp has to be bought", "decision": b"because it is too dark there",
    "steering": b"be quick about the lamp", "imported": b"what was said long before", "line": b"the broken line of an import",
    "file": b"a-recording-of-mia", "pack": b"what an agent wants to know",
}  # fmt: skip


class Sent:
    """What was sent in one workspace, and what it led to."""

    def __init__(self, client: httpx.Client, worker: Worker, fork: str | None) -> None:
        self.client, self.worker, self.fork = client, worker, fork


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Erasing, LocalKafka]]:
    with quick_broker(1) as kafka:
        settings = quick_settings(kafka.bootstrap, tmp_path_factory.mktemp("zdr") / "data")
        PolicyAdministration(settings).set(KEEPS_NOTHING, mode="zdr")
        with erasing_installation(settings, roles=(*ROLES, "graph-projector")) as erasing:
            leave_canaries(erasing, kafka)
            yield erasing, kafka


def import_both_ways(erasing: Erasing, secret: str, folder: Path) -> None:
    """A recording past the gateway and one through it; a line of each cannot be read."""
    lines = (FOLDER / "tide-tables.jsonl").read_bytes().splitlines(keepends=True)
    first = lines[0].replace(b"Where do tide tables enter the system?", SAID["imported"])
    assert SAID["imported"] in first
    broken = b'{"type":"user","message":"%s\n' % SAID["line"]

    def transport(way: str) -> Any:
        return direct_transport(erasing.settings, secret) if way == "direct" else RestTransport.connect(erasing.url, secret)

    async def ingested(way: str) -> IngestReport:
        file = folder / f"{SAID['file'].decode()}-{way}.jsonl"
        file.write_bytes(b"".join([first.replace(b"daf8a0b9", way.encode().hex()[:8].encode()), broken, *lines[1:4]]))
        async with transport(way) as opened:
            return await run_ingest([file], opened, subject=SAID["subject"].decode(), patience_s=30)

    for way in ("direct", "rest"):
        report = asyncio.run(ingested(way))
        assert (report.ok, report.dead_letters) == (True, 1), report


def client_of(erasing: Erasing, secret: str) -> httpx.Client:
    client = httpx.Client(base_url=erasing.url, headers={"authorization": f"Bearer {secret}"}, timeout=30)
    eventually(lambda: client.get("/v1/sessions").status_code == 200, timeout_s=20)
    return client


def everything_sent(erasing: Erasing, workspace_id: str, folder: Path) -> Sent:
    secret = key_administration(erasing.settings).create(workspace_id, SCOPES)[1]
    client = client_of(erasing, secret)
    said = {name: text.decode() for name, text in SAID.items()}
    metadata = {"subject": said["subject"], "metadata": {"purpose": said["metadata"]}}
    session_id = post(client, "/v1/sessions", metadata, status=201)["session_id"]
    path = f"/v1/sessions/{session_id}"
    post(client, f"{path}/events", message(said["message"]))
    large = message(said["large"] + "." * (9 << 20))
    assert client.post(f"{path}/events", json=large, headers=key()).status_code == 200
    worker = claimed(client, session_id, opened(client, session_id), incomplete_ok=True)
    ask = {"kind": "human", "content": {"question": said["question"]}}
    wait_id = post(client, f"{path}/waits", ask, status=201)["wait_id"]
    post(client, f"{path}/waits/{wait_id}/answer", {"content": {"answer": said["answer"]}})
    leave = {"action_digest": ACTION, "content": {"reason": said["leave"]}}
    approval_id = post(client, f"{path}/approvals", leave, status=201)["approval_id"]
    decision = {"decision": "granted", "action_digest": ACTION, "content": {"reason": said["decision"]}}
    post(client, f"{path}/approvals/{approval_id}/decide", decision)
    effect = {"provider": "a-provider", "request_digest": REQUEST, "action_digest": ANOTHER}
    effect_id = worker.post(f"{path}/effects", effect, status=201)["effect_id"]
    worker.post(f"{path}/effects/{effect_id}/receipt", {"receipt_digest": REQUEST})
    worker.checkpoint(native=SAID["native"], snapshot=SAID["snapshot"])
    elsewhere = {"provider": "p", "reference": said["reference"]}
    worker.post(
        f"{worker.session}/checkpoints",
        {**worker.boundary(), "snapshot": elsewhere, "continuation": {"kind": "event_log_rebuild"}}, status=201,
    )  # fmt: skip
    letter = {
        "source_kind": "claude-code",
        "source_index": 1,
        "reason": "cut",
        "place": said["place"],
        "record": b64encode(SAID["letter"]).decode(),
    }
    post(client, f"{path}/dead-letters", letter, status=201)
    client.post("/v1/checkpoints", json={"subject_id": said["subject"], "kind": "cursor", "state": said["state"], "ttl_seconds": 600})
    pack = {"subject_id": said["subject"], "task": said["pack"], "max_tokens": 128, "include_checkpoints": True}
    assert client.post("/v1/context/compile", json=pack).status_code == 200
    event = worker.say(said["message"])
    forked = client.post(f"{path}/forks", json={"at_event": event["event_id"]}, headers=key())
    steering = {"kind": "follow_up", "target_run_id": worker.run_id, "content": {"text": said["steering"]}}
    post(client, f"{path}/steering", steering, status=201)
    import_both_ways(erasing, secret, folder)
    return Sent(client, worker, forked.json().get("session_id") if forked.status_code == 201 else None)


@pytest.fixture(scope="module")
def nothing_kept(installation: tuple[Erasing, LocalKafka], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    sent = everything_sent(installation[0], KEEPS_NOTHING, tmp_path_factory.mktemp("nothing"))
    yield sent
    sent.client.close()


@pytest.fixture(scope="module")
def kept(installation: tuple[Erasing, LocalKafka], nothing_kept: Sent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    sent = everything_sent(installation[0], WORKSPACE, tmp_path_factory.mktemp("kept"))
    yield sent
    sent.client.close()


def everywhere(installation: tuple[Erasing, LocalKafka], needles: Needles) -> Search:
    erasing, broker = installation
    data_dir = erasing.settings.data_dir
    found = search_twice([broker.data_dir, data_dir], needles)
    for more in (consumed(erasing.settings.bootstrap, needles), stored(data_dir, needles)):
        assert more.bytes > 0
        found.add(more)
    return found


def contents(erasing: Erasing, workspace_id: str) -> dict[str, int]:
    """How many sealed contents of a workspace lie in the log, by topic."""
    topics = Topics(erasing.settings.topic_prefix)
    found: dict[str, int] = {}
    for topic in (topics.commands, topics.events, topics.deadletter, topics.agent_commands):
        places = [(topic, partition) for partition in range(erasing.settings.partitions)]
        ends = end_offsets(erasing.settings, places, committed=False)
        count = 0
        with PartitionReader(erasing.settings, "test", dict.fromkeys(places, 0), committed=False) as reader:
            while any(reader.position(*place) < end for place, end in ends.items()):
                for record in reader.read(500, 0.2):
                    count += 0 if record.value is None else sealed_in(erasing, topic, record.value, workspace_id)
        found[topic.removeprefix(erasing.settings.topic_prefix)] = count
    return found


def sealed_in(erasing: Erasing, topic: str, value: bytes, workspace_id: str) -> int:
    topics = Topics(erasing.settings.topic_prefix)
    try:
        if topic == topics.commands:
            drafts: Any = decode_command(value).drafts
        elif topic == topics.events:
            drafts = [decode_event(value)]
        elif topic == topics.deadletter:
            return int(says_something(erasing, decode_dead_letter(value), workspace_id))
        else:
            return int(workspace_id.encode() in value)
    except RecordUnreadable:
        return 0
    return sum(draft.workspace_id == workspace_id and draft.content.state == SEALED for draft in drafts)


def says_something(erasing: Erasing, letter: DeadLetter, workspace_id: str) -> bool:
    """A letter of a workspace that keeps nothing is sealed too, and empty."""
    if letter.workspace_id != workspace_id or letter.ciphertext is None or letter.digest is None:
        return False
    address = Address(letter.key_day, letter.origin, letter.partition, letter.offset, workspace_id)
    with closing(open_local_keyring(erasing.settings.data_dir / "keyring")) as keyring:
        opened = open_dead_letter(Sealer(keyring, cache_seconds=1), address, ciphertext=letter.ciphertext, digest=letter.digest)
    return bool(opened.key or opened.value or opened.place)


def test_nothing_that_was_said_lies_anywhere_in_clear(installation: tuple[Erasing, LocalKafka], nothing_kept: Sent, kept: Sent) -> None:
    """The same search finds what was left in clear on purpose: in a log file, a store and a topic."""
    found = everywhere(installation, Needles(SAID | CANARIES))
    assert found.labels == CANARIES.keys(), found.told()


def test_not_even_sealed_where_the_other_workspace_has_all_of_it(
    installation: tuple[Erasing, LocalKafka], nothing_kept: Sent, kept: Sent
) -> None:
    erasing, _ = installation
    assert set(contents(erasing, KEEPS_NOTHING).values()) == {0}
    assert all(contents(erasing, WORKSPACE).values())
    blobs = erasing.settings.data_dir / "blobs"
    assert not (blobs / KEEPS_NOTHING).exists()
    assert any(path.is_file() for path in (blobs / WORKSPACE).rglob("*"))


def test_structure_graph_and_counts_still_work(nothing_kept: Sent) -> None:
    client, path = nothing_kept.client, nothing_kept.worker.session
    session = client.get(path).json()
    assert session["policy"]["mode"] == "zdr"
    events = client.get(f"{path}/events", params={"limit": 1000}).json()["events"]
    assert [event["sequence"] for event in events] == list(range(1, session["sequence"] + 1))
    assert {event["type"] for event in events} >= {"message.appended", "wait.opened", "checkpoint.created", "attempt.started"}
    omitted = [event for event in events if event["content_state"] == "omitted"]
    assert omitted
    assert all(event.get("content") is None for event in events)
    eventually(lambda: client.get(f"{path}/graph").status_code == 200, timeout_s=20)
    assert client.get(f"{path}/graph").json()["nodes"]


def test_recovery_says_why_and_a_complete_history_is_refused(nothing_kept: Sent) -> None:
    """Design 02, "Recovery": `event_log_rebuild` with reason `zero_data_retention`; what needs the whole history gets 409."""
    client, worker = nothing_kept.client, nothing_kept.worker
    run_id = opened(client, worker.session_id)
    path = f"{worker.session}/runs/{run_id}/claim"
    refused = client.post(path, json={}, headers=key())
    assert (refused.status_code, refused.json()["code"]) == (409, "runtime.session_history_unavailable")
    recovery = claimed(client, worker.session_id, run_id, incomplete_ok=True).grant["recovery"]
    assert (recovery["mode"], recovery["reason"], recovery["complete"]) == ("event_log_rebuild", "zero_data_retention", False)
    assert {each["reason"] for each in recovery["unavailable"]} == {"content.omitted"}


def test_a_fork_of_it_is_refused_for_what_it_would_need(nothing_kept: Sent) -> None:
    assert nothing_kept.fork is None


def test_an_agents_state_is_refused(nothing_kept: Sent) -> None:
    body = {"subject_id": "somebody", "kind": "cursor", "state": "kept", "ttl_seconds": 600}
    assert nothing_kept.client.post("/v1/checkpoints", json=body).status_code == 403
