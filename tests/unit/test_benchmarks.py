"""The bench counts right: statistics, ratios, the file it writes, the commands it sends, the flame graph it reads back."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from benchmarks import checkpoints, flames, httpload, measures, results, snapshots, traffic, workers
from benchmarks.bench import Options
from benchmarks.results import Result
from benchmarks.serving import content_chars_of
from streams.log import record
from streams.session.events import CheckpointAttributes
from streams.session.ids import derive_event_id, is_id

FIRST = [
    Result(name="raw_consume_records_per_s", value=200_000, unit="records/s"),
    Result(name="authority_eos_events_per_s", value=20_000, unit="events/s", ratios={"raw_consume": 0.1}, details={"rss_max_mb": 200}),
]
SECOND = [
    Result(name="raw_consume_records_per_s", value=300_000, unit="records/s"),
    Result(name="authority_eos_events_per_s", value=60_000, unit="events/s", ratios={"raw_consume": 0.2}, details={"rss_max_mb": 220}),
]
THIRD = [
    Result(name="raw_consume_records_per_s", value=100_000, unit="records/s"),
    Result(name="authority_eos_events_per_s", value=30_000, unit="events/s", ratios={"raw_consume": 0.3}, details={"rss_max_mb": 210}),
]


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert results.percentile(values, 50) == 50
    assert results.percentile(values, 99) == 99
    assert results.percentile(values, 100) == 100
    assert results.percentile([7.0], 99) == 7
    with pytest.raises(ValueError, match="no values"):
        results.percentile([], 50)


def test_runs_become_a_median_and_a_range() -> None:
    raw, authority = results.summarise([FIRST, SECOND, THIRD])
    assert (raw.name, raw.value, raw.values) == ("raw_consume_records_per_s", 200_000, (200_000, 300_000, 100_000))
    assert authority.value == 30_000


def test_a_ratio_is_taken_within_a_run_and_not_between_medians() -> None:
    authority = results.summarise([FIRST, SECOND, THIRD])[1]
    assert authority.ratios == {"raw_consume": 0.2}  # 30,000 over 200,000 would be 0.15


def test_what_was_not_measured_is_in_no_ratio() -> None:
    assert results.ratios(3.0, R=1.5, authority=None, raw_produce=0.0) == {"R": 2.0}


def test_a_name_that_only_some_runs_have_is_told_from_those() -> None:
    assert [(each.name, len(each.values)) for each in results.summarise([FIRST, FIRST[:1]])] == [
        ("raw_consume_records_per_s", 2),
        ("authority_eos_events_per_s", 1),
    ]


def test_the_file_holds_results_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    results.write(path, results.summarise([FIRST, SECOND, THIRD]))
    written = json.loads(path.read_text())
    assert list(written) == ["results"]
    assert written["results"][1] == {
        "name": "authority_eos_events_per_s",
        "value": 30_000,
        "unit": "events/s",
        "runs": 3,
        "min": 20_000,
        "max": 60_000,
        "ratio_to_raw_consume": 0.2,
        "rss_max_mb": 210,
    }


def test_every_figure_stands_in_the_table_with_its_range_and_its_ratios() -> None:
    lines = results.table(results.summarise([FIRST, SECOND])).splitlines()
    assert lines[1].split() == ["raw_consume_records_per_s", "250,000", "200,000", "..", "300,000", "records/s"]
    assert lines[2].split() == ["authority_eos_events_per_s", "40,000", "20,000", "..", "60,000", "events/s", "0.15", "x", "raw_consume"]
    assert lines[3].split() == ["rss_max_mb", "210"]


def test_what_is_chosen_brings_what_it_is_compared_with() -> None:
    assert measures.chosen([]) == list(measures.MEASURES)
    assert measures.chosen(["append"]) == ["limits", "append"]
    assert measures.chosen(["reads"]) == ["reads"]
    assert measures.chosen(["claims", "checkpoints", "snapshots"]) == ["claims", "checkpoints", "snapshots"]
    assert measures.chosen(["history"]) == ["limits", "history"]
    assert measures.chosen(["batch", "restore"]) == ["limits", "authority", "restore", "batch"]
    with pytest.raises(KeyError):
        measures.chosen(["appends"])


@pytest.mark.parametrize("events", [1, 10])
def test_commands_made_by_exchanging_identifiers_are_commands_of_their_own(events: int) -> None:
    sessions = traffic.new_sessions(3)
    made = list(traffic.commands_of(sessions, traffic.appending(events, 1024), 20))
    commands = [record.decode_command(value) for _, value in made]
    assert len({command.command_id for command in commands}) == 20
    assert {command.session_id for command in commands} <= set(sessions)
    for (key, _), command in zip(made, commands, strict=True):
        assert key == command.session_id.encode()
        assert [draft.event_id for draft in command.drafts] == [derive_event_id(command.command_id, index) for index in range(events)]
        for draft in command.drafts:
            reference = draft.content.key_reference
            assert (draft.session_id, draft.command_id) == (command.session_id, command.command_id)
            assert reference is not None
            assert reference.session_id == command.session_id


def test_sessions_are_created_once_each() -> None:
    sessions = traffic.new_sessions(5)
    commands = [record.decode_command(value) for _, value in traffic.sessions_of(sessions, traffic.creating())]
    assert [command.session_id for command in commands] == sessions
    assert all(is_id(command.command_id, "cmd") for command in commands)


@pytest.mark.parametrize("size", [1024, 4096, 65_536])
def test_an_event_is_as_long_as_was_asked_for(size: int) -> None:
    value = next(iter(traffic.commands_of(traffic.new_sessions(1), traffic.appending(1, size), 1)))[1]
    _, parts = record.decode_command_parts(value)
    event = record.encode_event(
        parts[0].body, sequence=100, command_offset=100_000, command_last=True, accepted_at=1_700_000_000_000_000,
        previous_hash=bytes(32), hash=bytes(32),
    )  # fmt: skip
    assert len(event) == size


def test_an_event_that_is_too_short_for_its_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        traffic.appending(1, 100)


def test_content_sent_over_http_fills_an_event_too() -> None:
    """Text compresses by chance: near enough is within a few bytes."""
    assert 600 < content_chars_of(1024) < 1024


def test_requests_are_whole_and_each_has_a_key_of_its_own() -> None:
    task = httpload.Task(
        kind="batch", host="127.0.0.1", port=1, key="sks_x", connections=1, sessions=["sess_" + "0" * 32], content_chars=10, lines=3
    )
    make = httpload._maker(task)
    requests = [make() for _ in range(20)]
    assert len({_header(request, "idempotency-key") for request in requests}) == 20
    for request in requests:
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/sessions/sess_00000000000000000000000000000000/events HTTP/1.1\r\n")
        assert _header(request, "content-length") == str(len(body))
        assert [json.loads(line)["type"] for line in body.splitlines()] == ["message.appended"] * 3


def test_what_is_asked_comes_in_turn_each_with_its_report_and_only_changes_with_a_key() -> None:
    asks = [httpload.Ask(path="/v1/a", body="{}", report="run_1;1;task_1;4"), httpload.Ask(path="/v1/b")]
    make = httpload._maker(httpload.Task(kind="ask", host="127.0.0.1", port=1, key="sks_x", connections=1, asks=asks, requests=3))
    change, read, again = make(), make(), make()
    assert change.startswith(b"POST /v1/a HTTP/1.1\r\n")
    assert change.endswith(b"\r\n\r\n{}")
    assert _header(change, "session-streams-report") == "run_1;1;task_1;4"
    assert _header(change, "idempotency-key") != _header(again, "idempotency-key")
    assert read.startswith(b"GET /v1/b HTTP/1.1\r\n")
    assert b"Idempotency-Key" not in read
    assert _header(read, "authorization") == "Bearer sks_x"


def _grant(run_id: str, generation: int = 1) -> str:
    told = {"session_id": "sess_1", "run_id": run_id, "generation": generation, "native_task_id": "task_1", "run_sequence": 3}
    return json.dumps(told)


def test_grants_are_told_with_what_a_report_needs() -> None:
    first, second = workers.held([_grant("run_1"), _grant("run_2")])
    assert (first.report, second.run_id) == ("run_1;1;task_1;3", "run_2")


@pytest.mark.parametrize("answers", [[_grant("run_1"), _grant("run_1")], [_grant("run_1", 2)]])
def test_a_run_that_is_granted_twice_ends_the_measurement(answers: list[str]) -> None:
    with pytest.raises(AssertionError, match="more than once"):
        workers.held(answers)


def test_a_command_that_fills_the_listing_holds_a_hundred_checkpoints_of_one_attempt() -> None:
    held = workers.Held(f"sess_{'1' * 32}", f"run_{'2' * 32}", 1, f"task_{'3' * 32}", 2)
    snapshots = [checkpoints._KEPT_ELSEWHERE] * checkpoints.A_COMMAND
    made = checkpoints._command(held, traffic.WORKSPACE, f"key_{'4' * 32}", f"evt_{'5' * 32}", "6" * 64, snapshots)
    command = record.decode_command(record.encode_command(made))
    assert command.report is not None
    assert (command.report.run_id, command.report.expected_run_sequence) == (held.run_id, 2)
    attributes = [draft.attributes for draft in command.drafts]
    assert len({each.checkpoint_id for each in attributes if isinstance(each, CheckpointAttributes)}) == 100


def test_the_copy_beside_snapshots_leaves_nothing_but_its_source(tmp_path: Path) -> None:
    source = tmp_path / "snapshot"
    source.write_bytes(bytes(3 * 1024 * 1024 + 1))
    assert all(seconds > 0 for seconds in snapshots._copied(source))
    assert list(tmp_path.iterdir()) == [source]


def _header(request: bytes, name: str) -> str:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return next(value for key, _, value in (line.partition(": ") for line in lines) if key.lower() == name)


def test_a_quick_run_measures_everything_in_little() -> None:
    options, quick = Options(), Options().quick()
    assert quick.events < options.events
    assert quick.load_s < options.load_s
    assert quick.event_bytes == options.event_bytes


SVG = "".join(
    f'<g><title>{name} ({width} samples, 1.00%)</title><rect x="0.0000%" y="{row}" width="1%" height="15" fill="#fff" '
    f'fg:x="{start}" fg:w="{width}"/><text x="1%">..</text></g>'
    for name, row, start, width in (
        ("all", 36, 0, 100),
        ("run (loop.py:1)", 52, 0, 90),
        ("serve (web.py:1)", 52, 90, 10),
        ("decide (decide.py:1)", 68, 0, 30),
        ("produce (&lt;module&gt;:1)", 68, 30, 50),
        ("decide (decide.py:1)", 84, 5, 20),
    )
)


def test_a_flame_graph_tells_what_each_function_takes_alone_and_in_all() -> None:
    """A function below itself counts once in all."""
    costs = {cost.name: (cost.own, cost.whole) for cost in flames.costs(flames.frames(SVG))}
    assert costs["run (loop.py:1)"] == (0.1, 0.9)
    assert costs["decide (decide.py:1)"] == (0.3, 0.3)
    assert costs["produce (<module>:1)"] == (0.5, 0.5)
    assert costs["serve (web.py:1)"] == (0.1, 0.1)
    assert costs["all"] == (0.0, 1.0)


def test_a_flame_graph_can_be_told_for_one_thread() -> None:
    costs = {cost.name: (cost.own, cost.whole) for cost in flames.costs(flames.frames(SVG), "run ")}
    assert costs["produce (<module>:1)"] == (50 / 90, 50 / 90)
    assert set(costs) == {"run (loop.py:1)", "decide (decide.py:1)", "produce (<module>:1)"}


def test_the_top_of_a_flame_graph_is_told_most_expensive_first() -> None:
    lines = flames.told(SVG, 2).splitlines()
    assert lines[1].split(maxsplit=2) == ["50.0%", "50.0%", "produce (<module>:1)"]
    assert lines[5].split(maxsplit=2) == ["90.0%", "10.0%", "run (loop.py:1)"]


def test_a_picture_without_frames_is_no_profile() -> None:
    with pytest.raises(ValueError, match="no frames"):
        flames.told("<svg/>", 5)


def test_an_open_loop_goes_on_whatever_is_refused_and_counts_what_was() -> None:
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /healthz"):  # each connection is greeted before the load
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                asked += 1
                line = b"200 OK" if asked % 2 else b"503 Service Unavailable\r\nRetry-After: 1"
                writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % line)
        writer.close()

    async def scenario() -> httpload.Outcome:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            task = httpload.Task(
                kind="append", host="127.0.0.1", port=server.sockets[0].getsockname()[1], key="k", connections=8,
                sessions=["s"], content_chars=10, load_s=0.3, per_s=300,
            )  # fmt: skip
            return await httpload._run(task, lambda: None)

    outcome = asyncio.run(scenario())
    assert outcome.refusal == ""
    assert set(outcome.statuses) == {200, 503}
    assert outcome.refused == outcome.statuses[503]
    assert len(outcome.seconds) == outcome.statuses[200]
