"""Anyone may tap the topics: confluent_kafka, fastavro and the schema files are all that a reader needs.

Nothing below `Reader` imports this project; the test that fills the topics does.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from streams.log import record
from streams.log.topics import Topics
from streams.session import chain
from streams.session.events import Draft
from streams.session.outcomes import ACCEPTED, Outcome
from streams.settings import Settings
from tests.support import examples

SCHEMAS = Path(__file__).parents[2] / "schemas"


class Reader:
    """A stranger: the schema files, the wire format of docs/wire-format.md, and a consumer."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._files = {
            entry["id"]: SCHEMAS / f"{entry['subject']}.v{entry['version']}.avsc"
            for entry in json.loads((SCHEMAS / "registry.json").read_text(encoding="utf-8"))
        }
        self._parsed: dict[Path, Any] = {}

    def value(self, value: bytes) -> dict[str, Any]:
        assert value[0] == 0
        return self.body(self._files[int.from_bytes(value[1:5], "big")], value[5:])

    def body(self, file: Path, body: bytes) -> dict[str, Any]:
        if file not in self._parsed:
            self._parsed[file] = fastavro.parse_schema(json.loads(file.read_text(encoding="utf-8")))
        found: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(body), self._parsed[file], None)  # type: ignore[assignment]
        return found

    def topic(self, name: str, count: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The first `count` committed records, of all partitions."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "a-stranger",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        try:
            partitions = consumer.list_topics(name, timeout=20).topics[name].partitions
            consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in partitions])
            found = 0
            while found < count:
                message = consumer.poll(20)
                assert message is not None, f"{found} of {count} records of {name}"
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                yield key, self.value(value)
                found += 1
        finally:
            consumer.close()


@pytest.fixture
def drafts() -> list[Draft]:
    return [examples.message(), *examples.of_every_type()]


@pytest.fixture
def filled(settings: Settings, drafts: list[Draft]) -> Settings:
    """A command, the events that it leads to, and its outcome, on their topics."""
    topics, key = Topics(settings.topic_prefix), examples.SESSION.encode()
    producer = Producer({"bootstrap.servers": settings.bootstrap, "partitioner": "murmur2_random"})
    bodies = [record.encode_draft(draft) for draft in drafts]
    producer.produce(topics.commands, record.encode_command(examples.command(), bodies), key)
    previous = chain.genesis(examples.SESSION)
    for index, (draft, body) in enumerate(zip(drafts, bodies, strict=True)):
        added: dict[str, Any] = {
            "sequence": index + 1,
            "command_offset": 0,
            "command_last": index == len(drafts) - 1,
            "accepted_at": examples.NOON,
            "previous_hash": previous,
        }
        previous = chain.event_hash(draft, record.encode_attributes(draft.type, draft.attributes), **added)
        producer.produce(topics.events, record.encode_event(body, **added, hash=previous), key)
    outcome = Outcome(command_id=examples.COMMAND, correlation=7, session_id=examples.SESSION, status=ACCEPTED, decided_at=examples.NOON)
    producer.produce(topics.outcomes, record.encode_outcomes("gateway-0.1", [outcome]), key)
    assert producer.flush(30) == 0
    producer.close()
    return settings


def test_a_stranger_reads_the_topics_with_the_schema_files_alone(filled: Settings, drafts: list[Draft]) -> None:
    """Commands with their drafts, events with their attributes, outcomes: whole, in order, with times as times."""
    topics, reader = Topics(filled.topic_prefix), Reader(filled.bootstrap)

    ((key, command),) = reader.topic(topics.commands, 1)
    assert key.decode() == command["session_id"] == examples.SESSION
    bodies = [reader.body(SCHEMAS / "draft.v1.avsc", body) for body in command["drafts"]]
    assert [body["event_id"] for body in bodies] == [draft.event_id for draft in drafts]

    events = list(reader.topic(topics.events, len(drafts)))
    for index, ((key, event), draft) in enumerate(zip(events, drafts, strict=True)):
        assert key.decode() == event["session_id"]
        assert (event["sequence"], event["type"]) == (index + 1, draft.type)
        assert event["accepted_at"].isoformat() == "2026-01-01T12:00:00+00:00"
        assert draft.attributes is not None
        assert reader.value(event["attributes"]) == msgspec.structs.asdict(draft.attributes)
        assert event["content"]["ciphertext"] == draft.content.ciphertext
    assert [event["previous_hash"] for _, event in events[1:]] == [event["hash"] for _, event in events[:-1]]

    ((_, batch),) = reader.topic(topics.outcomes, 1)
    assert batch["reply_to"] == "gateway-0.1"
    assert [outcome["command_id"] for outcome in batch["outcomes"]] == [examples.COMMAND]
