"""The agent-checkpoint authority on the simulator: what it sets aside, what it answers, and what it says of itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.agents.ids import mint
from streams.agents.records import AgentCommand, encode_command
from streams.log.record import decode_dead_letter
from streams.session.dead_letters import DeadLetter
from tests.support.agent_world import SECOND, TOPICS, AgentWorld, scope, state

HERE = scope(1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    made = AgentWorld(tmp_path)
    made.start()
    made.settle()
    yield made
    made.close()


def letters(world: AgentWorld) -> list[DeadLetter]:
    entries = world.cluster.committed((TOPICS.deadletter, 0))
    return [decode_dead_letter(entry.value) for entry in entries if entry.value is not None]


def test_what_is_no_command_is_set_aside_with_its_reason_and_the_rest_is_decided(world: AgentWorld) -> None:
    key = HERE.key.encode()
    world.save(HERE, 1)
    good = world.cluster.committed((TOPICS.agent_commands, 0))[-1].value
    for bad_key, value in ((None, good), (key, None), (key, b""), (key, b"\x00nonsense"), (scope(2).key.encode(), good)):
        world.put(bad_key, value)
    world.save(HERE, 2)
    world.settle()
    assert [each.status for each in world.outcomes()] == ["saved", "saved"]
    told = letters(world)
    assert len(told) == 5
    assert {letter.reason for letter in told} >= {"command.empty", "command.wrong_key"}


def test_all_outcomes_of_a_transaction_go_to_their_asker_in_one_record(world: AgentWorld) -> None:
    for number in range(30):
        world.save(HERE, number)
    world.settle()
    entries = [entry for entry in world.cluster.committed((TOPICS.agent_outcomes, 0)) if not entry.control]
    assert [entry.key for entry in entries] == [b"test/1"]
    assert [each.version for each in world.outcomes()] == list(range(1, 31))


def test_a_command_without_an_asker_is_decided_all_the_same(world: AgentWorld) -> None:
    world.save(HERE, 1)
    command = world.commands()[0]
    silent = AgentCommand(command_id=command.command_id, what=command.what, issued_at=world.now)
    world.put(HERE.key.encode(), encode_command(silent))
    world.settle()
    assert len(world.outcomes()) == 1
    assert world.table()[HERE.key.encode()].version == 2


def test_a_command_that_waited_too_long_is_answered_and_has_no_effect(world: AgentWorld) -> None:
    command_id = world.save(HERE, 1)
    world.now += 601 * SECOND
    world.settle()
    assert world.outcome(command_id).status == "late"
    assert world.table() == {}


def test_a_conflict_tells_the_state_that_is_there_and_changes_nothing(world: AgentWorld) -> None:
    world.save(HERE, 1)
    world.settle()
    before = world.table()
    refused = world.save(HERE, 2, expected=state(9))
    absent = world.delete(HERE, mint(0))
    world.settle()
    assert (world.outcome(refused).status, world.outcome(refused).state_hash) == ("conflict", state(1))
    assert world.outcome(absent).status == "absent"
    assert world.table() == before


def test_a_store_that_is_damaged_under_it_is_made_anew_from_the_changelog(world: AgentWorld) -> None:
    world.save(HERE, 1)
    world.settle()
    store = next(iter(world.processes["0"].loop._stores.values()))
    store.write([(HERE.key.encode(), b"torn")], {})
    world.save(HERE, 2)
    world.settle()
    head = world.head(HERE)
    assert head is not None
    assert (head.version, head.state_hash) == (2, state(2))
