"""Reads every accepted event exactly once and in order, into SQLite. Needs confluent-kafka and fastavro.

    python consume.py --bootstrap 127.0.0.1:9092 --schemas path/to/schemas --database events.sqlite

Run it as often as there are partitions to share; each process has its own --instance. It may be killed at any time.
"""

import argparse
import io
import json
import signal
import sqlite3
import urllib.request
from datetime import datetime
from pathlib import Path

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

TABLES = """
    CREATE TABLE IF NOT EXISTS positions (
        partition INTEGER PRIMARY KEY,
        next_offset INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS events (
        session_id TEXT, sequence INTEGER, event_id TEXT, type TEXT, accepted_at TEXT, subject_id TEXT,
        attributes TEXT, content_state TEXT, content_digest TEXT, expiry_day TEXT,
        partition INTEGER, "offset" INTEGER,
        PRIMARY KEY (session_id, sequence)
    );
"""


class Schemas:
    """Numbers to schemas: `place` is the folder with registry.json, or the URL of a Confluent-compatible registry."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._parsed: dict[int, dict] = {}

    def decode(self, value: bytes) -> dict:
        """A value: 00, four bytes of schema number, the Avro body; read with the schema that it was written with."""
        if len(value) < 5 or value[0] != 0:
            raise ValueError("not a value of Session Streams")
        number = int.from_bytes(value[1:5], "big")
        if number not in self._parsed:
            self._parsed[number] = fastavro.parse_schema(self._load(number))
        body = io.BytesIO(value[5:])
        record = fastavro.schemaless_reader(body, self._parsed[number], None)
        if body.read(1):
            raise ValueError("bytes after the end of the record")
        return record

    def _load(self, number: int) -> dict:
        if "://" in self._place:
            with urllib.request.urlopen(f"{self._place.rstrip('/')}/schemas/ids/{number}", timeout=10) as answer:
                return json.loads(json.load(answer)["schema"])
        folder = Path(self._place)
        for entry in json.loads((folder / "registry.json").read_text()):
            if entry["id"] == number:
                return json.loads((folder / f"{entry['subject']}.v{entry['version']}.avsc").read_text())
        raise ValueError(f"schema {number} is newer than these files")


class Events:
    """The effect and the position, in one database and one transaction: both happen, or neither."""

    def __init__(self, path: str, schemas: Schemas) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.executescript(TABLES)
        self._schemas = schemas
        self._next: dict[int, int] = {}

    def start(self, partitions: list[TopicPartition]) -> None:
        """Sets where each partition goes on: behind what is stored here, not where the group committed."""
        self._next = {}
        for each in partitions:
            self._database.execute("INSERT OR IGNORE INTO positions VALUES (?, 0)", [each.partition])
            [stored] = self._database.execute("SELECT next_offset FROM positions WHERE partition = ?", [each.partition]).fetchone()
            self._next[each.partition] = stored
            each.offset = stored or OFFSET_BEGINNING

    def apply(self, messages: list[Message]) -> None:
        """Stores a batch. Raises where one cannot be read, or another process has taken over: nothing is stored then."""
        reached: dict[int, int] = {}
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for message in messages:
                # What was fetched before a rebalance may come again, or be another process's by now.
                if message.offset() < self._next.get(message.partition(), message.offset() + 1):
                    continue
                self._insert(message)
                reached[message.partition()] = message.offset() + 1  # offsets have holes, so never "position + count"
            for partition, offset in reached.items():
                moved = self._database.execute(
                    "UPDATE positions SET next_offset = ? WHERE partition = ? AND next_offset = ?",
                    [offset, partition, self._next[partition]],
                )
                if moved.rowcount != 1:
                    raise RuntimeError(f"another process reads partition {partition}")
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._next.update(reached)

    def _insert(self, message: Message) -> None:
        place = f"{message.topic()}:{message.partition()}:{message.offset()}"
        try:
            event = self._schemas.decode(message.value() or b"")
            # Attributes are a whole value of their own: its header names the schema of the type's family.
            attributes = None if event["attributes"] is None else self._schemas.decode(event["attributes"])
        except (ValueError, KeyError, EOFError, IndexError) as error:
            # The log's own record is never skipped: the schema files are too old, or something is very wrong.
            raise RuntimeError(f"{place} cannot be read: {error}") from error
        content = event["content"]
        reference, digest = content["key_reference"], content["digest"]
        accepted_at: datetime = event["accepted_at"]
        attributes_json = None if attributes is None else json.dumps(attributes, default=datetime.isoformat)
        self._database.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                event["session_id"], event["sequence"], event["event_id"], event["type"], accepted_at.isoformat(), event["subject_id"],
                attributes_json, content["state"], digest and digest.hex(),
                reference and reference["expiry_day"], message.partition(), message.offset(),
            ],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--schemas", required=True, help="folder with registry.json, or URL of a registry")
    parser.add_argument("--database", required=True)
    parser.add_argument("--topic", default="sessions.events")
    parser.add_argument("--group", default="example-python")
    parser.add_argument("--instance", default="0")
    options = parser.parse_args()

    stopped: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    events = Events(options.database, Schemas(options.schemas))
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            # Under a name of its own, a process that was killed takes its partitions back at once.
            "group.instance.id": options.instance,
            # After so long, another process takes over from one that does not come back.
            "session.timeout.ms": 10_000,
            # Without it, events of transactions that are aborted later would be seen.
            "isolation.level": "read_committed",
            # Where to go on is in the database.
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        events.start(partitions)
        consumer.assign(partitions)

    consumer.subscribe([options.topic], on_assign=on_assign)
    try:
        while not stopped:
            messages = consumer.consume(500, 0.5)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
            if messages:
                events.apply(messages)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
