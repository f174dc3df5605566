"""The recordings as they are: every record goes in once, in order, whole, and comes back deep-equal."""

import asyncio
import gzip
from collections import Counter
from pathlib import Path

from connectors.sources.claude_code import ClaudeCodeMapper
from connectors.sources.claude_records import mapping
from connectors.sources.ingest import run_ingest
from connectors.sources.records import LineSplitter, Record, read_record, read_tail
from tests.recordings.conftest import Ingested


def records(folder: Path) -> list[list[Record]]:
    files = []
    for path in sorted((folder / "coding_sessions").glob("*.gz")):
        splitter = LineSplitter()
        found = [read_record(line) for line in splitter.feed(gzip.decompress(path.read_bytes()))]
        tail = splitter.tail()
        last = None if tail is None else read_tail(tail)
        files.append([record for record in [*found, *([last] if last else [])] if isinstance(record, Record)])
    return files


def test_the_recordings_are_what_the_design_says(recordings: Path) -> None:
    files = records(recordings)
    every = [mapping(record.value) for file in files for record in file]
    assert len(files) == 41
    assert len(every) == 13_754
    assert sum("uuid" not in source for source in every) == 524
    assert sum("sessionId" not in source for source in every) == 517
    assert sum(source.get("isSidechain") is True for source in every) == 0
    assert max(len(record.text) for file in files for record in file) == 346_631


def test_every_record_is_in_and_read_back_deep_equal(ingested: Ingested) -> None:
    assert ingested.report.ok, (ingested.report.failures, ingested.report.check)
    assert (ingested.report.sessions, ingested.report.dead_letters) == (41 + 150, 0)
    assert ingested.counts["records"] == 13_754 + 3_916 + 150
    assert ingested.counts["message.appended"] + ingested.counts["source.recorded"] == 13_754 + 3_916


def test_parents_calls_and_results_resolve_and_what_the_source_lacks_is_a_typed_gap(ingested: Ingested) -> None:
    assert ingested.counts["parents resolved"] == 13_168
    assert ingested.counts["parents missing in the source"] == 9
    assert ingested.counts["results without a call"] == 1
    assert ingested.counts["calls without a result"] == 5
    assert ingested.counts["calls"] == ingested.counts["tool.called"] == 2_948 + 862
    assert ingested.counts["results resolved"] == 2_943 + 862


def test_prompts_open_runs_and_trajectories_are_one_each(ingested: Ingested) -> None:
    assert ingested.counts["run.accepted"] == ingested.counts["turn.started"] == 277 + 150
    assert ingested.counts["run.completed"] == 210 + 150
    assert ingested.counts["run.cancelled"] == 26
    assert ingested.counts["child.started"] == 13
    assert ingested.counts["child.settled"] == 12


def test_agents_at_work_are_known_by_their_records(recordings: Path) -> None:
    told: Counter[str] = Counter()
    for file in records(recordings):
        mapper = ClaudeCodeMapper("sess_" + "0" * 32)
        for group in map(mapper.map, file):
            content = group.bodies[group.content_at]
            told.update(str(target) for relation, target in content.links if relation == "child")
    assert (len(told), told.total()) == (13, 457)


def test_the_34_customers_are_the_subjects_and_stand_nowhere_in_clear(ingested: Ingested) -> None:
    subjects = {subject for subject in ingested.service.subjects.values() if subject is not None}
    assert len(subjects) == 34
    for log in ingested.service.logs.values():
        for event in log:
            bare = repr((event.event_id, event.thread_id, event.turn_id, event.run_id, event.links, event.attributes))
            assert not any(subject in bare for subject in subjects)


def test_a_second_ingest_adds_nothing(ingested: Ingested) -> None:
    before = ingested.service.appends
    report = asyncio.run(run_ingest([ingested.folder], ingested.service))
    assert (report.records, report.sessions_unchanged, report.ok) == (0, 191, True)
    assert ingested.service.appends == before
