"""Appends over HTTP, until each is acknowledged: committed, fenced, and readable at the position of the answer.

`single`: one event a request, a fixed number of callers, each waiting for its answer. `batches`: NDJSON of 500 events.
Sessions are drawn at random from a thousand, so that callers seldom meet in one.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import limits
from benchmarks.authority import HEADLINE
from benchmarks.bench import MB, Bench
from benchmarks.httpload import Task
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Loaded, content_chars_of, running

_CALLERS: Final = (1, 16, 64, 256)
_WARMING: Final = (16, 1, 16)
_OVERLOADED: Final = 4
_OVERLOAD_CONNECTIONS: Final = 4096
_OVERLOAD_PARTS: Final = 3
_OVERLOAD_WARMING: Final = 2
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

    Four times as many requests a second as 256 callers in a closed loop get through, in an open loop. A refusal that does not
    say when to come again ends the measurement.
    """
    options = bench.options
    chars = content_chars_of(options.event_bytes)
    with running(bench) as installation:
        sessions = installation.create_sessions(min(SESSIONS, options.sessions))
        for _ in range(_OVERLOAD_WARMING):
            installation.run("append", _CALLERS[-1], sessions, content_chars=chars)
        sustained = installation.run("append", _CALLERS[-1], sessions, content_chars=chars).per_s
        memory = {"rss_before_mb": installation.rss("gateway") / MB}
        parts: list[Loaded] = []
        for part in range(1, _OVERLOAD_PARTS + 1):
            task = Task(
                **installation.gateway(), kind="append", connections=_OVERLOAD_CONNECTIONS, sessions=sessions, content_chars=chars,
                warm_s=options.warm_s / 4, load_s=options.load_s / 2, per_s=_OVERLOADED * sustained,
            )  # fmt: skip
            parts.append(installation.load(task))
            memory[f"rss_{part}_mb"] = installation.rss("gateway") / MB
        outcomes = [part.outcome for part in parts]
        seconds, late = ([each for outcome in outcomes for each in getattr(outcome, name)] for name in ("seconds", "late"))
        wall_s = sum(outcome.wall_s for outcome in outcomes)
        refused, unsent = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("refused", "unsent"))
        p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
        details = {
            "sustained_per_s": sustained,
            "asked_per_s": _OVERLOADED * sustained,
            "sent_per_s": len(late) / wall_s,
            "refused_share": refused / max(1, refused + len(seconds)),
            "unsent_share": unsent / max(1, unsent + len(late)),
            "client_late_p50_ms": percentile(late, 50) * 1000,
            "client_late_p99_ms": percentile(late, 99) * 1000,
            **memory,
        }
        cores = {name: sum(part.cores[name] * part.outcome.wall_s for part in parts) / wall_s for name in parts[0].cores}
        yield Result(name="overload_p50_ms", value=p50, unit="ms")
        yield Result(name="overload_p99_ms", value=p99, unit="ms", ratios=ratios(p99, p50=p50))
        accepted = len(seconds) / wall_s
        yield Result(
            name="overload_accepted_per_s", value=accepted, unit="requests/s",
            ratios=ratios(accepted, sustained=sustained), details={**details, **cores},
        )  # fmt: skip
