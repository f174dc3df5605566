"""Ids of agent checkpoints: a version 4 UUID whose random bits carry the partition, so that a read by id finds its owner (design 06).

The first two bytes are the partition, hidden under the last two, which are random: ids of one partition have nothing in common to see.
"""

import re
import uuid
from typing import Final

PREFIX: Final = "ckpt_"
_PATTERN: Final = re.compile(r"ckpt_[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
PARTITIONS_MAX: Final = 1 << 16


def mint(partition: int) -> str:
    """A new id of a partition, 0 to 65,535: `ckpt_` and 32 hex digits."""
    if not 0 <= partition < PARTITIONS_MAX:
        raise ValueError(f"partition {partition}: an id carries 16 bits")
    random = uuid.uuid4().bytes
    carried = partition ^ int.from_bytes(random[-2:], "big")
    return PREFIX + (carried.to_bytes(2, "big") + random[2:]).hex()


def partition_of_id(checkpoint_id: str, partitions: int) -> int | None:
    """Where the id's row lies, if it is anywhere; None for what no partition of so many has minted."""
    if _PATTERN.fullmatch(checkpoint_id) is None:
        return None
    digits = checkpoint_id.removeprefix(PREFIX)
    partition = int(digits[:4], 16) ^ int(digits[-4:], 16)
    return partition if partition < partitions else None
