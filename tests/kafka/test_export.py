"""Exports of a whole installation: what went in through the authority comes out as a file that verifies by itself."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.samples import FOLDER
from session_streams import Client, Retries, bundle
from session_streams.export import read, verify
from streams.settings import Settings
from tests.support.roles import Roles, running_roles

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture
def roles(settings: Settings) -> Iterator[Roles]:
    with running_roles(settings) as running:
        yield running


def ingested(roles: Roles, key: str, *paths: Path) -> IngestReport:
    async def scenario() -> IngestReport:
        async with RestTransport.connect(roles.url, key) as transport:
            return await run_ingest(list(paths), transport, patience_s=30)

    report = asyncio.run(scenario())
    assert report.ok, report.failures
    return report


def check(client: Client, session_id: str) -> list[bytes]:
    """The lines of an export that verifies and agrees with what the events route shows."""
    lines = list(client.export(session_id))
    verdict = verify(lines)
    assert verdict.ok, verdict
    shown = list(client.events(session_id))
    exported = list(read(lines))
    assert [(entry.sequence, entry.type, entry.content) for entry in exported] == [
        (event.sequence, event.type, event.content) for event in shown
    ]
    assert [entry.fields["hash"] for entry in exported] == [event.raw["hash"] for event in shown]
    return lines


def bundled(client: Client, session_id: str, path: Path) -> bytes:
    """A bundle that verifies."""
    with path.open("w+b") as file:
        client.bundle(session_id, file)
    verdict = bundle.verify(path, json.dumps(client.signing_keys()).encode(), session_id=session_id)
    assert verdict.ok, verdict
    return path.read_bytes()


def test_every_sample_session_exports_and_verifies_and_so_does_its_bundle(roles: Roles, tmp_path: Path) -> None:
    key = roles.key()
    report = ingested(roles, key, FOLDER)
    with Client(roles.url, key, retries=Retries(total_s=30)) as client:
        for session_id in report.session_ids:
            lines = check(client, session_id)
            end, middle = len(lines) - 2, len(lines) // 2
            part = list(client.export(session_id, from_sequence=middle, end_sequence=end))
            assert lines[:middle] + part[1:] == lines
            first, second = (bundled(client, session_id, tmp_path / name) for name in ("first", "second"))
            assert first == second
            assert first.startswith(b"".join(lines))


def test_recorded_sessions_come_back_deep_equal(roles: Roles, recordings: Path) -> None:
    key = roles.key()
    files = sorted((recordings / "coding_sessions").glob("*.gz"), key=lambda path: path.stat().st_size)[10:13]
    with Client(roles.url, key, retries=Retries(total_s=30)) as client:
        for path in files:
            (session_id,) = ingested(roles, key, path).session_ids
            entries = read(check(client, session_id))
            back = [entry.content for entry in entries if entry.attributes.get("source_kind") == "claude-code"]
            assert back == [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines() if line.strip()]


def test_a_session_that_grows_meanwhile_is_exported_to_the_end_that_was_named(roles: Roles) -> None:
    with Client(roles.url, roles.key(), retries=Retries(total_s=30)) as client:
        session = client.create_session().session_id
        body = {"type": "message.appended", "content": {"text": "x" * 2000}}
        client.append_many(session, [body] * 2000)
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                client.append(session, body)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            exports = [list(client.export(session)) for _ in range(3)]
        finally:
            stop.set()
            writer.join()
        ends = [json.loads(lines[0])["end_sequence"] for lines in exports]
        assert ends == sorted(ends)
        for lines, end in zip(exports, ends, strict=True):
            assert (verify(lines).ok, len(lines)) == (True, end + 2)
        assert exports[2][1 : ends[0] + 1] == exports[0][1:-1]
