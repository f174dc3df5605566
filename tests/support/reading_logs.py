"""What broker and stores hold, read by other ways than their files: Kafka's log dump tool, a consumer of everything, RocksDB's iterators.

A file tells what lies on a disk; these tell what a program is given, whatever way it was packed on the way there.
"""

import contextlib
import math
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rocksdict import AccessType, Options, Rdict

from connectors.cli.kafka import jars
from tests.support.searching import Needles, Search

_ARGUMENT_BYTES: Final = 100_000
"""Of one argument; the kernel allows 131072."""
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_READ_S: Final = 60.0
_TRIES: Final = 5


def dumped(data_dir: Path, needles: Needles) -> Search:
    """All segments below a broker's data folder, as `kafka-dump-log --print-data-log` prints them.

    The tool ends at a segment that was cleaned away meanwhile, so it is given links to them, which hold them for so long.
    """
    found = Search()
    with tempfile.TemporaryDirectory(dir=data_dir.parent) as folder:
        for paths in _in_arguments(_linked(data_dir, Path(folder))):
            tool = ["org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--max-message-size", str(16 << 20)]
            java = [str(jars.java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars.jars()}/*"]
            command = [*java, *tool, "--files", ",".join(paths)]
            with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
                assert process.stdout is not None
                found.add(needles.in_stream(process.stdout, "kafka-dump-log"))
                status = process.wait()
                errors.seek(0)
                assert status == 0, errors.read()[:2000].decode(errors="replace")
    return found


def _linked(data_dir: Path, folder: Path) -> list[Path]:
    links = []
    for number, path in enumerate(data_dir.rglob("*.log")):
        link = folder / str(number) / path.name
        if _SEGMENT.fullmatch(path.name):
            link.parent.mkdir()
            with contextlib.suppress(FileNotFoundError):
                link.hardlink_to(path)
                links.append(link)
    return [link for link in links if link.stat().st_size]


def consumed(bootstrap: str, needles: Needles) -> Search:
    """Every record of every topic, Kafka's own included, from the first to the last: also of aborted and open transactions."""
    found = Search()
    for place, key, value, headers in records(bootstrap):
        for part in (key, value, headers):
            found.add(needles.in_bytes(part, place))
    return found


def records(bootstrap: str) -> Iterator[tuple[str, bytes, bytes, bytes]]:
    """Where it lies, key, value, headers. Raises AssertionError where the ends are not reached in a minute.

    The end of a partition that is written to all the time is where it was at the beginning: nobody tells that it is reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"search-{uuid.uuid4().hex}",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        topics = consumer.list_topics(timeout=30).topics
        places = [TopicPartition(name, partition, 0) for name, topic in topics.items() for partition in topic.partitions]
        left = {(place.topic, place.partition): _end(consumer, place) for place in places}
        consumer.assign(places)
        deadline = time.monotonic() + _READ_S
        while left:
            assert time.monotonic() < deadline, f"not read to the end: {sorted(left)[:5]}"
            for message in consumer.consume(1000, 0.5):
                error, place = message.error(), (str(message.topic()), int(message.partition() or 0))
                if error is None:
                    headers = b"\n".join(b"%s=%s" % (name.encode(), value or b"") for name, value in message.headers() or [])
                    yield f"{place[0]}-{place[1]} @{message.offset()}", message.key() or b"", message.value() or b"", headers
                    if message.offset() + 1 >= left.get(place, math.inf):
                        del left[place]
                elif error.name() == "_PARTITION_EOF":
                    left.pop(place, None)
                elif error.fatal():
                    raise KafkaException(error)
    finally:
        consumer.close()


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """Once somebody leads the partition."""
    deadline = time.monotonic() + _READ_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=10)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def stored(data_dir: Path, needles: Needles) -> Search:
    """Every row of every RocksDB database below a folder, also of one that a process has open."""
    found = Search()
    for path in databases(data_dir):
        for key, value in rows(path):
            found.add(needles.in_bytes(key, f"rows of {path}")).add(needles.in_bytes(value, f"row {key!r} of {path}"))
    return found


def databases(data_dir: Path) -> list[Path]:
    return sorted(path.parent for path in data_dir.rglob("CURRENT"))


def rows(path: Path) -> list[tuple[bytes, bytes]]:
    """All rows, as of the moment; a file that a compaction removes meanwhile makes another attempt."""
    for left in reversed(range(_TRIES)):
        try:
            # Without a log of its own beside the database: it is not ours.
            options = Options(raw_mode=True)
            options.set_db_log_dir(str(path.parent))
            database = Rdict(str(path), options=options, access_type=AccessType.read_only())
            try:
                return [(bytes(key), bytes(value)) for key, value in database.items()]
            finally:
                database.close()
        except Exception:
            if not left:
                raise
            time.sleep(0.2)
    raise AssertionError


def _in_arguments(paths: Sequence[Path]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for path in map(str, paths):
        if size + len(path) > _ARGUMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(path)
        size += len(path) + 1
    if part:
        yield part
