"""The checkers can fail: each anomaly, made by hand, is found under its name and nothing is found in a sound history."""

from dataclasses import replace

import msgspec
import pytest

from streams.session import chain
from streams.session.events import Event
from tests.consistency.checkers import check
from tests.consistency.history import Append, End, History, Logged
from tests.support.commands import WORKSPACE, new_id

SESSION = new_id("sess")


def sound() -> History:
    """Two commands, of two events and one, in one session; a consumer saw all of it."""
    history = History()
    previous = chain.genesis(SESSION)
    sequence = 0
    for markers in ((b"a", b"b"), (b"c",)):
        command_id = new_id("cmd")
        history.appends.append(Append(command_id, SESSION, markers, End.OK, sequence + 1, sequence + len(markers)))
        for marker in markers:
            sequence += 1
            event = Event(
                event_id=new_id("evt"), session_id=SESSION, type="message.appended", workspace_id=WORKSPACE, command_id=command_id,
                sequence=sequence, command_offset=sequence, command_last=marker != b"a", accepted_at=1,
                previous_hash=previous, hash=bytes([sequence]) * 32,
            )  # fmt: skip
            previous = event.hash
            history.log.append(Logged(0, 2 * sequence, event, marker))
    history.polls["consumer"] = list(history.log)
    return history


def changed(entry: Logged, **fields: object) -> Logged:
    return replace(entry, event=msgspec.structs.replace(entry.event, **fields))


def test_a_sound_history_has_no_anomaly() -> None:
    assert check(sound()) == {}


def test_an_unknown_append_may_be_there_or_not() -> None:
    history = sound()
    history.appends.append(Append(new_id("cmd"), SESSION, (b"x",), End.UNKNOWN))
    history.appends[1] = replace(history.appends[1], end=End.UNKNOWN)
    assert check(history) == {}


def drop_last(history: History) -> None:
    history.log.pop()
    history.polls.clear()


def twice(history: History) -> None:
    last = history.log[-1]
    history.log.append(changed(replace(last, offset=99), sequence=4, previous_hash=last.event.hash, hash=b"4" * 32))


def swapped(history: History) -> None:
    first, second = history.log[0], history.log[1]
    history.log[0], history.log[1] = replace(first, offset=second.offset), replace(second, offset=first.offset)


def hole(history: History) -> None:
    history.log[-1] = changed(history.log[-1], sequence=7)


def told_to_have_failed(history: History) -> None:
    history.appends[1] = replace(history.appends[1], end=End.FAIL)


def seen_but_not_there(history: History) -> None:
    history.polls["consumer"].append(changed(replace(history.log[-1], marker=b"ghost"), sequence=4))


def seen_twice(history: History) -> None:
    history.polls["consumer"].append(history.log[0])


def two_writers(history: History) -> None:
    history.log[-1] = changed(history.log[-1], previous_hash=history.log[0].event.hash)


def half_a_command(history: History) -> None:
    del history.log[1]
    history.appends[0] = replace(history.appends[0], end=End.UNKNOWN)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (drop_last, "lost"), (twice, "duplicated"), (swapped, "reordered"), (hole, "gap"), (told_to_have_failed, "aborted_read"),
        (seen_but_not_there, "aborted_read"), (seen_twice, "non_monotonic"), (two_writers, "zombie_write"), (half_a_command, "torn"),
    ],
)  # fmt: skip
def test_each_anomaly_is_found_under_its_name(damage: object, name: str) -> None:
    history = sound()
    damage(history)  # type: ignore[operator]
    assert name in check(history)
