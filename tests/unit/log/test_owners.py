"""What a member of a group was assigned, from the bytes of the protocol."""

import struct

import pytest

from streams.log.owners import assigned_partitions


def _assignment(version: int, topics: dict[str, tuple[int, ...]], behind: bytes = b"\xff\xff\xff\xff") -> bytes:
    made = struct.pack(">hi", version, len(topics))
    for topic, partitions in topics.items():
        made += struct.pack(f">h{len(topic)}si{len(partitions)}i", len(topic), topic.encode(), len(partitions), *partitions)
    return made + behind


@pytest.mark.parametrize("version", [0, 1, 3])
def test_every_topic_has_its_partitions_whatever_follows_them(version: int) -> None:
    told = {"a.events": (0, 5, 2**20), "a.commands": (), "b": (7,)}
    assert assigned_partitions(_assignment(version, told)) == {topic: frozenset(each) for topic, each in told.items()}


def test_a_member_of_a_group_that_settles_has_nothing() -> None:
    assert assigned_partitions(b"") == {}


def test_bytes_that_are_cut_are_no_assignment() -> None:
    whole = _assignment(1, {"topic": (1, 2, 3)}, behind=b"")
    for size in range(1, len(whole)):
        with pytest.raises(struct.error):
            assigned_partitions(whole[:size])
