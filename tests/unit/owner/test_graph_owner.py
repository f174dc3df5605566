"""An owner of graphs and a gateway's client in one process, over a real socket, without a broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest

from connectors.owner.app import GraphApplication
from connectors.owner.graph_owners import GraphOwners
from connectors.web import WebServer
from streams.errors import Invalid, NotFound, NotOwner, NotPermitted, ProjectionBehind, StreamsError
from streams.graph.items import Graph
from streams.log.position import Position
from streams.loop.step import Step
from streams.projections.graph.serving import GraphTables
from streams.projections.tables import Tables
from streams.query.freshness import Freshness
from streams.query.graphs import GraphModel, GraphReads
from streams.settings import Settings
from tests.support.examples import made_up_id
from tests.support.graphs import GraphStore, folded, graph_of, records
from tests.support.story import SESSION, WORKSPACE, Story

TOKEN = "0123456789abcdef" * 4
SETTINGS = Settings(partitions=1)


class Ends:
    """The log ends where the test says."""

    end = 0

    def query(self, places: list[tuple[str, int]], *, committed: bool, timeout_s: float = 5) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.end)


class Keeper:
    asked = 0

    def ask_now(self) -> None:
        self.asked += 1


class Owner:
    """The loop's part is played by the test: `take`, `write`, `reach`, `give_up`."""

    def __init__(self) -> None:
        self.tables, self.ends, self.keeper = Tables(60), Ends(), Keeper()
        freshness = Freshness(SETTINGS, self.tables, self.ends)
        self.observer = GraphTables(self.tables, self.keeper, freshness)  # type: ignore[arg-type]
        reads = GraphReads(GraphModel(self.tables, 1), freshness)
        application = GraphApplication(TOKEN, reads, freshness, self.tables, lambda: self.observer.joined)
        self.server = WebServer(application, "127.0.0.1", 0, name="graph")
        self.server.start()
        self.table = GraphStore(SETTINGS)
        self.table.store.path = None  # type: ignore[attr-defined]

    def take(self) -> None:
        self.observer.assigned([0])
        assert not self.observer.joined
        self.observer.restored(0, self.table.store)  # type: ignore[arg-type]
        assert self.observer.joined
        self.observer.reached(0, self.ends.end)
        self.tables.owned[0].answered(self.tables._clock(), 0)

    def write(self, story: Story, after: int = 0) -> None:
        new = [record for record, event in zip(records(story.events), story.events, strict=True) if event.sequence > after]
        self.ends.end = new[-1].offset + 1
        self.table.apply(new)
        self.observer.written(Step(0, self.table.store, new, 0, 0))  # type: ignore[arg-type]

    def owners(self, timeout_s: float = 5) -> dict[int, str]:
        return {0: f"127.0.0.1:{self.server.port}"}


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.server.stop()


def ask(owner: Owner, question: Callable[[GraphOwners], Awaitable[object]], token: str = TOKEN) -> object:
    async def asked() -> object:
        client = GraphOwners(SETTINGS, token, owner)
        try:
            return await question(client)
        finally:
            client.close()

    return asyncio.run(asked())


async def graph(client: GraphOwners, **more: object) -> Graph:
    given = {"node_id": None, "depth": 2, "nodes_max": 100, "items_max": 1000, "wait_s": 0.3, **more}
    return graph_of(await client.graph(WORKSPACE, SESSION, **given))  # type: ignore[arg-type]


def test_a_graph_is_answered_by_its_owner_whole_and_in_part(owner: Owner) -> None:
    story = Story().created().with_run()
    owner.take()
    owner.write(story)
    rows = folded(story.events)
    assert ask(owner, graph) == rows.graph()
    run = rows.graph().nodes[1].id
    near = ask(owner, lambda client: graph(client, node_id=run, depth=0))
    assert isinstance(near, Graph)
    assert [node.id for node in near.nodes] == [run]


def test_a_read_of_a_position_waits_until_its_command_is_in_the_graph(owner: Owner) -> None:
    story = Story().created()
    owner.take()
    owner.write(story)
    story.with_run()
    position = Position("sessions.commands", 0, story.events[-1].command_offset)
    owner.ends.end = 10

    async def told(client: GraphOwners) -> object:
        with pytest.raises(ProjectionBehind):
            await graph(client, position=position)
        waiting = asyncio.create_task(graph(client, position=position, wait_s=10))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await asyncio.to_thread(owner.write, story, 1)
        return await waiting

    assert ask(owner, told) == folded(story.events).graph()


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"node_id": "run_" + "0" * 32}, NotFound),
        ({"items_max": 1}, Invalid),
        ({"depth": 1000}, Invalid),
        ({"nodes_max": 0}, Invalid),
        ({"items_max": 1, "subject_id": made_up_id("subj", "other")}, NotFound),
    ],
)
def test_refusals_come_through(owner: Owner, more: dict[str, object], error: type[StreamsError]) -> None:
    owner.take()
    owner.write(Story().created().with_run())
    with pytest.raises(error):
        ask(owner, lambda client: graph(client, **more))


def test_only_the_installation_may_ask(owner: Owner) -> None:
    owner.take()
    with pytest.raises(NotPermitted):
        ask(owner, graph, token="f" * 64)


def test_what_was_given_up_is_not_answered(owner: Owner) -> None:
    owner.take()
    owner.write(Story().created())
    owner.observer.given_up([0])
    with pytest.raises(NotOwner):
        ask(owner, graph)


def test_a_damaged_row_ends_the_process_and_names_the_store_to_remove(owner: Owner) -> None:
    owner.take()
    owner.tables.owned[0].damaged = True
    with pytest.raises(StreamsError):
        owner.observer.reached(0, 5)
    assert owner.observer.damaged == [None]


def test_its_numbers_have_its_own_name(owner: Owner) -> None:
    owner.take()
    text = httpx.get(f"http://127.0.0.1:{owner.server.port}/metrics").text
    assert 'session_streams_graph_serving{partition="0"} 1.0' in text
    assert httpx.get(f"http://127.0.0.1:{owner.server.port}/readyz").status_code == 200
