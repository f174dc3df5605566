"""Appends over HTTP, until each is acknowledged: committed, fenced, and readable at the position of the answer.

`single`: one event a request, a fixed number of callers, each waiting for its answer. `batches`: NDJSON of 500 events.
Sessions are drawn at random from a thousand, so that callers seldom meet in one.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import limits
from benchmarks.authority import HEADLINE
from benchmarks.bench import MB, Bench
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import content_chars_of, running

_CALLERS: Final = (1, 16, 64, 256)
_WARMING: Final = (16, 1, 16)
_OVERLOADED: Final = 4
_OVERLOAD_CONNECTIONS: Final = 2048
_OVERLOAD_PARTS: Final = 3
BATCH: Final = 500
_BATCH_CALLERS: Final = 4
SESSIONS: Final = 1000


def single(bench: Bench) -> Iterator[Result]:
    """append_ack_c<callers>_p50_ms, _p99_ms and append_ack_c<callers>_requests_per_s; R is measured anew beside them."""
    chars = content_chars_of(bench.options.event_bytes)
    with running(bench) as installation:
        sessions = installation.create_sessions(min(SESSIONS, bench.options.sessions))
        # A new broker compiles itself for the best part of a minute, and spends more on that than on the appends meanwhile.
        for callers in _WARMING:
            installation.run("append", callers, sessions, content_chars=chars)
        raw = limits.raw_transaction(bench).value
        yield Result(name="append_raw_transaction_p50_ms", value=raw, unit="ms")
        for callers in _CALLERS:
            loaded = installation.run("append", callers, sessions, content_chars=chars)
            p50, p99 = (percentile(loaded.outcome.seconds, percent) * 1000 for percent in (50, 99))
            name = f"append_ack_c{callers}"
            yield Result(name=f"{name}_p50_ms", value=p50, unit="ms", ratios=ratios(p50, R=raw))
            yield Result(name=f"{name}_p99_ms", value=p99, unit="ms", ratios=ratios(p99, R=raw, p50=p50))
            yield Result(name=f"{name}_requests_per_s", value=loaded.per_s, unit="requests/s", details=loaded.cores)


def batches(bench: Bench) -> Iterator[Result]:
    """batch_append_events_per_s: events acknowledged a second."""
    chars = content_chars_of(bench.options.event_bytes)
    with running(bench) as installation:
        sessions = installation.create_sessions(min(SESSIONS, bench.options.sessions))
        loaded = installation.run("batch", _BATCH_CALLERS, sessions, content_chars=chars, lines=BATCH)
        rate = loaded.per_s * BATCH
        seconds = loaded.outcome.seconds
        yield Result(
            name="batch_append_events_per_s",
            value=rate,
            unit="events/s",
            ratios=ratios(rate, authority=bench.known(HEADLINE), raw_produce=bench.known("raw_produce_records_per_s")),
            details={
                "p50_ms": percentile(seconds, 50) * 1000,
                "p99_ms": percentile(seconds, 99) * 1000,
                **loaded.cores,
                "gateway_rss_max_mb": installation.rss_max("gateway") / MB,
            },
        )


def overload(bench: Bench) -> Iterator[Result]:
    """overload_p50_ms, _p99_ms (of those accepted, from the moment they were due) and overload_accepted_per_s.

    Four times as many requests a second as 256 callers in a closed loop get through, in an open loop.
    """
    chars = content_chars_of(bench.options.event_bytes)
    with running(bench) as installation:
        sessions = installation.create_sessions(min(SESSIONS, bench.options.sessions))
        sustained = installation.run("append", _CALLERS[-1], sessions, content_chars=chars).per_s
        memory = {"rss_before_mb": installation.rss("gateway") / MB}
        seconds: list[float] = []
        refused = unsent = answered = 0
        wall_s = 0.0
        for part in range(1, _OVERLOAD_PARTS + 1):
            loaded = installation.run("append", _OVERLOAD_CONNECTIONS, sessions, content_chars=chars, per_s=_OVERLOADED * sustained)
            outcome = loaded.outcome
            seconds += outcome.seconds
            refused, unsent, wall_s = refused + outcome.refused, unsent + outcome.unsent, wall_s + outcome.wall_s
            answered += sum(outcome.statuses.values())
            memory[f"rss_{part}_mb"] = installation.rss("gateway") / MB
        p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
        details = {"asked_per_s": _OVERLOADED * sustained, "refused_share": refused / max(1, answered), "unsent": unsent, **memory}
        yield Result(name="overload_p50_ms", value=p50, unit="ms")
        yield Result(name="overload_p99_ms", value=p99, unit="ms", ratios=ratios(p99, p50=p50))
        yield Result(
            name="overload_accepted_per_s", value=len(seconds) / wall_s, unit="requests/s",
            ratios=ratios(len(seconds) / wall_s, sustained=sustained), details={**details, **loaded.cores},
        )  # fmt: skip
