"""Agents' checkpoints from names and plain text to sealed rows and back, and the ones in memory that routes are tested with."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from connectors.edge.agent_service import AgentService
from connectors.edge.agents import AgentCheckpoints
from streams.custody.keyring import SecretRef
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring
from streams.errors import OutcomeUnknown
from tests.contract.agents_contract import CALLER, AgentsContract, Clock, Opened, hashed, saved, state
from tests.support.agents import AgentsInMemory
from tests.support.agents_in_process import OneAuthority, service


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[SqliteKeyring]:
    keyring = open_local_keyring(tmp_path / "keyring")
    yield keyring
    keyring.close()


class TestInMemory(AgentsContract):
    @pytest.fixture
    def opened(self, clock: Clock) -> Opened:
        @asynccontextmanager
        async def one() -> AsyncIterator[AgentCheckpoints]:
            yield AgentsInMemory(clock)

        return one


class TestSealed(AgentsContract):
    @pytest.fixture
    def opened(self, clock: Clock, keyring: SqliteKeyring) -> Opened:
        sealer = Sealer(keyring, cache_seconds=10, now_us=clock)
        return lambda: service(keyring, sealer, clock)


def authority_of(agents: AgentService) -> OneAuthority:
    rows = agents._rows
    assert isinstance(rows, OneAuthority)
    return rows


def test_no_name_and_no_text_stands_in_clear_in_any_row(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=10, now_us=clock), clock) as agents:
            for text in ("small secret", "large secret " + "x" * 60_000):
                await saved(agents, state(json.dumps(text), "mia_li_3668"))
            store = authority_of(agents).store
            with store.scan(b"") as pairs:
                everything = b"".join([key + value for key, value in pairs])
            for plain in (b"mia_li_3668", b"agent_of_mia", b"secret", b"xxxx"):
                assert plain not in everything
            shown = await agents.at(CALLER, "mia_li_3668", "cursor")
            assert shown is not None
            assert shown.state == json.dumps(text)

    asyncio.run(story())


def test_what_an_erased_subject_left_is_not_there_and_who_comes_back_begins_anew(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=0, now_us=clock), clock) as agents:
            agents._states._pseudonyms._seconds = 0
            first = await saved(agents, state("1"))
            pseudonym = keyring.pseudonym(CALLER.workspace_id, "subject", "mia", create=False)
            assert pseudonym is not None
            keyring.destroy([SecretRef("subject", CALLER.workspace_id, pseudonym)])
            assert await agents.at(CALLER, "mia", "cursor") is None
            assert await agents.by_id(CALLER, first.checkpoint_id) is None
            again = await saved(agents, state("2"))
            assert (again.updated, again.checkpoint_id == first.checkpoint_id) == (False, False)

    asyncio.run(story())


def test_the_rows_of_an_erased_subject_stay_and_nobody_is_told_of_them(keyring: SqliteKeyring) -> None:
    """Subject erasure applies at once, by the secret that goes. No question and no deletion finds what is left, which nobody can open."""

    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=0, now_us=clock), clock) as agents:
            written = [await saved(agents, state(text, ttl=86_400)) for text in ("1", "2")]
            checkpoint_id, store = written[0].checkpoint_id, authority_of(agents).store
            with store.scan(b"") as pairs:
                before = dict(pairs)
            pseudonym = keyring.pseudonym(CALLER.workspace_id, "subject", "mia", create=False)
            assert pseudonym is not None
            keyring.destroy([SecretRef("subject", CALLER.workspace_id, pseudonym)])
            for _ in range(2):
                assert await agents.at(CALLER, "mia", "cursor") is None
                assert await agents.by_id(CALLER, checkpoint_id) is None
                assert await agents.history(CALLER, checkpoint_id, limit=20) is None
                assert not await agents.delete(CALLER, checkpoint_id)
                clock.now += 3 * 86_400_000_000  # and expired, it is erased all the same
            with store.scan(b"") as pairs:
                assert dict(pairs) == before
            assert len(before) > 2

    asyncio.run(story())


def test_an_expired_row_is_deleted_after_the_secret_of_its_day_has_gone(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=0, now_us=clock), clock) as agents:
            first = await saved(agents, state("1"))
            head = await authority_of(agents).by_id(CALLER.workspace_id, first.checkpoint_id)
            assert head is not None
            keyring.destroy([SecretRef("day", CALLER.workspace_id, head.sealed.expiry_day)])
            clock.now += 3 * 86_400_000_000
            assert await agents.delete(CALLER, first.checkpoint_id)
            assert not await agents.delete(CALLER, first.checkpoint_id)

    asyncio.run(story())


def test_what_expired_is_gone_for_good_with_the_secret_of_its_day_while_its_row_and_id_stay(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=0, now_us=clock), clock) as agents:
            first = await saved(agents, state("1"))
            head = await authority_of(agents).by_id(CALLER.workspace_id, first.checkpoint_id)
            assert head is not None
            keyring.destroy([SecretRef("day", CALLER.workspace_id, head.sealed.expiry_day)])
            assert await agents.by_id(CALLER, first.checkpoint_id) is None
            clock.now += 3 * 86_400_000_000
            assert (await saved(agents, state("2"))).checkpoint_id == first.checkpoint_id

    asyncio.run(story())


def test_a_read_of_an_unknown_subject_makes_no_pseudonym(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=10, now_us=clock), clock) as agents:
            assert await agents.at(CALLER, "mia", "cursor") is None
            assert keyring.pseudonym(CALLER.workspace_id, "subject", "mia", create=False) is None

    asyncio.run(story())


def test_whoever_lets_changes_in_is_told_how_long_each_took(keyring: SqliteKeyring) -> None:
    """Saves and deletions alike, and of what was not answered nothing."""

    async def story() -> None:
        clock, took = Clock(), list[float]()
        async with service(keyring, Sealer(keyring, cache_seconds=10, now_us=clock), clock, timeout_s=0.05) as agents:
            agents.on_through = took.append
            first = await saved(agents, state("1"))
            assert len(took) == 1
            assert await agents.delete(CALLER, first.checkpoint_id)
            assert len(took) == 2
            authority_of(agents).deaf = True
            with pytest.raises(OutcomeUnknown):
                await agents.save(CALLER, state("2"))
            assert len(took) == 2
            assert min(took) >= 0

    asyncio.run(story())


def test_a_save_without_an_answer_is_unknown_and_the_same_again_is_safe(keyring: SqliteKeyring) -> None:
    async def story() -> None:
        clock = Clock()
        async with service(keyring, Sealer(keyring, cache_seconds=10, now_us=clock), clock, timeout_s=0.05) as agents:
            authority = authority_of(agents)
            authority.deaf = True
            with pytest.raises(OutcomeUnknown):
                await agents.save(CALLER, state("1"))
            authority.deaf = False
            assert (await saved(agents, state("1"))).state_hash == hashed("1")

    asyncio.run(story())
