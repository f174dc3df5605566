"""An id of an agent's checkpoint finds its partition, and looks like any other version 4 UUID."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.agents.ids import mint, partition_of_id


@given(st.integers(0, 65_535))
def test_an_id_finds_the_partition_that_it_was_minted_for(partition: int) -> None:
    made = mint(partition)
    assert partition_of_id(made, 65_536) == partition
    read = uuid.UUID(made.removeprefix("ckpt_"))
    assert (read.version, read.variant, len(made)) == (4, uuid.RFC_4122, 37)


def test_ids_of_one_partition_have_nothing_in_common_to_see() -> None:
    assert len({mint(3)[:9] for _ in range(200)}) > 190


_PROPER = "ckpt_25e19fbce52949829cfb695701a125e1"
"""As `mint` makes them; drawn once, since the names of tests must not change from run to run."""


@pytest.mark.parametrize("text", ["", "ckpt_", "ckpt_" + "0" * 32, _PROPER.upper(), _PROPER + "0", _PROPER[5:], "run_" + _PROPER[5:]])
def test_what_is_no_such_id_lies_in_no_partition(text: str) -> None:
    assert partition_of_id(text, 65_536) is None


def test_an_id_of_more_partitions_than_there_are_lies_nowhere() -> None:
    assert partition_of_id(mint(4), 4) is None
    assert partition_of_id(mint(4), 5) == 4


def test_an_id_carries_sixteen_bits() -> None:
    with pytest.raises(ValueError, match="16 bits"):
        mint(65_536)
