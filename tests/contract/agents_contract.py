"""What agents' checkpoints are to a route, whatever stands behind them (design 06, 1.7 and 1.8). A test class inherits it and says how to
make one; `clock` is turned by the test."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from connectors.edge.agents import AgentCheckpoints, Caller, Conflict, NewState, Written

CALLER = Caller(workspace_id="ws_" + "a" * 32, agent_id="agent_of_mia")
SECOND = 1_000_000


class Clock:
    """Microseconds since the epoch, never a whole millisecond."""

    now = 1_930_000_000_000_123

    def __call__(self) -> int:
        return self.now


def state(text: str, subject_id: str = "mia", *, kind: str = "cursor", ttl: int = 60, expected: str | None = None) -> NewState:
    return NewState(
        subject_id=subject_id, kind=kind, run_id=None, state=text, state_hash=hashed(text), ttl_seconds=ttl, expected_state_hash=expected
    )


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def saved(agents: AgentCheckpoints, new: NewState, caller: Caller = CALLER) -> Written:
    written = await agents.save(caller, new)
    assert isinstance(written, Written)
    return written


Opened = Callable[[], AbstractAsyncContextManager[AgentCheckpoints]]


class AgentsContract(ABC):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @abstractmethod
    @pytest.fixture
    def opened(self, clock: Clock) -> Opened:
        """Makes one in the running loop."""

    def tell(self, opened: Opened, story: Callable[[AgentCheckpoints], Awaitable[None]]) -> None:
        async def told() -> None:
            async with opened() as agents:
                await story(agents)

        asyncio.run(told())

    def test_what_was_saved_is_shown_with_everything_as_it_was_given(self, opened: Opened, clock: Clock) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            new = NewState(
                subject_id="mia li/✓ \t",
                kind="task_state",
                run_id="run 1",
                state='{"a":"é\\ud800"}',
                state_hash=hashed("x"),
                ttl_seconds=600,
            )
            written = await saved(agents, new)
            assert (written.updated, written.version, written.state_hash) == (False, 1, hashed("x"))
            assert (written.updated_at, written.expires_at) == (clock.now - 123, clock.now - 123 + 600 * SECOND)
            shown = await agents.at(CALLER, "mia li/✓ \t", "task_state")
            assert shown is not None
            assert (shown.subject_id, shown.agent_id, shown.run_id, shown.kind) == ("mia li/✓ \t", "agent_of_mia", "run 1", "task_state")
            assert (shown.state, shown.state_hash, shown.ttl_seconds, shown.version) == (new.state, new.state_hash, 600, 1)
            assert (shown.created_at, shown.updated_at, shown.expires_at) == (written.updated_at, written.updated_at, written.expires_at)
            assert await agents.by_id(CALLER, written.checkpoint_id) == shown

        self.tell(opened, story)

    def test_an_update_keeps_id_and_creation_and_resets_the_run(self, opened: Opened, clock: Clock) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            first = await saved(agents, NewState(
                subject_id="mia", kind="cursor", run_id="run 1", state="1", state_hash=hashed("1"), ttl_seconds=60,
            ))  # fmt: skip
            clock.now += 5 * SECOND
            second = await saved(agents, state("2", ttl=120))
            assert (second.updated, second.checkpoint_id, second.version) == (True, first.checkpoint_id, 2)
            shown = await agents.by_id(CALLER, first.checkpoint_id)
            assert shown is not None
            assert (shown.run_id, shown.created_at, shown.updated_at) == (None, first.updated_at, first.updated_at + 5 * SECOND)
            assert shown.expires_at == shown.updated_at + 120 * SECOND

        self.tell(opened, story)

    def test_what_has_expired_is_not_shown_and_comes_back_under_its_id(self, opened: Opened, clock: Clock) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            first = await saved(agents, state("1"))
            clock.now = first.expires_at - 1
            assert await agents.at(CALLER, "mia", "cursor") is not None
            clock.now += 1
            assert await agents.at(CALLER, "mia", "cursor") is None
            assert await agents.by_id(CALLER, first.checkpoint_id) is None
            assert await agents.history(CALLER, first.checkpoint_id, limit=5) is None
            assert await agents.save(CALLER, state("2", expected=hashed("1"))) == Conflict(None)
            again = await saved(agents, state("2"))
            assert (again.updated, again.checkpoint_id) == (True, first.checkpoint_id)
            clock.now = again.expires_at
            assert await agents.delete(CALLER, first.checkpoint_id)

        self.tell(opened, story)

    def test_a_save_that_expects_another_state_is_told_the_one_that_is_there(self, opened: Opened) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            assert await agents.save(CALLER, state("1", expected=hashed("0"))) == Conflict(None)
            await saved(agents, state("1"))
            assert await agents.save(CALLER, state("2", expected=hashed("0"))) == Conflict(hashed("1"))
            assert (await saved(agents, state("2", expected=hashed("1")))).version == 2

        self.tell(opened, story)

    def test_a_deleted_row_is_gone_and_the_next_one_is_another(self, opened: Opened) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            first = await saved(agents, state("1"))
            assert await agents.delete(CALLER, first.checkpoint_id)
            assert not await agents.delete(CALLER, first.checkpoint_id)
            assert await agents.at(CALLER, "mia", "cursor") is None
            assert await agents.by_id(CALLER, first.checkpoint_id) is None
            again = await saved(agents, state("2"))
            assert (again.updated, again.version) == (False, 1)
            assert again.checkpoint_id != first.checkpoint_id

        self.tell(opened, story)

    def test_rows_of_others_are_not_there(self, opened: Opened) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            first = await saved(agents, state("1"))
            for caller in (
                Caller(workspace_id=CALLER.workspace_id, agent_id="x"),
                Caller(workspace_id="ws_" + "b" * 32, agent_id=CALLER.agent_id),
            ):
                assert await agents.at(caller, "mia", "cursor") is None
                assert await agents.by_id(caller, first.checkpoint_id) is None
                assert await agents.history(caller, first.checkpoint_id, limit=5) is None
                assert not await agents.delete(caller, first.checkpoint_id)
                assert not (await saved(agents, state("2"), caller)).updated
            for place in (("mia", "workflow"), ("mia", "no kind"), ("other", "cursor"), ("", "")):
                assert await agents.at(CALLER, *place) is None
            for checkpoint_id in ("", "ckpt_x", first.checkpoint_id.upper(), "ckpt_" + "0" * 32):
                assert await agents.by_id(CALLER, checkpoint_id) is None

        self.tell(opened, story)

    def test_a_key_that_is_restricted_to_a_subject_has_the_rows_of_that_one_only(self, opened: Opened) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            first = await saved(agents, state("1"))
            stranger = Caller(workspace_id=CALLER.workspace_id, agent_id=CALLER.agent_id, only_subject="subj_" + "0" * 32)
            assert await agents.save(stranger, state("2")) is None
            assert await agents.save(stranger, state("2", "somebody new")) is None
            assert await agents.at(stranger, "mia", "cursor") is None
            assert await agents.by_id(stranger, first.checkpoint_id) is None
            assert not await agents.delete(stranger, first.checkpoint_id)

        self.tell(opened, story)

    def test_history_is_newest_first_in_pages_without_what_has_expired(self, opened: Opened, clock: Clock) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            for number in range(1, 8):
                written = await saved(agents, state(str(number), ttl=60 if number in (2, 3) else 600))
            clock.now += 60 * SECOND
            found, before = list[str](), None
            while True:
                page = await agents.history(CALLER, written.checkpoint_id, limit=2, before=before)
                assert page is not None
                found += [each.state for each in page.versions]
                before = page.next_before
                if before is None:
                    break
            assert found == ["7", "6", "5", "4", "1"]

        self.tell(opened, story)

    def test_no_more_versions_than_the_bound_are_kept(self, opened: Opened) -> None:
        async def story(agents: AgentCheckpoints) -> None:
            for number in range(1, 31):
                written = await saved(agents, state(str(number)))
            page = await agents.history(CALLER, written.checkpoint_id, limit=50)
            assert page is not None
            assert [each.version for each in page.versions] == list(range(30, 9, -1))

        self.tell(opened, story)
