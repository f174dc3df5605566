"""Imports against a whole installation: over REST and straight to the command topic, and nothing twice either way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.sources.direct import direct_transport
from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.samples import FOLDER
from streams.errors import NotPermitted
from streams.log.reader import PartitionReader
from streams.log.record import decode_dead_letter
from streams.log.topics import Topics
from streams.settings import Settings
from tests.support.roles import Roles, running_roles

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture
def roles(settings: Settings) -> Iterator[Roles]:
    with running_roles(settings) as running:
        yield running


def over_rest(roles: Roles, key: str, *paths: Path) -> IngestReport:
    async def scenario() -> IngestReport:
        async with RestTransport.connect(roles.url, key) as transport:
            return await run_ingest(list(paths), transport, check=True, patience_s=30)

    return asyncio.run(scenario())


def direct(settings: Settings, key: str, *paths: Path) -> IngestReport:
    async def scenario() -> IngestReport:
        async with direct_transport(settings, key) as transport:
            return await run_ingest(list(paths), transport, check=True, patience_s=30)

    return asyncio.run(scenario())


def test_what_went_in_one_way_is_not_taken_in_the_other_way_again(roles: Roles, settings: Settings) -> None:
    key = roles.key()
    first, again, other = over_rest(roles, key, FOLDER), over_rest(roles, key, FOLDER), direct(settings, key, FOLDER)
    assert [report.ok for report in (first, again, other)] == [True] * 3, (first, again, other)
    assert [report.records for report in (first, again, other)] == [115, 0, 0]
    assert first.check is not None
    assert other.check is not None
    assert first.check.counts == other.check.counts


def test_a_file_that_grows_is_gone_on_with_either_way_and_its_broken_lines_are_sealed(
    roles: Roles, settings: Settings, tmp_path: Path
) -> None:
    key = roles.key("sessions:import", "sessions:write", "sessions:read")
    file = tmp_path / "mia_li_3668.jsonl"
    lines = (FOLDER / "tide-tables.jsonl").read_bytes().splitlines(keepends=True)
    broken = b'{"type":"user","message":"what Mia said\n'
    file.write_bytes(b"".join([*lines[:6], broken]))
    assert (direct(settings, key, file).records, letters(settings)) == (6, [("claude-code", "malformed_json", 6)])
    file.write_bytes(b"".join([*lines[:6], broken, *lines[6:10], broken, lines[10]]))
    report = over_rest(roles, key, file)
    # The first one stood behind the last record that was in: it is told at least once, so here again.
    assert (report.ok, report.records, report.dead_letters) == (True, 5, 2), report
    file.write_bytes(b"".join([*lines[:6], broken, *lines[6:10], broken, *lines[10:]]))
    assert (direct(settings, key, file).records, direct(settings, key, file).ok) == (5, True)
    assert letters(settings) == [("claude-code", "malformed_json", place) for place in (6, 6, 11)]


def test_a_key_without_the_importers_scope_may_not(roles: Roles, settings: Settings) -> None:
    key = roles.key("sessions:write", "sessions:read")
    for way in (lambda: over_rest(roles, key, FOLDER), lambda: direct(settings, key, FOLDER)):
        with pytest.raises(NotPermitted, match="sessions:import"):
            way()


def letters(settings: Settings) -> list[tuple[str, str, int | None]]:
    """Origin, reason and place of every dead letter, after a look that none of them holds a word or a name in clear."""
    topic = Topics(settings.topic_prefix).deadletter
    found: list[tuple[str, str, int | None]] = []
    with PartitionReader(settings, "test", {(topic, partition): 0 for partition in range(settings.partitions)}) as reader:
        for _ in range(10):
            for record in reader.read(100, 0.2):
                assert record.value is not None
                assert b"Mia" not in record.value
                assert b"mia_li" not in record.value
                letter = decode_dead_letter(record.value)
                found.append((letter.origin, letter.reason, letter.offset))
    return sorted(found, key=lambda letter: letter[2] or 0)
