"""docs/consuming.md shows the files that the tests run, and what it says of them holds."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

from schemas import codec
from streams.session.events import FAMILIES, TYPES, family_of
from tests.support.event_log import EventLog
from tests.support.pages import CONSUMING, REPOSITORY, quoted


class Message:
    """As much of a confluent_kafka.Message as the example uses."""

    def __init__(self, offset: int, value: bytes | None, partition: int = 0) -> None:
        self._offset, self._value, self._partition = offset, value, partition

    def topic(self) -> str:
        return "sessions.events"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("consume", REPOSITORY / "docs" / "examples" / "python" / "consume.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def opened(example: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """Opens the example's database, for partition 0: one call for each process."""
    made: list[Any] = []

    def another() -> Any:
        events = example.Events(str(tmp_path / "events.sqlite"), example.Schemas(str(REPOSITORY / "schemas")))
        events.start([example.TopicPartition("sessions.events", 0)])
        made.append(events)
        return events

    yield another
    for each in made:
        each._database.close()


@pytest.fixture
def messages() -> list[Message]:
    log = EventLog()
    log.say(log.create("a"), 5)
    return [Message(record.offset, record.value) for record in log.records]


def sequences(events: Any) -> list[int]:
    return [row[0] for row in events._database.execute("SELECT sequence FROM events ORDER BY rowid")]


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = quoted(CONSUMING)
    files = {
        path for path in (REPOSITORY / "docs" / "examples").rglob("*") if path.is_file() and not {"target", "__pycache__"} & set(path.parts)
    }
    assert shown.keys() == {path.relative_to(REPOSITORY).as_posix() for path in files}
    for name, text in shown.items():
        assert text == (REPOSITORY / name).read_text(), f"{name} has changed: run `python -m tests.support.pages`"


def test_the_partitioner_of_the_page_finds_the_partitions_of_the_vectors() -> None:
    scope: dict[str, Any] = {}
    exec(quoted(CONSUMING, "run")["partition_of"], scope)
    for vector in json.loads((REPOSITORY / "tests" / "vectors" / "partitions.json").read_text()):
        for partitions, expected in vector["partitions"].items():
            assert scope["partition_of"](vector["key"], int(partitions)) == expected


def test_the_python_example_keeps_position_and_effect_together(opened: Any, messages: list[Message]) -> None:
    """A batch with a record that cannot be read is not kept at all, and the next start is where the last batch ended."""
    first = opened()
    first.apply(messages[:2])
    with pytest.raises(RuntimeError, match=r"sessions\.events:0:4 cannot be read"):
        first.apply([*messages[2:4], Message(4, b"\0broken")])
    assert sequences(first) == [1, 2]
    second = opened()
    second.apply(messages[2:])
    assert sequences(second) == [1, 2, 3, 4, 5, 6]


def test_the_python_example_keeps_what_comes_again_once(opened: Any, messages: list[Message]) -> None:
    events = opened()
    events.apply(messages[:4])
    events.apply(messages[2:])
    events.apply([Message(9, b"of another partition", partition=7)])
    assert sequences(events) == [1, 2, 3, 4, 5, 6]


def test_the_python_example_does_not_write_over_its_successor(opened: Any, messages: list[Message]) -> None:
    """A process that has lost its partition without noticing writes nothing, whether the successor was there before or not."""
    zombie, successor = opened(), opened()
    successor.apply(messages[:3])
    for late in (messages[:1], messages[3:]):
        with pytest.raises(Exception, match=r"another process reads partition 0|UNIQUE"):
            zombie.apply(late)
    assert sequences(successor) == [1, 2, 3]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_python_example_stores_attributes_of_every_family_with_every_field_set(opened: Any, family: str) -> None:
    """A claimed Run, a wait and an approval carry times, which an imported session never has."""
    event_type = next(each for each in sorted(TYPES) if family_of(each) == family)
    kind = FAMILIES[family]
    hints = get_type_hints(kind)
    filled = {name: VALUES[next(each for each in get_args(hints[name]) if each is not type(None))] for name in kind.__struct_fields__}
    value = codec.encode(f"attributes/{family}", filled)
    event = {**an_event(), "type": event_type, "attributes": value}
    opened().apply([Message(0, codec.encode("event", event))])


VALUES: dict[type, Any] = {str: "text", int: 1_796_054_575_627_642, float: 0.5, bool: True}


def an_event() -> dict[str, Any]:
    day = {"subject_id": None, "session_id": "sess_" + "1" * 32, "expiry_day": "2030-01-01"}
    content = {"state": "sealed", "key_reference": day, "ciphertext": b"c" * 64, "digest": b"d" * 32}
    named = {"event_id": "evt_1", "session_id": "sess_" + "1" * 32, "workspace_id": "ws_1", "command_id": "cmd_1"}
    added = {"sequence": 1, "command_offset": 0, "command_last": True, "accepted_at": 1, "previous_hash": b"p" * 32, "hash": b"h" * 32}
    absent = dict.fromkeys(
        ("thread_id", "turn_id", "run_id", "attempt_generation", "native_task_id", "actor_id", "subject_id", "occurred_at")
    )
    return {**named, **absent, "links": [], "content": content, **added}
