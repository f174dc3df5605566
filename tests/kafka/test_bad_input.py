"""Bad input on a whole installation: each is answered clearly, in bounded time and memory, and nothing is half-written.

A key used again for another body stands in `test_gateway.py`; every form of malformed request in
`tests/unit/gateway/test_bad_input.py`; here the log itself is looked at.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from connectors.cli.kafka import LocalKafka
from connectors.cli.roles import run_agents, run_authority, run_custodian, run_gateway, run_graph, run_projector
from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.samples import FOLDER as SAMPLES
from streams.errors import Misconfigured
from streams.log.client import producer
from streams.log.partitioner import partition_of
from streams.log.reader import PartitionReader, end_offsets
from streams.log.record import decode_dead_letter
from streams.log.topics import Topics
from streams.session.dead_letters import DeadLetter
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.gateway import OTHER_WORKSPACE, key, message, new_session, post
from tests.support.processes import Fleet, environment
from tests.support.roles import Roles, installation, running_roles
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

JSON = {"content-type": "application/json"}
NO_SESSION = "sess_" + "0" * 32
MIB = 1024 * 1024
NOBODY = "127.0.0.1:1"
"""Where no broker is."""
COMMANDS = {
    "authority": ["authority"], "gateway": ["gateway", "--port", "0"], "projector": ["projector"],
    "graph-projector": ["graph-projector"], "custodian": ["custodian"],
    "agents": ["agents"], "topics apply": ["topics", "apply"], "keys list": ["keys", "list"],
}  # fmt: skip


class Site:
    """An installation, a session in it that stands at sequence 2, and what its log holds."""

    def __init__(self, roles: Roles) -> None:
        self.roles, self.settings, self.topics = roles, roles.settings, Topics(roles.settings.topic_prefix)
        self._clients: list[httpx.Client] = []
        self.path = self._position = ""
        self.client = self.client_with()
        self.session = new_session(self.client)
        self.path = f"/v1/sessions/{self.session}"
        post(self.client, f"{self.path}/events", message())

    def client_with(self, *scopes: str, **more: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.roles.key(*scopes, **more)}"}
        hooks = {"response": [self._keep_position]}
        self._clients.append(httpx.Client(base_url=self.roles.url, headers=headers, timeout=30, event_hooks=hooks))
        return self._clients[-1]

    def _keep_position(self, response: httpx.Response) -> None:
        if response.request.url.path.startswith(self.path):
            self._position = response.headers.get("session-streams-position", self._position)

    def read(self) -> httpx.Response:
        """The session after everything that was answered to a client of this site: its table may be behind that."""
        return self.client.get(self.path, headers={"session-streams-position": self._position})

    def ends(self, topic: str) -> dict[tuple[str, int], int]:
        """Where a topic's partitions end, whatever was begun and not committed included."""
        return end_offsets(self.settings, [(topic, partition) for partition in range(self.settings.partitions)], committed=False)

    def letters(self) -> list[DeadLetter]:
        ends = self.ends(self.topics.deadletter)
        found = []
        with PartitionReader(self.settings, "test", dict.fromkeys(ends, 0)) as reader:
            while any(reader.position(*place) < end for place, end in ends.items()):
                found += [decode_dead_letter(record.value) for record in reader.read(100, 0.2) if record.value is not None]
        return found

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory, without_broker: object) -> Iterator[Site]:
    """Asks for `without_broker` only so that its commands are under way from the start."""
    with installation(broker.bootstrap, tmp_path_factory.mktemp("bad-input")) as roles:
        made = Site(roles)
        yield made
        made.close()


@pytest.fixture
def nothing_written(site: Site) -> Iterator[None]:
    """Not one record more among the events, begun or committed, and the session reads as before."""
    read = site.read().content
    events = site.ends(site.topics.events)
    yield
    assert site.ends(site.topics.events) == events
    assert site.read().content == read


@pytest.fixture
def nothing_sent(site: Site, nothing_written: None) -> Iterator[None]:
    """The gateway refuses by itself: no command either."""
    commands = site.ends(site.topics.commands)
    yield
    assert site.ends(site.topics.commands) == commands


def refused(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    return response.status_code, problem["code"]


def append(site: Site, content: Any, **headers: str) -> httpx.Response:
    return site.client.post(f"{site.path}/events", content=content, headers={**JSON, **key(), **headers})


@pytest.mark.usefixtures("nothing_sent")
@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b'{"type":"message.appended","content":{"a":1,}}', (400, "request.malformed")),
        (b'{"type":"message.appended"', (400, "request.malformed")),
        (b'{"type":"message.appended","content":"\xff"}', (400, "request.malformed")),
        (b'{"type":7}', (422, "request.invalid")),
        (b'{"type":"message.appended","attributes":{"input_tokens":"many"}}', (422, "request.invalid")),
        (b'["message.appended"]', (422, "request.invalid")),
        (b'{"type":"message.appended","content":{"a":["\\ud800"]}}', (422, "request.invalid")),
        (b'{"type":"message.appended","content":{"\\udc00":1}}', (422, "request.invalid")),
    ],
    ids=[
        "a comma too many", "cut", "not UTF-8", "a number for a type", "a text for a count", "a list", "a lone surrogate",
        "a lone surrogate in a name",
    ],
)  # fmt: skip
def test_what_is_malformed_or_of_a_wrong_type_is_refused(site: Site, body: bytes, answer: tuple[int, str]) -> None:
    assert refused(append(site, body)) == answer


@pytest.mark.usefixtures("nothing_sent")
@pytest.mark.parametrize("told", [True, False], ids=["its length told", "in chunks"])
def test_a_body_of_200_megabytes_is_refused_without_being_read_or_held(site: Site, told: bool) -> None:
    """The gateway is a thread of this process, so the peak of its memory is in what is measured."""
    sent, piece = 0, b" " * 100_000

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        while sent < 200_000_000:
            sent += len(piece)
            yield piece

    peak_before = peak_bytes()
    response = append(site, pieces(), **({"content-length": "200000000"} if told else {}))
    assert refused(response) == (413, "request.too_large")
    assert sent < (50_000_000 if told else 100_000_000)
    assert peak_bytes() - peak_before < (50 if told else 120) * MIB


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.usefixtures("nothing_sent")
def test_an_event_of_seventy_megabytes_is_too_large(site: Site) -> None:
    assert refused(append(site, json.dumps(message("x" * 70_000_000)).encode())) == (413, "request.too_large")


def test_an_event_of_ten_megabytes_passes_and_reads_back_deep_equal(site: Site) -> None:
    content = {"rows": [{"number": number, "text": f"row {number}"} for number in range(280_000)]}
    body = json.dumps({"type": "message.appended", "attributes": {"role": "tool"}, "content": content}).encode()
    assert 9_000_000 < len(body) < 12_000_000
    assert read_back(site, body) == content


def test_an_event_of_one_megabyte_passes_and_reads_back_deep_equal(site: Site) -> None:
    rows = [
        {"n": 2**70 + number, "text": f"Zeile {number} \u2028 \U0001f600", "none": None, "deep": [[[number / 7]]]}
        for number in range(12_000)
    ]
    content = {"rows": rows}
    body = json.dumps({"type": "message.appended", "attributes": {"role": "tool"}, "content": content}).encode()
    assert 1_000_000 < len(body) < 2_000_000
    assert read_back(site, body) == content


def test_an_escaped_nul_is_kept(site: Site) -> None:
    body = b'{"type":"message.appended","content":{"a\\u0000b":"\\u0000","pair":"\\ud83d\\ude00"}}'
    assert read_back(site, body) == {"a\0b": "\0", "pair": "\U0001f600"}


def read_back(site: Site, body: bytes) -> Any:
    """The content of an event that was appended, as a reader of the session gets it."""
    answer = append(site, body)
    assert answer.status_code == 200, answer.text
    after, position = answer.json()["first_sequence"] - 1, answer.headers["session-streams-position"]
    page = site.client.get(f"{site.path}/events?after_sequence={after}", headers={"session-streams-position": position})
    (event,) = page.json()["events"]
    return event["content"]


@pytest.mark.usefixtures("nothing_sent")
def test_a_session_that_is_not_there_is_not_found(site: Site) -> None:
    path = f"/v1/sessions/{NO_SESSION}"
    for response in (site.client.get(path), site.client.post(f"{path}/events", json=message(), headers=key())):
        assert refused(response) == (404, "resource.not_found")


@pytest.mark.usefixtures("nothing_sent")
@pytest.mark.parametrize(("method", "part"), [("GET", ""), ("GET", "/events"), ("POST", "/events"), ("POST", "/close")])
def test_another_workspaces_session_looks_exactly_like_one_that_is_not_there(site: Site, method: str, part: str) -> None:
    stranger = site.client_with(workspace_id=OTHER_WORKSPACE)
    told = []
    for session_id in (site.session, NO_SESSION):
        body, headers = (None, {}) if method == "GET" else (message() if part == "/events" else {}, key())
        answer = stranger.request(method, f"/v1/sessions/{session_id}{part}", json=body, headers=headers)
        kept = {name: value for name, value in answer.headers.items() if name != "date"}
        told.append((answer.status_code, kept, answer.text.replace(session_id, "it")))
    assert told[0] == told[1]
    assert told[0][0] == 404


@pytest.mark.usefixtures("nothing_sent")
@pytest.mark.parametrize(
    ("scope", "method", "part"),
    [("sessions:read", "POST", "/events"), ("sessions:write", "GET", "/events"), ("sessions:write", "POST", "/dead-letters")],
)
def test_a_key_without_the_scope_is_refused(site: Site, scope: str, method: str, part: str) -> None:
    response = site.client_with(scope).request(method, site.path + part, json=message() if method == "POST" else None, headers=key())
    assert refused(response) == (403, "auth.scope")


def test_a_closed_session_takes_nothing_more(site: Site) -> None:
    closed = new_session(site.client)
    position = post(site.client, f"/v1/sessions/{closed}/close")["position"]
    events = site.ends(site.topics.events)
    response = site.client.post(f"/v1/sessions/{closed}/events", json=message(), headers=key())
    assert refused(response) == (409, "runtime.session_closed")
    assert site.ends(site.topics.events) == events
    read = site.client.get(f"/v1/sessions/{closed}", headers={"session-streams-position": position}).json()
    assert (read["status"], read["sequence"]) == ("closed", 2)


@pytest.mark.parametrize(
    "value",
    [b"not ours", b"", None, b"\0\0\0\xff\xff" + b"of a schema that nobody has", b"\0\0\0\0\x01" + b"\xff" * 20],
    ids=["not ours", "empty", "absent", "of an unknown schema", "of another schema"],
)
def test_a_command_that_cannot_be_decoded_is_a_dead_letter_and_its_session_goes_on(site: Site, value: bytes | None) -> None:
    """Beyond what promise 8 tests, the asking side: nothing of it in the session, and the next append is the next sequence."""
    before, letters = site.read().json(), len(site.letters())
    events = site.ends(site.topics.events)
    partition = partition_of(site.session.encode(), site.settings.partitions)
    foreign = producer(site.settings, "foreign")
    offset = site.ends(site.topics.commands)[site.topics.commands, partition]
    foreign.produce(site.topics.commands, value, site.session.encode(), partition)
    assert foreign.flush(10) == 0
    eventually(lambda: len(site.letters()) == letters + 1, every_s=0.2)
    assert site.ends(site.topics.events) == events
    letter = next(letter for letter in site.letters() if (letter.partition, letter.offset) == (partition, offset))
    assert letter.origin == site.topics.commands
    assert letter.reason
    assert post(site.client, f"{site.path}/events", message("next"))["first_sequence"] == before["sequence"] + 1


def test_a_transcript_cut_in_the_middle_of_a_line_goes_in_but_for_that_line(site: Site, tmp_path: Path) -> None:
    lines = (SAMPLES / "tide-tables.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "cut.jsonl"
    file.write_bytes(b"".join([*lines[:8], lines[8][: len(lines[8]) // 2]]))
    letters, secret = len(site.letters()), site.roles.key()
    report = ingested(site, secret, file)
    assert (report.ok, report.records, report.dead_letters) == (True, 8, 1), report
    new = [letter for letter in site.letters() if letter.origin == "claude-code"]
    assert [letter.reason for letter in new] == ["cut"]
    assert len(site.letters()) == letters + 1
    # What was cut is a record once it is whole, and what was in is not taken in again.
    file.write_bytes(b"".join(lines))
    whole = ingested(site, secret, file)
    assert (whole.ok, whole.records, whole.dead_letters) == (True, len(lines) - 8, 0), whole


def ingested(site: Site, secret: str, file: Path) -> IngestReport:
    async def scenario() -> IngestReport:
        async with RestTransport.connect(site.roles.url, secret) as transport:
            return await run_ingest([file], transport, check=True, patience_s=30)

    return asyncio.run(scenario())


Ended = Future["subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def without_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """The commands where no broker is. They try for half a minute, in which other tests run."""
    settings = Settings(bootstrap=NOBODY, data_dir=tmp_path_factory.mktemp("alone"))

    def ended(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "connectors.cli", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
            env={**os.environ, **environment(settings)},
        )  # fmt: skip

    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        yield {name: pool.submit(ended, arguments) for name, arguments in COMMANDS.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_broker_is_not_there_says_so_and_ends_with_4_within_a_minute(without_broker: dict[str, Ended], name: str) -> None:
    ended = without_broker[name].result()
    assert ended.returncode == 4, ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("service.broker_unavailable: ")
    assert "Traceback" not in ended.stdout


@pytest.mark.timeout(180)
def test_while_the_broker_is_away_the_gateway_answers_503_and_the_same_request_is_done_once_when_it_is_back(
    own_broker: LocalKafka, settings_on: Callable[..., Settings]
) -> None:
    """The authority is a process here, since one whose broker went may leave; `up` then starts it again."""
    settings = settings_on(own_broker.bootstrap, partitions=1, request_timeout_s=2.0, lease_s=3.0)
    with (
        Fleet(settings) as fleet,
        running_roles(settings, authority=False) as roles,
        httpx.Client(base_url=roles.url, timeout=30) as client,
    ):
        authority = fleet.start("authority")
        client.headers["authorization"] = f"Bearer {roles.key()}"
        answers: list[httpx.Response] = []

        def answered(ask: Callable[[], httpx.Response]) -> bool:
            """Whether it is no 503 any more."""
            if not authority.alive:
                authority.restart()
            answers.append(ask())
            return answers[-1].status_code != 503

        eventually(lambda: answered(lambda: client.post("/v1/sessions", json={}, headers={"idempotency-key": "first"})), timeout_s=30)
        path = f"/v1/sessions/{answers[-1].json()['session_id']}"

        def append() -> httpx.Response:
            return client.post(f"{path}/events", json=message("while it is away"), headers={"idempotency-key": "once"})

        own_broker.kill_node()
        away = append()
        assert refused(away) == (503, "service.outcome_unknown")
        assert int(away.headers["retry-after"]) >= 1
        # Who cannot know whether a key is revoked, or a table up to date, does not serve.
        eventually(lambda: client.get(path).status_code == 503, timeout_s=15, every_s=0.3)
        for response in (client.get(path), append()):
            assert refused(response)[0] == 503
            assert int(response.headers["retry-after"]) >= 1
        own_broker.start_nodes(1)
        eventually(lambda: answered(append), timeout_s=60, every_s=0.5)
        assert (answers[-1].status_code, answers[-1].json()["first_sequence"]) == (200, 2)
        position = {"session-streams-position": answers[-1].json()["position"]}
        eventually(lambda: answered(lambda: client.get(f"{path}/events", headers=position)), timeout_s=30, every_s=0.3)
        events = answers[-1].json()["events"]
        assert [event["type"] for event in events] == ["session.created", "message.appended"]


ROLES: dict[str, Callable[[Settings, threading.Event], None]] = {
    "authority": run_authority,
    "projector": lambda settings, stop: run_projector(settings, "127.0.0.1", 0, stop),
    "graph-projector": lambda settings, stop: run_graph(settings, "127.0.0.1", 0, stop),
    "custodian": lambda settings, stop: run_custodian(settings, "127.0.0.1", 0, stop),
    "agents": lambda settings, stop: run_agents(settings, "127.0.0.1", 0, stop),
    "gateway": lambda settings, stop: run_gateway(settings, "127.0.0.1", 0, stop),
}


def test_no_role_starts_on_a_topic_with_a_wrong_partition_count(settings: Settings) -> None:
    """Each says which topic, what it has and what it should have; as a command it ends with status 3."""
    topic = Topics(settings.topic_prefix).events
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5)
    for run in ROLES.values():
        with pytest.raises(Misconfigured) as wrong:
            run(settings, threading.Event())
        assert wrong.value.detail == f"{topic}: 5 partitions, 4 expected (the setting `partitions`)"
    with Fleet(settings) as fleet:
        authority = fleet.start("authority")
        assert authority.wait() == 3
        assert f"service.misconfigured: {topic}: 5 partitions, 4 expected" in authority.log()
