"""An installation on an HTTP registry: published by command, its numbers on every record that a role writes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streams.log.client import producer
from streams.log.log import KafkaLog
from streams.log.partitioner import partition_of
from streams.log.topics import Topics
from streams.settings import Settings
from tests.support.commands import new_id
from tests.support.processes import Fleet, environment
from tests.support.registry_server import RegistryServer
from tests.support.snippets import run_python
from tests.support.waiting import eventually

ENCODE = """
import sys
from connectors.registry import configure
from streams.log.record import encode_command
from streams.settings import Settings
from tests.support.commands import create_session
configure(Settings.from_environment())
sys.stdout.write(encode_command(create_session(sys.stdin.read())).hex())
"""
FIRST_ID = 700_001


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer(first_id=FIRST_ID).serving() as server:
        yield server


def command_line(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "connectors.cli", *arguments],
        env={**os.environ, **environment(settings)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_role_refuses_a_registry_without_schemas_and_writes_its_numbers_once_they_are_published(
    settings: Settings, registry: RegistryServer
) -> None:
    registered = replace(settings, registry_url=registry.url)
    refused = command_line(registered, "authority")
    assert refused.returncode == 3
    assert "schemas publish" in refused.stderr
    published = command_line(registered, "schemas", "publish", "--registry", registry.url)
    assert published.returncode == 0, published.stderr
    session_id = new_id("sess")
    value = encoded_elsewhere(registered, session_id)
    assert int.from_bytes(value[1:5], "big") >= FIRST_ID
    topics, log = Topics(settings.topic_prefix), KafkaLog(settings)
    partition = partition_of(session_id.encode(), settings.partitions)
    with Fleet(registered) as fleet:
        fleet.start("authority")
        client = producer(settings, "test")
        client.produce(topics.commands, value, session_id.encode(), partition)
        client.flush()
        place = (topics.events, partition)
        eventually(lambda: log.end_offsets([place], committed=True)[place] > 0, timeout_s=30)
    reader = log.reader("test", {place: 0})
    records = []
    eventually(lambda: records.extend(reader.read(10, 0.5)) or records)
    reader.close()
    assert [int.from_bytes(record.value[1:5], "big") >= FIRST_ID for record in records] == [True]


def encoded_elsewhere(settings: Settings, session_id: str) -> bytes:
    """In a process of its own: this one has encoded with the file's numbers already."""
    code = ENCODE.replace("sys.stdin.read()", repr(session_id))
    return bytes.fromhex(run_python(code, **environment(settings)).stdout.strip())
