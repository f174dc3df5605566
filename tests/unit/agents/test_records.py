"""What is written of agents' checkpoints is read back the same, and what no agent may say is set aside."""

import pytest
from msgspec import structs

from schemas import codec
from streams.agents.core import AgentScope, Delete, Head, Save, Sealed
from streams.agents.ids import mint
from streams.agents.records import (
    AgentCommand,
    AgentOutcome,
    decode_checkpoint,
    decode_command,
    decode_outcomes,
    encode_checkpoint,
    encode_command,
    encode_outcomes,
)
from streams.errors import RecordUnreadable
from streams.log.partitioner import partition_of

SCOPE = AgentScope("ws_" + "a" * 32, "subj_" + "b" * 32, "actr_" + "c" * 32, "task_state")
PARTITIONS = 4
PARTITION = partition_of(SCOPE.key.encode(), PARTITIONS)
SAVE = Save(
    scope=SCOPE, checkpoint_id=mint(PARTITION), state_hash="e" * 64, ttl_seconds=600,
    sealed=Sealed(b"\x00sealed\xff", bytes(range(32)), "2027-01-16", "cmd_" + "1" * 32), expected_state_hash="f" * 64, not_after=99,
)  # fmt: skip
COMMAND = AgentCommand(command_id="cmd_" + "1" * 32, what=SAVE, issued_at=5, reply_to="0/abc", correlation=7)


def changed(**fields: object) -> AgentCommand:
    return structs.replace(COMMAND, what=structs.replace(SAVE, **fields))


def test_commands_are_read_as_they_were_written() -> None:
    deletion = structs.replace(COMMAND, what=Delete(scope=SCOPE, checkpoint_id=SAVE.checkpoint_id, not_after=99))
    for command in (COMMAND, deletion, changed(expected_state_hash=None)):
        assert decode_command(encode_command(command), PARTITIONS) == command


def test_rows_and_outcomes_are_read_as_they_were_written() -> None:
    head = Head(
        checkpoint_id=SAVE.checkpoint_id, scope=SCOPE, version=7, oldest_version=3, created_at=1, updated_at=2, expires_at=3,
        ttl_seconds=600, state_hash="e" * 64, sealed=SAVE.sealed,
    )  # fmt: skip
    assert decode_checkpoint(encode_checkpoint(head)) == head
    outcomes = (
        AgentOutcome(command_id="cmd_" + "1" * 32, correlation=1, status="absent", position_offset=0, decided_at=9),
        AgentOutcome(
            command_id="cmd_" + "2" * 32, correlation=2, status="saved", checkpoint_id=SAVE.checkpoint_id, created=True, version=1,
            state_hash="e" * 64, updated_at=4, expires_at=5, position_offset=3, decided_at=9,
        ),
    )  # fmt: skip
    assert decode_outcomes(encode_outcomes("0/abc", outcomes)) == outcomes


@pytest.mark.parametrize(
    ("field", "command"),
    [
        ("scope", changed(scope=structs.replace(SCOPE, subject_id="mia_li_3668"))),
        ("scope", changed(scope=structs.replace(SCOPE, kind="evidence"))),
        ("scope", changed(scope=structs.replace(SCOPE, agent_id="actr_" + "C" * 32))),
        ("checkpoint_id", changed(checkpoint_id=mint((PARTITION + 1) % PARTITIONS))),
        ("checkpoint_id", changed(checkpoint_id="ckpt_" + "0" * 32)),
        ("state_hash", changed(state_hash="E" * 64)),
        ("expected_state_hash", changed(expected_state_hash="")),
        ("ttl_seconds", changed(ttl_seconds=59)),
        ("ttl_seconds", changed(ttl_seconds=2_592_001)),
        ("sealed", changed(sealed=structs.replace(SAVE.sealed, digest=b"short"))),
    ],
)
def test_a_command_that_holds_what_it_may_not_names_the_field(field: str, command: AgentCommand) -> None:
    with pytest.raises(RecordUnreadable, match=f"field.misplaced: {field}$"):
        decode_command(encode_command(command), PARTITIONS)


def test_what_is_no_command_is_unreadable() -> None:
    for value in (b"", b"nonsense", codec.encode("agents/purged", {"order": 1, "purged_at": 1}), encode_command(COMMAND)[:-1]):
        with pytest.raises(RecordUnreadable):
            decode_command(value, PARTITIONS)
