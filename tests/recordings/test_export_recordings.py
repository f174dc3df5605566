"""Each recorded session exports; the export verifies by itself; and what it holds is what was recorded, deep-equal."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from connectors.sources.transport import LogEvent
from session_streams import bundle
from session_streams.export import Entry, read, verify
from streams.custody.signing import SigningKey
from streams.session.events import FAMILIES, Draft, Link, family_of
from tests.recordings.conftest import Ingested
from tests.support.bundles import bundle_of, trust_of
from tests.support.exports import History
from tests.support.import_service import WORKSPACE

pytestmark = pytest.mark.timeout(300)


def exported(session_id: str, log: list[LogEvent]) -> list[bytes]:
    history = History(session_id)
    for event in log:
        draft = Draft(
            event_id=event.event_id, session_id=session_id, type=event.type, workspace_id=WORKSPACE, thread_id=event.thread_id,
            turn_id=event.turn_id, run_id=event.run_id, command_id="cmd_" + "1" * 32,
            links=tuple(Link(link.relation, link.id) for link in event.links),
            attributes=None if event.attributes is None else FAMILIES[family_of(event.type)](**event.attributes),
        )  # fmt: skip
        history.accept(draft, text=None if event.content is UNSET else bytes(event.content).decode(), gone=None)
    return history.lines()


@pytest.fixture(scope="module")
def exports(ingested: Ingested) -> dict[str, list[bytes]]:
    """By session, of all recordings."""
    assert ingested.report.ok, ingested.report.failures
    return {session_id: exported(session_id, log) for session_id, log in ingested.service.logs.items()}


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.generate()


def test_every_bundle_verifies_and_begins_with_the_export(exports: dict[str, list[bytes]], key: SigningKey) -> None:
    trust = trust_of(key)
    for session_id, lines in exports.items():
        file, export = bundle_of(lines, key), b"".join(lines)
        verdict = bundle.verify(file, trust, session_id=session_id, end_sequence=len(lines) - 2)
        assert verdict.ok, verdict
        assert file[: verdict.sections[0].bytes] == export
        assert verdict.sections[0].items == len(lines) - 2
        assert all(section.items or section.gaps for section in verdict.sections)
    assert bundle_of(lines, key) == file


def recorded(entries: Iterator[Entry], source_kind: str) -> Iterator[Entry]:
    """The entries that hold a record of a source of this kind."""
    return (entry for entry in entries if entry.attributes.get("source_kind") == source_kind)


def form(value: Any) -> str:
    """The same for values that are deep-equal, and for no others: 1 and 1.0 differ, the order of members does not."""
    return json.dumps(value, sort_keys=True)


def test_every_session_verifies(exports: dict[str, list[bytes]]) -> None:
    verdicts = [verify(lines) for lines in exports.values()]
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    assert len(verdicts) == 41 + 150
    assert sum(verdict.opened for verdict in verdicts) >= 13_754 + 3_916 + 150
    assert sum(verdict.positions for verdict in verdicts) == sum(len(lines) - 2 for lines in exports.values())


def test_transcripts_come_back_deep_equal(exports: dict[str, list[bytes]], recordings: Path) -> None:
    back = Counter(form(entry.content) for lines in exports.values() for entry in recorded(read(lines), "claude-code"))
    source: Counter[str] = Counter()
    for path in (recordings / "coding_sessions").glob("*.gz"):
        source.update(form(json.loads(line)) for line in gzip.decompress(path.read_bytes()).splitlines() if line.strip())
    assert source.total() == 13_754
    assert back == source


def test_trajectories_come_back_deep_equal_and_in_order(exports: dict[str, list[bytes]], recordings: Path) -> None:
    back: Counter[str] = Counter()
    for lines in exports.values():
        messages = [entry.content for entry in recorded(read(lines), "tau-bench")]
        if messages:
            (end,) = (entry for entry in read(lines) if entry.type == "run.completed")
            back[form([messages, end.content, end.attributes["reward"]])] += 1
    elements = json.loads(gzip.decompress((recordings / "airline_sessions" / "trajectories.json.gz").read_bytes()))
    assert back == Counter(form([element["traj"], element["info"], float(element["reward"])]) for element in elements)


def test_a_swapped_and_a_dropped_record_are_found_in_every_session(exports: dict[str, list[bytes]]) -> None:
    for lines in exports.values():
        middle = len(lines) // 2
        swapped = [*lines[: middle - 1], lines[middle], lines[middle - 1], *lines[middle + 1 :]]
        assert verify(swapped).code == "out_of_order"
        assert verify([*lines[:middle], *lines[middle + 1 :]]).code == "gap"
