"""Agents' checkpoints through gateways that are killed, as the authority behind them is: what was answered holds, and no update is lost."""

import asyncio
import hashlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import pytest
from msgspec import Struct, structs

from connectors.cli.ports import free_ports
from streams.agents.core import VERSIONS_KEPT
from streams.settings import Settings
from tests.consistency import agents as judging
from tests.support.agent_log import logged
from tests.support.load import PAUSE_S
from tests.support.processes import Fleet, RoleProcess
from tests.support.roles import WORKSPACE
from tests.support.rows import key_administration

T = TypeVar("T")

SAVERS = 16
SHARED = 3
"""Rows that all savers write."""
NOWHERE = -1
"""The version of a state that the log does not have."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, member_session_timeout_s=6.0, transaction_timeout_s=4.0, request_timeout_s=5.0)


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with Fleet(settings) as fleet:
        yield fleet


class Attempt(Struct, frozen=True):
    """A save as it was sent. `acknowledged`: it was answered with 200 or 201, and this is the id that was told."""

    saving: judging.Saving
    acknowledged: str | None = None


class Recorded(Struct):
    """What the savers did and were told. Versions are not told over HTTP: they are filled in from the log."""

    attempts: list[Attempt] = []
    readings: list[judging.Reading] = []

    @property
    def answered(self) -> int:
        return sum(each.acknowledged is not None for each in self.attempts)


class Unanswered(Exception):
    """Nobody knows what became of the request, or it was refused for now."""


class Saver:
    """Speaks to one gateway, and to the other one when that does not answer."""

    def __init__(self, number: int, urls: list[str], secret: str, record: Recorded) -> None:
        self._number, self._record = number, record
        self._texts = itertools.count()
        self._clients = [httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {secret}"}, timeout=15) for url in urls]
        self._at = number % len(urls)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def read(self, row: str) -> judging.Reading:
        """Raises `Unanswered`."""
        began = time.monotonic()
        told = await self._ask("GET", "/v1/checkpoints", params={"subject_id": row, "kind": "workflow"})
        assert told.status_code in (200, 404), told.text
        state_hash = None
        if told.status_code == 200:
            data = told.json()["data"]
            state_hash = data["state_hash"]
            assert (data["subject_id"], hashed(data["state"])) == (row, state_hash)
        reading = judging.Reading(row=row, version=0, state_hash=state_hash, began=began, ended=time.monotonic())
        self._record.readings.append(reading)
        return reading

    async def save(self, row: str, expected: str | None) -> None:
        """A state that nobody else saves. Raises `Unanswered`."""
        state = {"saver": self._number, "text": next(self._texts)}
        body = {"subject_id": row, "kind": "workflow", "state": state, "ttl_seconds": 600, "expected_state_hash": expected}
        saving = judging.Saving(row=row, state_hash=hashed(state), expected=expected, began=time.monotonic(), ended=0)
        try:
            told = await self._ask("POST", "/v1/checkpoints", json=body)
        except Unanswered:
            self._record.attempts.append(Attempt(structs.replace(saving, ended=time.monotonic())))
            raise
        saving = structs.replace(saving, ended=time.monotonic())
        if told.status_code == 409:
            actual = told.json()["meta"]["actual_state_hash"]
            self._record.attempts.append(Attempt(structs.replace(saving, conflict=True, actual=actual)))
            return
        assert told.status_code in (200, 201), told.text
        data = told.json()["data"]
        assert data["state_hash"] == saving.state_hash
        self._record.attempts.append(Attempt(saving, data["checkpoint_id"]))

    async def history(self, checkpoint_id: str) -> dict[int, str]:
        """Version -> hash, newest first. Raises `Unanswered`."""
        told = await self._ask("GET", f"/v1/checkpoints/{checkpoint_id}/history", params={"limit": 100})
        assert told.status_code == 200, told.text
        versions = told.json()["data"]["versions"]
        assert [hashed(each["state"]) for each in versions] == [each["state_hash"] for each in versions]
        return {each["version"]: each["state_hash"] for each in versions}

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            told = await self._clients[self._at].request(method, path, **more)
        except httpx.TransportError as error:
            self._at = (self._at + 1) % len(self._clients)
            raise Unanswered from error
        # A gateway that has just begun does not know the keys yet.
        if told.status_code in (401, 503):
            self._at = (self._at + 1) % len(self._clients)
            raise Unanswered(told.text)
        return told


def hashed(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, separators=(",", ":")).encode()).hexdigest()


async def persistently(ask: Callable[[], Awaitable[T]], until: Callable[[], bool] = lambda: False, timeout_s: float = 60) -> T | None:
    """Asks until it is answered; None once nobody wants it any more."""
    deadline = time.monotonic() + timeout_s
    while not until():
        try:
            return await ask()
        except Unanswered:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    return None


async def keep_saving(saver: Saver, number: int, stop: asyncio.Event) -> None:
    """Replaces what it has read, and looks at it. Three saves of four expect what was read, and each fourth row is its own."""
    for turn in itertools.count():
        if stop.is_set():
            break
        await asyncio.sleep(PAUSE_S)
        if turn % 4 == 3:
            row, expected = f"own {number} {turn}", None
        else:
            row = f"shared {(turn + number) % SHARED}"
            shown = await persistently(lambda row=row: saver.read(row), stop.is_set)  # type: ignore[misc]
            expected = shown.state_hash if shown is not None and turn % 5 else None
        # What is tried again expects the same as before, whatever became of the first.
        await persistently(lambda row=row, expected=expected: saver.save(row, expected), stop.is_set)  # type: ignore[misc]
        await persistently(lambda row=row: saver.read(row), stop.is_set)  # type: ignore[misc]


@asynccontextmanager
async def savers(urls: list[str], secrets: list[str], record: Recorded) -> AsyncIterator[list[Saver]]:
    """They are there once each gateway has answered."""
    made = [Saver(number, urls, secrets[number % len(secrets)], record) for number in range(SAVERS)]
    try:
        for saver in made[: len(urls)]:
            await persistently(lambda saver=saver: saver.read("nobody"))  # type: ignore[misc]
        yield made
    finally:
        for saver in made:
            await saver.close()


async def answered(record: Recorded, more: int, timeout_s: float = 60) -> None:
    deadline, enough = time.monotonic() + timeout_s, record.answered + more
    while record.answered < enough:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def judged(settings: Settings, record: Recorded) -> dict[str, dict[int, str]]:
    """The history has no anomaly. Returns row -> version -> hash, of the log."""
    told = logged(settings)
    row_of = {each.saving.state_hash: each.saving.row for each in record.attempts}
    # Whatever stands in the log was sent, and a row lies under one key.
    rows = {(key.split(b"#")[0], row_of[head.state_hash]) for key, head in told}
    assert len(rows) == len({key for key, _ in rows}) == len({row for _, row in rows})
    log = [judging.Logged(row=row_of[head.state_hash], version=head.version, state_hash=head.state_hash) for _, head in told]
    place = {(each.row, each.state_hash): each.version for each in log}
    ids = {(row_of[head.state_hash], head.checkpoint_id) for _, head in told}
    savings = []
    for attempt in record.attempts:
        saving = attempt.saving
        if attempt.acknowledged is not None:
            assert (saving.row, attempt.acknowledged) in ids
            saving = structs.replace(saving, version=place.get((saving.row, saving.state_hash), NOWHERE))
        # What was expected had been read, and nothing expires here.
        assert not saving.conflict or saving.actual is not None
        savings.append(saving)
    readings = [
        each if each.state_hash is None else structs.replace(each, version=place.get((each.row, each.state_hash), NOWHERE))
        for each in record.readings
    ]
    assert judging.check(savings, readings, log) == {}
    return {row: {each.version: each.state_hash for each in log if each.row == row} for row in row_of.values()}


def test_killed_gateways_and_a_killed_authority_lose_no_acknowledged_save_and_no_update(settings: Settings, fleet: Fleet) -> None:
    """16 savers at two gateways, which go to the other one where nobody answers; judged from what they recorded and from the log."""
    ports = [str(port) for port in free_ports(3)]
    agents = fleet.start("agents", "0", "--port", ports[2])
    gateways = [fleet.start("gateway", str(number), "--port", ports[number]) for number in range(2)]
    urls = [f"http://127.0.0.1:{port}" for port in ports[:2]]
    # Two keys of one agent.
    administration, agent_id = key_administration(settings), "agent_" + "7" * 32
    secrets = [administration.create(WORKSPACE, ["agent-checkpoints:read", "agent-checkpoints:write"], agent_id=agent_id)[1] for _ in "12"]

    async def kill(*killed: tuple[RoleProcess, str]) -> None:
        for role, _ in killed:
            await asyncio.to_thread(role.kill)
        await asyncio.sleep(0.3)
        for role, port in killed:
            role.restart("--port", port)

    async def story() -> None:
        record, stop = Recorded(), asyncio.Event()
        async with savers(urls, secrets, record) as made:
            tasks = [asyncio.create_task(keep_saving(saver, number, stop)) for number, saver in enumerate(made)]
            await answered(record, 100)
            await kill((agents, ports[2]))
            await answered(record, 100)
            await kill((gateways[0], ports[0]))
            await answered(record, 100)
            await kill((agents, ports[2]), (gateways[1], ports[1]))
            await answered(record, 100)
            stop.set()
            await asyncio.gather(*tasks)
            await read_everything(made, record)
            assert [each for each in record.attempts if each.saving.conflict]
            assert [each for each in record.attempts if each.acknowledged is None and not each.saving.conflict]

    async def read_everything(made: list[Saver], record: Recorded) -> None:
        acknowledged = {each.saving.row: each.acknowledged for each in record.attempts if each.acknowledged is not None}
        for number, row in enumerate(acknowledged):
            shown = await persistently(lambda number=number, row=row: made[number % SAVERS].read(row))  # type: ignore[misc]
            assert shown is not None
            assert shown.state_hash is not None, row
        log = judged(settings, record)
        for number in range(SHARED):
            row = f"shared {number}"
            versions = await persistently(lambda number=number, row=row: made[number].history(acknowledged[row] or ""))  # type: ignore[misc]
            assert versions == {number: log[row][number] for number in sorted(log[row], reverse=True)[: VERSIONS_KEPT + 1]}

    asyncio.run(story())
