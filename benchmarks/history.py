"""What a long history costs the worker that comes to a Run of its session: the claim, and reading all of it.

Two sessions, of 10 and of 100,000 events whose content can be opened. Their claims alternate, so that both meet the same minutes.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import transfers, workers
from benchmarks.bench import MB, Bench
from benchmarks.httpload import Task
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Installation, content_chars_of, running

_SHORT: Final = 10
_CLAIMS: Final = 100
"""Of each session; half as many to warm up."""
_BATCH: Final = 500


def measure(bench: Bench) -> Iterator[Result]:
    """claim_of_few_events_*, claim_of_many_events_*, conversation_events_per_s."""
    many = bench.options.long_events
    chars = content_chars_of(bench.options.event_bytes)
    with running(bench) as installation:
        short, long = installation.create_sessions(2)
        _append(installation, short, chars, 1, _SHORT)
        _append(installation, long, chars, many // _BATCH, _BATCH)
        _claimed(installation, [short, long], _CLAIMS // 2)
        few, much = _claimed(installation, [short, long], _CLAIMS)
        for name, seconds, events in (("few", few, _SHORT), ("many", much, many)):
            p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
            to = {} if name == "few" else {"few": percentile(few, 50) * 1000}
            yield Result(name=f"claim_of_{name}_events_p50_ms", value=p50, unit="ms", ratios=ratios(p50, **to), details={"events": events})
            to = {} if name == "few" else {"few": percentile(few, 99) * 1000}
            yield Result(name=f"claim_of_{name}_events_p99_ms", value=p99, unit="ms", ratios=ratios(p99, p50=p50, **to))
        yield _conversation(bench, installation, long, many)


def _append(installation: Installation, session_id: str, chars: int, requests: int, lines: int) -> None:
    task = Task(
        **installation.gateway(), kind="batch", connections=min(4, requests), sessions=[session_id], content_chars=chars,
        lines=lines, requests=requests,
    )  # fmt: skip
    installation.load(task)


def _claimed(installation: Installation, sessions: list[str], count: int) -> tuple[list[float], list[float]]:
    """Seconds of `count` claims in each of two sessions, by one caller in turn."""
    runs = workers.open_runs(installation, sessions, "history", len(sessions) * count)
    by_session = [[run for run in runs if run[0] == session_id] for session_id in sessions]
    asks = [workers.claim_of(*run) for pair in zip(*by_session, strict=True) for run in pair]
    outcome = installation.ask(asks, 1).outcome
    grants = workers.held(outcome.bodies)
    if [grant.session_id for grant in grants] != count * sessions:
        raise AssertionError("the claims were not answered in turn")
    return outcome.seconds[::2], outcome.seconds[1::2]


def _conversation(bench: Bench, installation: Installation, session_id: str, events: int) -> Result:
    """Raises AssertionError where the history is not whole."""
    (run,) = workers.open_runs(installation, [session_id], "conversation", 1)
    (attempt,) = workers.held(installation.ask([workers.claim_of(*run)], 1).outcome.bodies)
    path = f"/v1/sessions/{session_id}/runs/{attempt.run_id}/attempts/{attempt.generation}/conversation"
    got = transfers.received(installation, path, keep=True, headers={"session-streams-report": attempt.report})
    told, complete = got.body.count(b'"type":"message.appended"'), b'"complete":true' in got.body[-200:]
    if (told, complete) != (events, True):
        raise AssertionError(f"a conversation of {told} events where {events} were appended, complete: {complete}")
    rate = events / got.seconds
    return Result(
        name="conversation_events_per_s",
        value=rate,
        unit="events/s",
        ratios=ratios(rate, raw_consume=bench.known("raw_consume_records_per_s")),
        details={
            "events": events, "mb_per_s": got.size / MB / got.seconds, "gateway_rss_max_mb": got.rss_mb, "gateway_cores": got.gateway_cores,
        },
    )  # fmt: skip
