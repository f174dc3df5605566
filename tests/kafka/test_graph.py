"""The graph on a real broker: killed anywhere it ends with the table of an undisturbed one, the topic is that table, and a
rebuild from the events gives the same bytes; reads see their own writes."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from msgspec import structs

from connectors.cli.ports import free_ports
from connectors.cli.rebuild import remake_graphs
from streams.errors import Misconfigured
from streams.log.partitioner import partition_of
from streams.log.topics import Topics
from streams.log.transaction import TransactionalProducer
from streams.session.events import Content, Event
from streams.settings import Settings
from tests.support.examples import made_up_id
from tests.support.gateway import message, new_session, post
from tests.support.graph_digests import folded_digests, stored_digests, topic_digests
from tests.support.graphs import event_value
from tests.support.histories import FACTS, history
from tests.support.processes import Fleet, RoleProcess, eventually
from tests.support.roles import running_roles

pytestmark = pytest.mark.timeout(240)

_SESSIONS = 40
_CHUNKS = 6


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, lease_s=3.0, member_session_timeout_s=6.0)


class Written:
    """Random histories of many sessions, written to the event topic chunk by chunk, with a broken record in each."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        self._settings, self._topic = settings, Topics(settings.topic_prefix).events
        self._producer = TransactionalProducer(settings, "writer")
        self._producer.initialise()
        self._chunks: list[list[tuple[str, bytes]]] = [[] for _ in range(_CHUNKS)]
        for label in range(_SESSIONS):
            events = self._events(chance, made_up_id("sess", label))
            for index, event in enumerate(events):
                self._chunks[index * _CHUNKS // len(events)].append((event.session_id, event_value(event)))
        for chunk in self._chunks:
            chunk.insert(len(chunk) // 2, (made_up_id("sess", 0), b"\x00 unreadable"))

    def _events(self, chance: random.Random, session_id: str) -> list[Event]:
        picks = [(chance.randrange(len(FACTS)), chance.randrange(3), chance.randrange(3), chance.random() < 0.3) for _ in range(60)]
        return [structs.replace(event, session_id=session_id, content=_moved(event, session_id)) for event in history(picks).events]

    def write(self) -> bool:
        """The next chunk; False where there is none."""
        if not self._chunks:
            return False
        self._producer.begin()
        for session_id, value in self._chunks.pop(0):
            key = session_id.encode()
            self._producer.produce(self._topic, partition_of(key, self._settings.partitions), key, value)
        self._producer.commit()
        return True

    def close(self) -> None:
        self._producer.close()


def _moved(event: Event, session_id: str) -> Content:
    reference = event.content.key_reference
    if reference is None:
        return event.content
    return structs.replace(event.content, key_reference=structs.replace(reference, session_id=session_id))


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with Fleet(settings) as fleet:
        yield fleet


@pytest.fixture
def port() -> int:
    (port,) = free_ports(1)
    return port


def ready(port: int) -> bool:
    """Joined, restored, and at the end of every partition."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def finished(role: RoleProcess, port: int) -> None:
    """Waits until the role has everything, and ends it."""
    eventually(lambda: ready(port), why=role.log())
    assert role.stop() == 0, role.log()


def test_killed_anywhere_it_ends_with_the_bytes_of_an_undisturbed_fold(settings: Settings, fleet: Fleet, port: int) -> None:
    """SIGKILL at each point of a transaction and of a restore; then the table, the topic and a fold from the events agree,
    and so do a table restored from the topic alone and one made anew after topic and offsets are gone."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    written = Written(settings, random.Random(seed))
    points = ["after_produce:1", "after_send_offsets:1", "after_commit:1", "in_restore:1", "after_store_write:1"]
    role: RoleProcess | None = None
    for point in points:
        written.write()
        if point == "in_restore:1":
            shutil.rmtree(settings.data_dir / "stores" / "graph")
        if role is None:
            role = fleet.start("graph-projector", "0", "--port", str(port), "--crash-at", point)
        else:
            role.restart("--port", str(port), "--crash-at", point)
        role.wait(60)
        assert role.process.returncode == -9, role.log()
    while written.write():
        pass
    written.close()
    assert role is not None
    role.restart("--port", str(port))
    finished(role, port)
    expected = folded_digests(settings)
    assert stored_digests(settings) == expected
    assert topic_digests(settings) == expected

    shutil.rmtree(settings.data_dir / "stores" / "graph")
    role.restart("--port", str(port))
    finished(role, port)
    assert stored_digests(settings) == expected, "restored from the topic"

    role.restart("--port", str(port))
    eventually(lambda: ready(port), why=role.log())
    with pytest.raises(Misconfigured):
        remake_graphs(settings)
    role.kill()
    eventually(lambda: _remade(settings), why="the member's session lasts")
    role.restart("--port", str(port))
    finished(role, port)
    assert stored_digests(settings) == expected, "made anew from the events"
    assert topic_digests(settings) == expected


def _remade(settings: Settings) -> bool:
    try:
        remake_graphs(settings)
    except Misconfigured:
        return False
    return True


def test_reads_see_their_own_writes_and_outlast_a_kill(settings: Settings, fleet: Fleet, port: int) -> None:
    """Gateway, authority and projector go on while the graph role is gone; once it is back, it has what happened meanwhile."""
    role = fleet.start("graph-projector", "0", "--port", str(port))
    with running_roles(settings) as roles, httpx.Client(
        base_url=roles.url, headers={"authorization": f"Bearer {roles.key()}"}, timeout=30
    ) as client:  # fmt: skip
        session_id = new_session(client)
        path = f"/v1/sessions/{session_id}"
        for number in range(1, 6):
            run = post(client, f"{path}/runs", status=201)
            graph = read(client, path, run["position"])
            assert [node["id"] for node in graph["nodes"] if node["type"] == "run"][-1] == run["run_id"]
            assert graph["through_sequence"] == run["sequence"] == 1 + number
        was = read(client, path, run["position"], through_sequence=3)
        assert [node["type"] for node in was["nodes"]] == ["session", "run", "run"]

        role.kill()
        post(client, f"{path}/events", message())
        meanwhile = post(client, f"{path}/runs", {"parent_run_id": run["run_id"]}, status=201)
        session = client.get(path, headers={"session-streams-position": meanwhile["position"]})
        assert session.json()["sequence"] == meanwhile["sequence"] == 8
        refused = client.get(f"{path}/graph")
        assert (refused.status_code, refused.json()["code"]) == (503, "service.not_owner")
        assert read(client, path, meanwhile["position"], through_sequence=meanwhile["sequence"])["through_sequence"] == 8

        role.restart("--port", str(port))
        eventually(lambda: client.get(f"{path}/graph").status_code == 200)
        graph = read(client, path, meanwhile["position"])
        assert {(edge["from"], edge["to"]) for edge in graph["edges"] if edge["type"] == "child_of"} == {
            (meanwhile["run_id"], run["run_id"]),
        }  # fmt: skip
        assert graph == read(client, path, meanwhile["position"], through_sequence=meanwhile["sequence"])
        near = read(client, path, meanwhile["position"], around=meanwhile["run_id"], depth=1)
        assert {node["id"] for node in near["nodes"]} == {meanwhile["run_id"], run["run_id"], session_id}
        drawn = client.get(f"{path}/graph", headers={"accept": "image/svg+xml"})
        assert drawn.text.startswith("<svg ")
        assert client.get("/v1/sessions/" + made_up_id("sess", "none") + "/graph").status_code == 404
        assert ready(port)


def read(client: httpx.Client, path: str, position: str, **params: object) -> dict[str, list[dict[str, object]]]:
    answer = client.get(f"{path}/graph", params=params, headers={"session-streams-position": position})  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    decoded: dict[str, list[dict[str, object]]] = answer.json()
    return decoded
