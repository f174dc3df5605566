"""Commands and their outcomes: each waits for its own, within bounds, and never guesses what became of it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from connectors.edge.compose import Composed
from connectors.edge.submit import Submitter
from streams.errors import BrokerUnavailable, Invalid, Misconfigured, OutcomeUnknown, Overloaded, StreamsError
from streams.log.record import decode_command, encode_draft
from streams.log.requests import new_reply_to
from streams.session.outcomes import ACCEPTED, Outcome
from tests.support.commands import append_messages, new_id

SESSION = new_id("sess")


class Commands:
    """Keeps what is sent; the test settles it when it likes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.failures: list[Callable[[StreamsError | None], None]] = []
        self.full = False

    def send(self, value: bytes, session_id: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None:
        if self.full:
            raise Overloaded("queue full")
        assert on_done is not None
        self.sent.append(value)
        self.failures.append(on_done)

    def outcome(self, index: int, **changes: Any) -> Outcome:
        command = decode_command(self.sent[index])
        fields: dict[str, Any] = {"command_id": command.command_id, "correlation": command.correlation, "session_id": command.session_id}
        return Outcome(**{**fields, "status": ACCEPTED, "last_sequence": index + 1, "decided_at": 0, **changes})


def composed(size: int = 10) -> Composed:
    command = append_messages(SESSION, (b"x" * max(size, 60),))
    return Composed(command, tuple(encode_draft(draft) for draft in command.drafts))


def run(scenario: Callable[[Submitter, Commands], Awaitable[None]], **bounds: Any) -> None:
    async def main() -> None:
        commands = Commands()
        submitter = Submitter(commands, "gateway/1", **{"timeout_s": 5.0, **bounds})
        await scenario(submitter, commands)
        assert submitter.under_way == 0

    asyncio.run(main())


async def submitted(submitter: Submitter, count: int) -> "list[asyncio.Task[Outcome]]":
    tasks = [asyncio.create_task(submitter.submit(composed())) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_each_waits_for_its_own_outcome_whatever_the_order() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        tasks = await submitted(submitter, 3)
        outcomes = [commands.outcome(index) for index in (2, 0, 1)]
        threading.Thread(target=submitter.settle_from_thread, args=(outcomes,)).start()
        assert [(await task).last_sequence for task in tasks] == [1, 2, 3]

    run(scenario)


def test_commands_carry_the_epoch_and_a_number_of_their_own() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        tasks = await submitted(submitter, 3)
        sent = [decode_command(value) for value in commands.sent]
        assert {command.reply_to for command in sent} == {"gateway/1"}
        assert len({command.correlation for command in sent}) == 3
        submitter.settle_from_thread([commands.outcome(index) for index in range(3)])
        await asyncio.gather(*tasks)

    run(scenario)
    assert new_reply_to("0") != new_reply_to("0")


def test_outcomes_that_nobody_waits_for_are_let_go() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        (task,) = await submitted(submitter, 1)
        outcome = commands.outcome(0)
        submitter.settle_from_thread([commands.outcome(0, correlation=999), outcome, outcome])
        assert (await task).last_sequence == 1

    run(scenario)


def test_what_is_not_decided_in_time_is_unknown() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        (task,) = await submitted(submitter, 1)
        with pytest.raises(OutcomeUnknown):
            await task
        submitter.settle_from_thread([commands.outcome(0)])
        await asyncio.sleep(0.01)

    run(scenario, timeout_s=0.05)


@pytest.mark.parametrize(
    ("error", "kind"), [(BrokerUnavailable("timed out"), OutcomeUnknown), (Misconfigured("no such topic"), Misconfigured)]
)
def test_a_failed_delivery_may_have_been_stored_unless_the_broker_says_otherwise(error: StreamsError, kind: type[StreamsError]) -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        (task,) = await submitted(submitter, 1)
        threading.Thread(target=commands.failures[0], args=(error,)).start()
        with pytest.raises(kind):
            await task

    run(scenario)


def test_more_than_may_be_under_way_is_refused_and_not_sent() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        tasks = await submitted(submitter, 2)
        with pytest.raises(Overloaded):
            await submitter.submit(composed())
        assert len(commands.sent) == 2
        submitter.settle_from_thread([commands.outcome(0), commands.outcome(1)])
        await asyncio.gather(*tasks)
        (again,) = await submitted(submitter, 1)
        submitter.settle_from_thread([commands.outcome(2)])
        await again

    run(scenario, commands_max=2)


def test_bytes_that_are_under_way_are_bounded_too() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        with pytest.raises(Overloaded):
            await submitter.submit(composed(5000))
        assert commands.sent == []

    run(scenario, bytes_max=4000)


def test_a_command_larger_than_a_record_may_be_is_refused_before_it_is_sent() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        with pytest.raises(Invalid) as refused:
            await submitter.submit(composed(11 * 1024 * 1024))
        assert refused.value.code == "request.too_large"

    run(scenario)


def test_a_full_queue_is_overload() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        commands.full = True
        with pytest.raises(Overloaded):
            await submitter.submit(composed())

    run(scenario)


def test_who_goes_away_frees_the_place() -> None:
    async def scenario(submitter: Submitter, commands: Commands) -> None:
        (task,) = await submitted(submitter, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)
