"""Ingest against the pure core: everything arrives once, whatever is cut, lost, repeated or away in between."""

import asyncio
import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from connectors.sources import bodies
from connectors.sources.ingest import IngestReport, Progress, run_ingest
from connectors.sources.samples import FOLDER
from connectors.sources.transport import Appended, LogEvent, LogLink
from streams.errors import NotPermitted
from streams.session.outcomes import Rejected
from tests.support.import_service import ImportService

TIDES = FOLDER / "tide-tables.jsonl"
AGENT = FOLDER / "agent-a7c31f0.jsonl"


def ingest(service: ImportService, *paths: Path, **options: object) -> IngestReport:
    return asyncio.run(run_ingest(list(paths), service, **{"patience_s": 5.0, **options}))  # type: ignore[arg-type]


def only_log(service: ImportService) -> list[LogEvent]:
    (log,) = service.logs.values()
    return log


def indices(log: Sequence[LogEvent]) -> list[object]:
    return [event.attribute("source_index") for event in log if event.type in ("message.appended", "source.recorded")]


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what a follower does in its own time; the test's time-out ends it."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


def taken(service: ImportService, count: int) -> Callable[[], bool]:
    """Whether `count` records are in, over all sessions."""
    return lambda: sum(len(indices(log)) for log in service.logs.values()) >= count


def test_the_samples_go_in_and_the_check_finds_no_difference() -> None:
    service = ImportService()
    report = ingest(service, FOLDER, check=True)
    assert report.ok, (report.failures, report.check)
    assert (report.files, report.sessions, report.records) == (5, 9, 115)
    assert report.check is not None
    assert report.check.counts["parents missing in the source"] == 1
    assert report.check.counts["calls without a result"] == 1


def test_a_second_ingest_adds_nothing_even_when_keys_are_forgotten() -> None:
    service = ImportService()
    ingest(service, FOLDER)
    before, appends = service.snapshot(), service.appends
    service.forget_keys = True
    report = ingest(service, FOLDER)
    assert (report.records, report.sessions_unchanged, report.ok) == (0, 9, True)
    assert (service.snapshot(), service.appends) == (before, appends)


def test_a_file_that_has_grown_gets_what_is_new_with_its_parents_resolved(tmp_path: Path) -> None:
    whole = TIDES.read_bytes().splitlines(keepends=True)
    file = tmp_path / "tide-tables.jsonl"
    service, undisturbed = ImportService(), ImportService()
    for end in range(1, len(whole) + 1):
        file.write_bytes(b"".join(whole[:end]))
        assert ingest(service, file).records == 1
    assert ingest(service, file, check=True).ok
    ingest(undisturbed, file)
    assert service.snapshot() == undisturbed.snapshot()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, len(TIDES.read_bytes())))
def test_a_file_cut_anywhere_and_then_completed_gives_the_same_session(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    file = tmp_path_factory.mktemp("cut") / "tide-tables.jsonl"
    service, undisturbed = ImportService(), ImportService()
    file.write_bytes(TIDES.read_bytes()[:cut])
    ingest(service, file)
    file.write_bytes(TIDES.read_bytes())
    assert ingest(service, file, check=True).ok
    ingest(undisturbed, file)
    assert service.snapshot() == undisturbed.snapshot()


def test_batches_stay_within_their_limits_and_do_not_show_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = ImportService(), ImportService()
    ingest(large, FOLDER)
    monkeypatch.setattr(bodies, "MAX_BATCH_EVENTS", 4)
    ingest(small, FOLDER)
    assert small.appends > 5 * large.appends
    assert small.snapshot() == large.snapshot()


def test_a_lost_answer_is_asked_for_again_under_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BATCH_EVENTS", 4)
    service, undisturbed = ImportService(), ImportService()
    service.lose_answers = 3
    assert ingest(service, TIDES, check=True).ok
    ingest(undisturbed, TIDES)
    assert service.snapshot() == undisturbed.snapshot()


def test_a_lost_answer_whose_key_is_forgotten_is_found_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BATCH_EVENTS", 4)
    service, undisturbed = ImportService(), ImportService()
    service.lose_answers, service.forget_keys = 1, True
    assert ingest(service, TIDES, check=True).ok
    ingest(undisturbed, TIDES)
    assert service.snapshot() == undisturbed.snapshot()


def test_a_service_that_is_away_for_a_while_is_waited_for() -> None:
    service = ImportService()
    service.away = 3
    assert ingest(service, TIDES, check=True).ok


def test_a_service_that_stays_away_is_told_and_nothing_is_half_done() -> None:
    service = ImportService()
    service.away = 10**6
    report = ingest(service, TIDES, patience_s=0.1)
    assert [failure.reason for failure in report.failures] == ["service.broker_unavailable: away"]
    service.away = 0
    assert ingest(service, TIDES, check=True).ok


def test_two_importers_of_one_file_leave_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BATCH_EVENTS", 4)
    service, undisturbed = ImportService(), ImportService()

    async def both() -> list[IngestReport]:
        return list(await asyncio.gather(run_ingest([TIDES], service), run_ingest([TIDES], service, check=True)))

    assert [report.ok for report in asyncio.run(both())] == [True, True]
    ingest(undisturbed, TIDES)
    assert service.snapshot() == undisturbed.snapshot()


def test_what_others_append_to_the_session_does_not_disturb_a_later_ingest(tmp_path: Path) -> None:
    service = ImportService()
    file = tmp_path / "tide-tables.jsonl"
    file.write_bytes(b"".join(TIDES.read_bytes().splitlines(keepends=True)[:5]))
    ingest(service, file)
    ((session_id, log),) = service.logs.items()
    asyncio.run(service.append(session_id, "other", b'{"type":"artifact.recorded"}', expected_sequence=len(log)))
    file.write_bytes(TIDES.read_bytes())
    assert ingest(service, file).ok
    assert indices(log) == list(range(16))


def test_a_broken_line_goes_to_the_dead_letters_and_the_rest_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "pilot-roster.jsonl"
    lines = (FOLDER / "pilot-roster.jsonl").read_bytes().splitlines()
    lines[3:3] = [b'{"type": "user", "mess', b"", b'{"a": "\\ud800"}', b"\xff\xfe"]
    file.write_bytes(b"\n".join(lines) + b"\n")
    service = ImportService()
    report = ingest(service, file, check=True)
    assert report.ok
    assert report.dead_letters == 3
    letters = sorted((letter for _, letter in service.letters.values()), key=lambda letter: letter.source_index)
    assert [(letter.source_index, letter.reason) for letter in letters] == [
        (3, "malformed_json"),
        (5, "lone_surrogate"),
        (6, "not_utf8"),
    ]
    assert letters[0].record == lines[3]
    assert letters[0].place.startswith(f"{file}:4 ")
    assert report.letter_places == [f"{file}:4: malformed_json", f"{file}:6: lone_surrogate", f"{file}:7: not_utf8"]
    assert indices(only_log(service)) == [0, 1, 2, *range(7, len(lines))]
    assert ingest(service, file).records == 0


def test_a_transcript_of_broken_lines_alone_goes_to_the_dead_letters_and_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "torn.jsonl"
    file.write_bytes(b"not json\n" * 7)
    service = ImportService()
    for _ in range(2):
        report = ingest(service, file, TIDES, check=True)
        assert (report.ok, report.dead_letters, len(report.letter_places)) == (False, 7, 5)
        assert [(failure.file, failure.reason) for failure in report.failures] == [(str(file), "no line of it is a record")]
        assert report.check is not None
        assert report.check.sessions == 1
    assert (report.sessions, report.sessions_unchanged) == (2, 1)
    file.write_bytes(b"not json\n" * 7 + b'{"type": "summary"}\n')
    assert ingest(service, file).ok


def test_a_first_line_that_is_broken_does_not_hinder_the_others(tmp_path: Path) -> None:
    file = tmp_path / "tide-tables.jsonl"
    file.write_bytes(b"not json\n" + TIDES.read_bytes())
    service = ImportService()
    assert ingest(service, file, AGENT, check=True).ok
    assert indices(only_log(service))[:3] == [1, 2, 3]


def test_a_last_line_that_is_cut_is_a_dead_letter_and_a_record_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "tide-tables.jsonl"
    file.write_bytes(TIDES.read_bytes()[:-40])
    service = ImportService()
    assert ingest(service, file).dead_letters == 1
    ((_, letter),) = service.letters.values()
    assert (letter.reason, letter.source_index) == ("cut", 15)
    file.write_bytes(TIDES.read_bytes())
    assert ingest(service, file).records == 1


def test_a_last_line_without_a_newline_is_a_record_if_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "tide-tables.jsonl"
    file.write_bytes(TIDES.read_bytes().rstrip(b"\n"))
    service = ImportService()
    report = ingest(service, file)
    assert (report.records, report.dead_letters) == (16, 0)


def test_a_packed_file_that_is_cut_gives_what_it_held_and_says_so(tmp_path: Path) -> None:
    sources = ({"type": "user", "uuid": str(n), "sessionId": "s", "pad": str(n) * 400} for n in range(9000))
    many = b"".join(json.dumps(source).encode() + b"\n" for source in sources)
    packed = tmp_path / "long.jsonl.gz"
    packed.write_bytes(gzip.compress(many)[:-200])
    service = ImportService()
    report = ingest(service, packed, TIDES)
    assert [failure.reason for failure in report.failures] == ["the gzip file ends early"]
    assert report.records > 16 + 1000
    packed.write_bytes(gzip.compress(many))
    assert ingest(service, packed, check=True).ok
    assert max(map(len, map(indices, service.logs.values()))) == 9000


def test_a_source_that_was_rewritten_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tide-tables.jsonl"
    lines = TIDES.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:8]))
    service = ImportService()
    ingest(service, file)
    before = service.snapshot()
    file.write_bytes(b"".join([*lines[:7], b'{"type":"summary"}\n', *lines[8:]]))
    assert "record 7 is not the one that was ingested" in ingest(service, file).failures[0].reason
    file.write_bytes(b"".join([*lines[:2], b'{"type":"summary"}\n', *lines[3:]]))
    assert "record 2 is not the one that was ingested" in ingest(service, file).failures[0].reason
    file.write_bytes(b"".join(lines[:4]))
    assert "ends at record 3" in ingest(service, file).failures[0].reason
    assert service.snapshot() == before


def test_an_agents_file_becomes_a_thread_of_its_session(tmp_path: Path) -> None:
    service = ImportService()
    assert ingest(service, TIDES, AGENT, check=True).ok
    log = only_log(service)
    main, child = [event for event in log if event.type == "thread.opened"]
    told = [event for event in log if event.attribute("source_kind") == "claude-code-agent"]
    assert {event.thread_id for event in told} == {child.thread_id}
    assert child.attribute("parent_thread_id") == main.thread_id
    assert child.linked("child") == tuple(event.attribute("child_id") for event in log if event.type == "child.started")
    assert ingest(service, TIDES, AGENT).records == 0


def test_an_agents_file_that_comes_later_joins_its_session_all_the_same() -> None:
    service = ImportService()
    ingest(service, TIDES)
    assert ingest(service, TIDES, AGENT, check=True).records == 4
    assert len(service.logs) == 1


def test_subjects_are_handed_over_and_stand_nowhere_else() -> None:
    service = ImportService()
    ingest(service, FOLDER, subject="mia@example.org")
    assert sorted(str(subject) for subject in set(service.subjects.values())) == [
        "ada_quill_1042",
        "ben_okafor_2210",
        "chiara_lund_3907",
        "dimitri_voss_4471",
        "mia@example.org",
    ]
    for log in service.logs.values():
        for event in log:
            bare = msgspec.json.encode(structs.replace(event, content=Raw(b"null")))
            assert not any(name.encode() in bare for name in set(service.subjects.values()) if name)


def test_a_session_is_a_file_though_it_interleaves_two_native_sessions(tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps({"type": "user", "sessionId": str(n % 2), "uuid": str(n)}) + "\n" for n in range(6)))
    service = ImportService()
    assert ingest(service, file, check=True).ok
    assert len(service.logs) == 1


def test_the_same_source_under_two_names_is_taken_once(tmp_path: Path) -> None:
    shutil.copy(TIDES, tmp_path)
    service = ImportService()
    report = ingest(service, TIDES, tmp_path / TIDES.name)
    assert (report.sessions, report.records, len(report.ignored)) == (1, 16, 1)


def test_progress_is_told_and_ends_at_the_totals() -> None:
    told: list[Progress] = []
    report = ingest(ImportService(), FOLDER, on_progress=told.append)
    assert (told[-1].records, told[-1].events, told[-1].bytes) == (report.records, report.events, report.bytes)
    assert told[-1].sessions_done == told[-1].sessions_total == 9
    assert [each.records for each in told] == sorted(each.records for each in told)


def test_a_refusal_names_file_and_code_and_the_other_files_go_in() -> None:
    class Strict(ImportService):
        async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
            if b"berth" in body:
                return Rejected("request.invalid", "draft 0: attributes")
            return await super().append(session_id, key, body, expected_sequence=expected_sequence)

    report = ingest(Strict(), FOLDER)
    assert [failure.reason for failure in report.failures] == ["request.invalid: records from 0 refused: draft 0: attributes"]
    assert report.sessions == 9


def test_a_key_that_may_not_import_ends_the_run() -> None:
    class Closed(ImportService):
        async def append(self, session_id: str, key: str, body: bytes, *, expected_sequence: int) -> Appended | Rejected:
            raise NotPermitted("this key lacks the scope sessions:import", code="auth.scope")

    with pytest.raises(NotPermitted):
        ingest(Closed(), FOLDER)


def tampered(event: LogEvent) -> list[tuple[str, LogEvent]]:
    """What may be wrong with one event of the log, and the word by which the check tells it."""
    wrong: list[tuple[str, LogEvent]] = []
    if event.linked("parent_event"):
        wrong += [
            ("parent", structs.replace(event, links=(LogLink("parent_event", event.event_id),))),
            ("parent", structs.replace(event, links=())),
        ]
    if event.type == "message.appended":
        other = json.dumps({**json.loads(bytes(event.content)), "added": 1}).encode()  # type: ignore[arg-type]
        wrong += [
            ("content", structs.replace(event, content=Raw(other))),
            ("source.recorded", structs.replace(event, type="source.recorded")),
        ]
    if event.type == "tool.returned":
        attributes = {**(event.attributes or {}), "call_id": "call_" + "0" * 32}
        wrong += [("another call", structs.replace(event, attributes=attributes))]
    if event.type == "tool.called":
        wrong += [("calls", structs.replace(event, type="artifact.recorded"))]
    return wrong


def test_the_check_finds_what_was_changed_in_the_log() -> None:
    service = ImportService()
    ingest(service, TIDES)
    log = only_log(service)
    for place, event in enumerate(list(log)):
        for word, other in tampered(event):
            log[place] = other
            report = ingest(service, TIDES, check=True)
            log[place] = event
            if not report.failures:
                assert report.check is not None
                assert any(word in difference for difference in report.check.differences), (word, report.check.differences)
                assert not report.ok


def test_the_check_finds_what_is_missing_doubled_or_out_of_order() -> None:
    service = ImportService()
    ingest(service, TIDES)
    log = only_log(service)
    whole = list(log)
    for wrong in ([*whole[:20], *whole[21:]], [*whole, whole[-1]], [*whole[:9], whole[10], whole[9], *whole[11:]]):
        log[:] = wrong
        report = ingest(service, TIDES, check=True)
        assert not report.ok
    log[:] = whole
    assert ingest(service, TIDES, check=True).ok


def test_the_check_compares_numbers_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "numbers.jsonl"
    file.write_text('{"type":"user","sessionId":"s","n":9007199254740993,"x":1.0,"b":true}\n')
    service = ImportService()
    assert ingest(service, file, check=True).ok
    log = only_log(service)
    for text, same in [
        ('{"b":true,"x":1.0,"n": 9007199254740993,"sessionId":"s","type":"user"}', True),
        ('{"type":"user","sessionId":"s","n":9007199254740992,"x":1.0,"b":true}', False),
        ('{"type":"user","sessionId":"s","n":9007199254740993,"x":1,"b":true}', False),
        ('{"type":"user","sessionId":"s","n":9007199254740993,"x":1.0,"b":1}', False),
    ]:
        log[-1] = structs.replace(log[-1], content=Raw(text.encode()))
        assert ingest(service, file, check=True).ok == same, text


def test_follow_takes_in_what_is_written_and_what_appears(tmp_path: Path) -> None:
    """A writer appends byte by byte and adds an agent's file; the follower ends with everything, and no dead letter."""
    service, undisturbed = ImportService(), ImportService()
    file = tmp_path / "tide-tables.jsonl"
    data = TIDES.read_bytes()
    file.write_bytes(data[:700])

    async def scenario() -> IngestReport:
        stop = asyncio.Event()
        following = asyncio.create_task(run_ingest([tmp_path], service, follow=True, stop=stop, poll_s=0.01))
        with file.open("ab", buffering=0) as handle:
            for start in range(700, len(data), 1500):
                handle.write(data[start : start + 1500])
                await asyncio.sleep(0.03)
        await until(taken(service, 16))
        shutil.copy(AGENT, tmp_path)
        (tmp_path / "late.jsonl").write_bytes(b"")
        await until(taken(service, 20))
        (tmp_path / "late.jsonl").write_bytes(b'{"type":"summary"}\n')
        await until(taken(service, 21))
        stop.set()
        return await following

    report = asyncio.run(scenario())
    assert (report.failures, report.dead_letters, report.records) == ([], 0, 21)
    ingest(undisturbed, file, tmp_path / AGENT.name, tmp_path / "late.jsonl")
    assert service.snapshot() == undisturbed.snapshot()


def test_a_followed_file_that_becomes_shorter_is_told(tmp_path: Path) -> None:
    service = ImportService()
    file = tmp_path / "tide-tables.jsonl"
    shutil.copy(TIDES, file)

    async def scenario() -> IngestReport:
        stop = asyncio.Event()
        following = asyncio.create_task(run_ingest([file], service, follow=True, stop=stop, poll_s=0.01))
        await until(taken(service, 16))
        file.write_bytes(TIDES.read_bytes()[:2000])
        await asyncio.sleep(0.3)
        stop.set()
        return await following

    assert [failure.reason for failure in asyncio.run(scenario()).failures] == ["the file became shorter"]


def test_packed_files_and_trajectories_may_be_followed_and_files_may_go(tmp_path: Path) -> None:
    service = ImportService()
    (tmp_path / "tide-tables.jsonl.gz").write_bytes(gzip.compress(TIDES.read_bytes()))
    shutil.copy(FOLDER / "trajectories.json", tmp_path)
    shutil.copy(FOLDER / "pilot-roster.jsonl", tmp_path)

    async def scenario() -> IngestReport:
        stop = asyncio.Event()
        following = asyncio.create_task(run_ingest([tmp_path], service, follow=True, stop=stop, poll_s=0.01))
        await until(taken(service, 16 + 14 + 51))
        (tmp_path / "pilot-roster.jsonl").unlink()
        await asyncio.sleep(0.3)
        stop.set()
        return await following

    report = asyncio.run(scenario())
    assert [failure.reason for failure in report.failures] == ["the file became shorter"]
    assert (report.sessions, report.records) == (8, 16 + 14 + 51)


def test_an_unreachable_service_is_no_reason_to_lose_the_place_in_a_followed_file(tmp_path: Path) -> None:
    """The service is away while a followed file grows: the next look takes everything in, nothing twice."""
    service = ImportService()
    file = tmp_path / "tide-tables.jsonl"
    lines = TIDES.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:6]))

    async def scenario() -> IngestReport:
        stop = asyncio.Event()
        following = asyncio.create_task(run_ingest([file], service, follow=True, stop=stop, poll_s=0.01, patience_s=0.05))
        await until(taken(service, 6))
        service.away = 10**6
        file.write_bytes(b"".join(lines[:10]))
        await until(lambda: service.away < 10**6 - 3)
        service.away = 0
        file.write_bytes(b"".join(lines))
        await until(taken(service, 16))
        stop.set()
        return await following

    report = asyncio.run(scenario())
    assert report.failures == []
    assert indices(only_log(service)) == list(range(16))
