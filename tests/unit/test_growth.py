"""Growth is told right: the steady part of a pass, parts of a line's first point, what a long run kept; and the feed adds up."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from benchmarks import steady, traffic
from benchmarks.deciding import Pass, Shape
from benchmarks.growth import long, samples
from benchmarks.growth.feeder import Feed
from benchmarks.growth.lines import LINES, Extent, Gathered, Point
from benchmarks.growth.long import LongRun
from benchmarks.growth.samples import Sample
from benchmarks.steady import Look


def test_a_rate_begins_behind_the_first_tenth() -> None:
    """A hundred slow events, then nine hundred, one a millisecond."""
    stamps = [10 * number for number in range(100)] + [1000 + number for number in range(900)]
    assert steady.rate([stamps]) == steady.Rate(1000.0, 0.899)


def test_events_of_the_batch_in_which_the_time_begins_are_not_counted_into_it() -> None:
    """Batches of a hundred every 100 ms are 1,000 events/s, however few they are."""
    for batches in (3, 10, 1000):
        stamps = [100 * batch for batch in range(batches) for _ in range(100)]
        assert steady.rate([stamps]).per_s == 1000.0


def test_several_processes_are_counted_while_all_of_them_work() -> None:
    early, late = list(range(0, 1000)), list(range(500, 1500))
    rate = steady.rate([early, late])
    assert rate.seconds == 0.399  # from the late one's first tenth at 600 to the early one's end at 999
    assert rate.per_s == pytest.approx(2000, rel=0.01)


@pytest.mark.parametrize("workers", [[[5] * 1000], [list(range(100)), list(range(200, 300))]])
def test_a_pass_without_a_steady_part_has_no_rate(workers: list[list[int]]) -> None:
    with pytest.raises(steady.TooShort):
        steady.rate(workers)


def test_a_cost_leaves_out_what_starting_and_warming_up_took() -> None:
    """Two CPU seconds to start and a tenth of the commands; then 10 µs an event, commands of ten, and none once all is decided."""
    looks = [Look(0, 1.5, 0.1), Look(5_000, 2.0, 0.2)]
    looks += [Look(10_000 * number, 2.0 + number, 0.2 + number / 10) for number in range(1, 11)]
    cost = steady.cost(looks, 100_000, 10)
    assert cost is not None
    assert cost.authorities == pytest.approx(10)
    assert cost.broker == pytest.approx(1)


@pytest.mark.parametrize("decided", [[0, 100_000], [0, 0, 50_000, 90_000, 100_000], [0, 100_000, 100_000, 100_000, 100_000]])
def test_too_few_looks_tell_no_cost(decided: list[int]) -> None:
    """The whole of a process, its start included, is no cost of its events."""
    assert steady.cost([Look(each, 1.0 + number, 0.0) for number, each in enumerate(decided)], 100_000, 1) is None


def passed(rate: float, cpu: float | None) -> Pass:
    return Pass(
        events_per_s=rate, steady_s=5.0, cpu_s_per_million=cpu, broker_cpu_s_per_million=None if cpu is None else 2.0, rss_max_mb=200
    )


def test_cores_follow_from_what_an_event_costs_and_how_many_there_are() -> None:
    assert passed(50_000, 18.0).details() == {
        "cpu_s_per_million": 18.0, "cores": pytest.approx(0.9), "broker_cores": pytest.approx(0.1), "steady_s": 5.0, "rss_max_mb": 200,
    }  # fmt: skip
    assert passed(50_000, None).details() == {"steady_s": 5.0, "rss_max_mb": 200}


def test_a_point_is_told_in_parts_of_the_first_of_its_line_run_and_kind() -> None:
    gathered = Gathered(2)
    points = LINES["sizes"].points(Extent())
    told = [
        {result.name: result for result in point.told(run, kind, 300_000, passed(rate / kind, 20.0 * cost), gathered)}
        for point, rate, cost in ((points[0], 40_000, 1), (points[1], 30_000, 2))
        for run in (0, 1)
        for kind in (1, 10)
    ]
    second = told[4]
    assert set(second) == {"sizes_4096_events_per_s", "sizes_4096_cpu_s_per_million", "sizes_4096_cpu_s_per_gb"}
    assert second["sizes_4096_events_per_s"].ratios == {"first": 0.75}
    assert second["sizes_4096_cpu_s_per_million"].ratios == {"first": 2.0}
    assert second["sizes_4096_cpu_s_per_gb"].ratios == {"first": 0.5}
    assert second["sizes_4096_cpu_s_per_gb"].value == pytest.approx(40e-6 / 4096 * 1e9)
    assert told[5]["sizes_4096_of_10_events_per_s"].ratios == {"first": 0.75}
    assert second["sizes_4096_events_per_s"].settings == {
        "sessions": 10_000, "event_bytes": 4096, "partitions": 4, "authorities": 1, "events": 300_000, "events_a_command": 1,
    }  # fmt: skip


def test_the_curves_go_where_they_should() -> None:
    shapes = {name: [point.shape for point in line.points(Extent())] for name, line in LINES.items()}
    assert [shape.sessions for shape in shapes["sessions"]] == [1000, 10_000, 100_000, 1_000_000]
    assert [shape.event_bytes for shape in shapes["sizes"]] == [1024, 4096, 16_384, 65_536]
    assert [shape.partitions for shape in shapes["partitions"]] == [1, 4, 16]
    assert [(shape.authorities, shape.partitions) for shape in shapes["authorities"]] == [(1, 4), (2, 4)]


def test_large_events_are_fewer_in_whole_commands() -> None:
    extent = Extent(events=300_005, bytes=10**9)
    assert extent.events_of(1024) == 300_000
    assert extent.events_of(65_536) == 15_250


def test_a_pass_without_a_cost_tells_its_rate_only() -> None:
    point = Point("sessions", 100, Shape(sessions=100, event_bytes=1024))
    assert [each.name for each in point.told(0, 1, 10, passed(1.0, None), Gathered(1))] == ["sessions_100_events_per_s"]


def test_a_feed_has_the_events_that_were_asked_for() -> None:
    feed = LongRun().feed()
    assert feed.events == 10_000_000
    assert feed.commands == 10_000 + 998_000 + 10_000


def test_commands_are_counted_as_the_events_that_they_became() -> None:
    feed = Feed(sessions=100, appends=50, events_a_command=10, event_bytes=1024, ahead=10)
    assert [feed.events_after(commands) for commands in (0, 100, 101, 150, 151, 250)] == [0, 100, 110, 600, 601, 700]


def sampled(rates: list[float], memory: list[float], every_s: float = 5.0) -> list[Sample]:
    """A run that decides `rates` events/s, one stretch after the other."""
    found = [Sample(at_s=0.0, events=0, authority_s=0.0, broker_s=0.0, feeder_s=0.0, rss_mb=memory[0])]
    for rate, rss in zip(rates, memory, strict=True):
        before = found[-1]
        at_s, events = before.at_s + every_s, before.events + int(rate * every_s)
        found.append(Sample(at_s=at_s, events=events, authority_s=at_s * 0.9, broker_s=at_s * 0.2, feeder_s=at_s * 0.1, rss_mb=rss))
    return found


def test_a_flat_run_is_told_as_flat_whatever_its_start_was_like() -> None:
    seen = sampled([1000.0, 1000.0] + [10_000.0] * 40, [50.0, 100.0] + [200.0] * 40)
    rate, memory = (result for result in long.told(LongRun(), seen))
    assert rate.value == pytest.approx(10_000)
    assert rate.ratios["first_quarter"] == pytest.approx(1)
    assert memory.ratios["first_quarter"] == pytest.approx(1)
    assert rate.details["cores"] == pytest.approx(0.9)
    assert rate.details["feeder_cores"] == pytest.approx(0.1)
    assert rate.details["cpu_s_per_million"] == pytest.approx(90)


def test_a_run_that_slows_down_and_grows_is_not() -> None:
    rates = [10_000.0 - 100 * number for number in range(40)]
    seen = samples.steady(sampled(rates, [200.0 + 10 * number for number in range(40)]))
    assert samples.rate_stayed(seen).ratio < 0.8
    assert samples.rss_stayed(seen).ratio > 1.5


def test_a_run_of_a_few_samples_tells_nothing() -> None:
    with pytest.raises(ValueError, match="too short"):
        samples.steady(sampled([1.0] * 7, [1.0] * 7))


def test_the_plot_shows_both_lines_with_their_units(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawn where `bench` is installed")
    from benchmarks.growth import plot

    path = tmp_path / "build" / "long.svg"
    plot.draw(sampled([60_000.0] * 20, [200.0] * 20), path)
    first = path.read_bytes()
    text = first.decode()
    assert text.startswith("<?xml")
    for name in ("thousand events/s", "memory (RSS), MB", "events decided, millions"):
        assert name in text
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)
    plot.draw(sampled([60_000.0] * 20, [200.0] * 20), path)
    assert path.read_bytes() == first


def test_what_a_full_queue_refuses_is_sent_again_and_what_else_fails_is_told() -> None:
    batch: list[dict[str, Any]] = [{"value": b"a"}, {"value": b"b", "_error": KafkaError(KafkaError._QUEUE_FULL)}]
    assert traffic.refused(batch) == [{"value": b"b"}]
    with pytest.raises(RuntimeError, match="refused"):
        traffic.refused([{"value": b"c", "_error": KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)}])
