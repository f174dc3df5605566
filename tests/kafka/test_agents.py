"""Agents' checkpoints on a real broker: one winner, nothing acknowledged lost, no update lost, read at once, whatever dies meanwhile."""

import asyncio
import hashlib
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TypeVar

import pytest
from msgspec import Struct

from connectors.cli.ports import free_ports
from connectors.edge.agent_asking import asking_agents
from connectors.edge.agent_service import AgentService
from connectors.edge.agents import Caller, Checkpoint, Conflict, NewState, Written
from connectors.owner.agent_owners import AgentOwners
from connectors.owner.token import internal_token
from streams.agents.core import AgentScope
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import NotOwner, Overloaded, Retriable, StreamsError
from streams.log.log import KafkaLog
from streams.log.requests import CommandLog
from streams.log.topics import Topics
from streams.settings import Settings
from tests.consistency import agents as judging
from tests.support.agent_log import logged
from tests.support.load import PAUSE_S
from tests.support.processes import Fleet, RoleProcess

T = TypeVar("T")

CALLER = Caller(workspace_id="ws_" + "a" * 32, agent_id="agent_of_mia")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, member_session_timeout_s=6.0, transaction_timeout_s=4.0, request_timeout_s=20.0)


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with Fleet(settings) as fleet:
        yield fleet


def start(fleet: Fleet, instance: str = "0", *arguments: str) -> tuple[RoleProcess, str]:
    """A process of the role, and the address that it serves at."""
    (port,) = free_ports(1)
    return fleet.start("agents", instance, "--port", str(port), *arguments), f"127.0.0.1:{port}"


class At:
    """One process is asked, whoever owns what."""

    def __init__(self, address: str, partitions: int) -> None:
        self._owners = dict.fromkeys(range(partitions), address)

    def owners(self, timeout_s: float = 5) -> dict[int, str]:
        return self._owners


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[AgentService]:
    """As a gateway does."""
    with (
        closing(open_local_keyring(settings.data_dir / "keyring")) as keyring,
        asking_agents(settings, "test", keyring, Sealer(keyring, cache_seconds=10)) as agents,
        closing(AgentOwners(settings, internal_token(settings.data_dir))) as owners,
    ):
        service = agents.service(owners)
        await persistently(lambda: service.at(CALLER, "nobody", "cursor"))
        await persistently(lambda: service.save(CALLER, new("ready")))
        yield service


async def persistently(ask: Callable[[], Awaitable[T]], timeout_s: float = 60) -> T:
    """Asks until it is answered."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await ask()
        except Retriable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def new(text: str, subject_id: str = "mia_li_3668", *, kind: str = "cursor", expected: str | None = None, ttl: int = 600) -> NewState:
    return NewState(
        subject_id=subject_id, kind=kind, run_id=None, state=text, state_hash=hashed(text), ttl_seconds=ttl, expected_state_hash=expected
    )


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def saved(service: AgentService, state: NewState) -> Written:
    written = await persistently(lambda: service.save(CALLER, state))
    assert isinstance(written, Written)
    return written


def test_24_parallel_saves_of_a_fresh_key_make_one_row(settings: Settings, fleet: Fleet) -> None:
    start(fleet)

    async def story() -> None:
        async with asking(settings) as service:
            written = await asyncio.gather(*[saved(service, new(f"{number}", "fresh")) for number in range(24)])
            assert sorted(each.updated for each in written) == [False] + 23 * [True]
            assert len({each.checkpoint_id for each in written}) == 1
            assert sorted(each.version for each in written) == list(range(1, 25))
            shown = await service.at(CALLER, "fresh", "cursor")
            assert shown is not None
            (last,) = [each for each in written if each.version == 24]
            assert (shown.state_hash, shown.version) == (last.state_hash, 24)

    asyncio.run(story())


def test_what_is_saved_is_shown_to_its_agent_only_and_goes_when_it_is_deleted(settings: Settings, fleet: Fleet) -> None:
    start(fleet)

    async def story() -> None:
        async with asking(settings) as service:
            written = await saved(service, NewState(
                subject_id="mia li ✓", kind="task_state", run_id="run 7", state='{"a":1}', state_hash=hashed('{"a":1}'), ttl_seconds=60,
            ))  # fmt: skip
            shown = await service.at(CALLER, "mia li ✓", "task_state")
            assert shown is not None
            assert shown == await service.by_id(CALLER, written.checkpoint_id)
            assert (shown.subject_id, shown.agent_id, shown.run_id, shown.state) == ("mia li ✓", "agent_of_mia", "run 7", '{"a":1}')
            assert shown.expires_at == shown.updated_at + 60_000_000 == written.expires_at
            other = Caller(workspace_id=CALLER.workspace_id, agent_id="another")
            elsewhere = Caller(workspace_id="ws_" + "b" * 32, agent_id=CALLER.agent_id)
            restricted = Caller(workspace_id=CALLER.workspace_id, agent_id=CALLER.agent_id, only_subject="subj_" + "0" * 32)
            for caller in (other, elsewhere, restricted):
                assert await service.at(caller, "mia li ✓", "task_state") is None
                assert await service.by_id(caller, written.checkpoint_id) is None
                assert await service.history(caller, written.checkpoint_id, limit=5) is None
                assert not await service.delete(caller, written.checkpoint_id)
            assert await service.save(restricted, new("x", "mia li ✓")) is None
            assert await service.delete(CALLER, written.checkpoint_id)
            assert not await service.delete(CALLER, written.checkpoint_id)
            assert await service.at(CALLER, "mia li ✓", "task_state") is None
            again = await saved(service, new("2", "mia li ✓", kind="task_state"))
            assert (again.updated, again.checkpoint_id == written.checkpoint_id) == (False, False)

    asyncio.run(story())


class Recorded(Struct):
    """What 16 savers did and were told."""

    savings: list[judging.Saving]
    readings: list[judging.Reading]


async def acknowledged(record: Recorded, more: int) -> None:
    """Waits until so many saves more are acknowledged."""

    def count() -> int:
        return sum(each.version is not None for each in record.savings)

    goal, deadline = count() + more, time.monotonic() + 60
    while count() < goal:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def keep_saving(service: AgentService, number: int, record: Recorded, stop: asyncio.Event) -> None:
    """Reads and replaces what it has read; every third save expects nothing."""
    turn = 0
    while not stop.is_set():
        await asyncio.sleep(PAUSE_S)
        turn += 1
        row, text = f"subject {turn % 3}", f'{{"saver":{number},"turn":{turn}}}'
        began = time.monotonic()
        try:
            shown = await service.at(CALLER, row, "workflow")
        except StreamsError:
            await asyncio.sleep(0.05)
            continue
        record.readings.append(_reading(row, shown, began))
        expected = shown.state_hash if shown is not None and turn % 3 else None
        fields = {"row": row, "state_hash": hashed(text), "expected": expected, "began": time.monotonic()}
        try:
            told = await service.save(CALLER, new(text, row, kind="workflow", expected=expected))
        except Overloaded:
            continue  # nothing was sent
        except Retriable:
            record.savings.append(judging.Saving(**fields, ended=time.monotonic()))  # type: ignore[arg-type]
            continue
        ended = time.monotonic()
        if isinstance(told, Conflict):
            saving = judging.Saving(**fields, conflict=True, actual=told.actual_state_hash, ended=ended)  # type: ignore[arg-type]
        else:
            assert told is not None
            saving = judging.Saving(**fields, version=told.version, ended=ended)  # type: ignore[arg-type]
        record.savings.append(saving)
        # Read at once after the answer.
        began = time.monotonic()
        try:
            record.readings.append(_reading(row, await service.at(CALLER, row, "workflow"), began))
        except StreamsError:
            await asyncio.sleep(0.05)


def _reading(row: str, shown: Checkpoint | None, began: float) -> judging.Reading:
    return judging.Reading(
        row=row,
        version=shown.version if shown is not None else 0,
        state_hash=None if shown is None else shown.state_hash,
        began=began,
        ended=time.monotonic(),
    )


async def judged(settings: Settings, service: AgentService, record: Recorded) -> None:
    """The history has no anomaly, and every row is read as the log has it."""
    told = [(key.decode().split("#")[0], head) for key, head in logged(settings)]
    names = {}
    for number in range(3):
        shown = await persistently(lambda number=number: service.at(CALLER, f"subject {number}", "workflow"))  # type: ignore[misc]
        assert shown is not None
        (key,) = {key for key, head in told if head.checkpoint_id == shown.checkpoint_id}
        names[key] = shown.subject_id
        assert max(head.version for other, head in told if other == key) == shown.version
    log = [judging.Logged(row=names[key], version=head.version, state_hash=head.state_hash) for key, head in told if key in names]
    assert judging.check(record.savings, record.readings, log) == {}


def test_a_killed_authority_loses_no_acknowledged_save_and_lets_no_lost_update_through(settings: Settings, fleet: Fleet) -> None:
    """Killed and started again under 16 savers, once without its stores; judged from the history that they recorded."""
    role, _ = start(fleet)
    port = role._argv[-1]

    async def story() -> None:
        async with asking(settings) as service:
            record, stop = Recorded([], []), asyncio.Event()
            savers = [asyncio.create_task(keep_saving(service, number, record, stop)) for number in range(16)]
            for kill in range(4):
                await acknowledged(record, 100)
                await asyncio.to_thread(role.kill)
                if kill == 2:
                    shutil.rmtree(settings.stores_path("agents"))
                role.restart("--port", port)
            await acknowledged(record, 100)
            stop.set()
            await asyncio.gather(*savers)
            assert [each for each in record.savings if each.conflict]
            await judged(settings, service, record)

    asyncio.run(story())


@pytest.mark.parametrize("point", ["after_produce:5", "after_commit:5", "after_store_write:5"])
def test_one_killed_in_its_transaction_answers_for_what_took_effect(settings: Settings, fleet: Fleet, point: str) -> None:
    role, _ = start(fleet, "0", "--crash-at", point)
    port = role._argv[role._argv.index("--port") + 1]

    async def story() -> None:
        async with asking(settings) as service:
            record, stop = Recorded([], []), asyncio.Event()
            savers = [asyncio.create_task(keep_saving(service, number, record, stop)) for number in range(16)]
            await asyncio.to_thread(role.wait)
            role.restart("--port", port)
            await acknowledged(record, 100)
            stop.set()
            await asyncio.gather(*savers)
            await judged(settings, service, record)

    asyncio.run(story())


def test_another_process_takes_over_with_everything_that_was_acknowledged(settings: Settings, fleet: Fleet) -> None:
    first, _ = start(fleet, "0")

    async def story() -> None:
        async with asking(settings) as service:
            written = [await saved(service, new(f"{number}", f"subject {number}")) for number in range(20)]
            start(fleet, "1")
            first.kill()
            for number, each in enumerate(written):
                shown = await persistently(lambda number=number: service.at(CALLER, f"subject {number}", "cursor"))  # type: ignore[misc]
                assert shown is not None
                assert (shown.checkpoint_id, shown.state_hash) == (each.checkpoint_id, each.state_hash)
                assert (await saved(service, new("next", f"subject {number}"))).checkpoint_id == each.checkpoint_id

    asyncio.run(story())


def test_one_that_stood_still_wakes_up_refusing_and_never_tells_what_was_replaced(settings: Settings, fleet: Fleet) -> None:
    first, address = start(fleet, "0")

    async def story() -> None:
        async with asking(settings) as service:
            written = await saved(service, new("before"))
            with closing(AgentOwners(settings, internal_token(settings.data_dir), At(address, settings.partitions))) as owner:
                assert (await owner.by_id(CALLER.workspace_id, written.checkpoint_id)) is not None
                start(fleet, "1")
                first.pause()
                try:
                    await saved(service, new("after"))
                finally:
                    first.proceed()
                with pytest.raises(Retriable) as refused:
                    await owner.by_id(CALLER.workspace_id, written.checkpoint_id, wait_s=0)
                assert isinstance(refused.value, NotOwner)
            shown = await persistently(lambda: service.by_id(CALLER, written.checkpoint_id))
            assert shown is not None
            assert shown.state == "after"

    asyncio.run(story())


def test_what_is_no_command_goes_to_the_dead_letters_and_the_partition_moves_on(settings: Settings, fleet: Fleet) -> None:
    start(fleet)
    key = AgentScope(CALLER.workspace_id, "subj_" + "1" * 32, "actr_" + "2" * 32, "cursor").key

    async def story() -> None:
        async with asking(settings) as service:
            with closing(CommandLog(settings, "test", Topics(settings.topic_prefix).agent_commands)) as commands:
                for value in (b"", b"\x00\x00\x00\x00\x00", b"mia_li_3668"):
                    for number in range(8):
                        commands.send(value, f"{key}{number}")
            await asyncio.gather(*[saved(service, new("still", f"subject {number}")) for number in range(20)])

    asyncio.run(story())
    log, letters = KafkaLog(settings), list[bytes]()
    places = [(Topics(settings.topic_prefix).deadletter, partition) for partition in range(settings.partitions)]
    ends = log.end_offsets(places, committed=True)
    with closing(log.reader("test", dict.fromkeys(places, 0))) as reader:
        while any(reader.position(*place) < end for place, end in ends.items()):
            letters += [record.value for record in reader.read(100, 0.5) if record.value]
    assert len(letters) == 24
    assert not any(b"mia_li_3668" in letter for letter in letters)
