"""Claims over HTTP: by lane and of named Runs, by 1, 16 and 64 workers, beside single appends of as many callers in the same run.

A claim is one command, so appends are what it is compared with. By lane, each Run is waited for by several workers: how many
commands a grant takes tells how often one came too late. That no Run is granted twice is checked, and a line fails otherwise.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import limits, workers
from benchmarks.append import SESSIONS
from benchmarks.bench import Bench, places, total
from benchmarks.httpload import Ask, Task
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Installation, Loaded, content_chars_of, running
from streams.log.reader import end_offsets
from streams.log.topics import Topics

_SHARES: Final = {1: 8, 16: 2, 64: 1}
"""By workers: of the claims of 64, this part is made. One worker is answered a few hundred times a second."""
_WAIT_MS: Final = 30_000
_SPARE: Final = 8
"""Runs of a lane that are left in the end, a worker: the last ones would be fought for, which is `claim_race`."""
_RACING: Final = 64
_RACED: Final = 16
_RACES: Final = 5
_RACE_WAIT_MS: Final = 1000


def measure(bench: Bench) -> Iterator[Result]:
    """claim_lane_c<workers>_*, claim_named_c<workers>_*, claim_race_commands_per_grant."""
    options = bench.options
    chars = content_chars_of(options.event_bytes)
    with running(bench) as installation:
        sessions = installation.create_sessions(min(SESSIONS, options.sessions))
        for callers in (16, 1):
            _appends(installation, sessions, callers, chars)
        for scene in (_by_lane, _named):
            scene(installation, sessions, "warm", 16, max(16, options.claims // 4))
        raw = limits.raw_transaction(bench).value
        yield Result(name="claim_raw_transaction_p50_ms", value=raw, unit="ms")
        for count, share in _SHARES.items():
            append = _appends(installation, sessions, count, chars)
            claims = max(count, options.claims // share)
            for name, scene in (("lane", _by_lane), ("named", _named)):
                loaded, sent = scene(installation, sessions, f"{name}{count}", count, claims)
                yield from _results(f"claim_{name}_c{count}", loaded, sent, append, raw)
        yield _race(installation, sessions)


def _appends(installation: Installation, sessions: list[str], callers: int, chars: int) -> Loaded:
    options = installation.options
    task = Task(
        **installation.gateway(), kind="append", connections=callers, sessions=sessions, content_chars=chars,
        warm_s=options.warm_s / 2, load_s=options.load_s / 2,
    )  # fmt: skip
    return installation.load(task)


def _results(name: str, loaded: Loaded, sent: int, append: Loaded, raw: float) -> Iterator[Result]:
    p50, p99 = (percentile(loaded.outcome.seconds, percent) * 1000 for percent in (50, 99))
    append_p50, append_p99 = (percentile(append.outcome.seconds, percent) * 1000 for percent in (50, 99))
    yield Result(name=f"{name}_p50_ms", value=p50, unit="ms", ratios=ratios(p50, R=raw, append=append_p50))
    yield Result(name=f"{name}_p99_ms", value=p99, unit="ms", ratios=ratios(p99, R=raw, append=append_p99, p50=p50))
    grants = len(loaded.outcome.seconds)
    details = {"claims": float(grants), "commands_per_grant": sent / grants, "append_per_s": append.per_s, **loaded.cores}
    yield Result(
        name=f"{name}_per_s", value=loaded.per_s, unit="claims/s", ratios=ratios(loaded.per_s, append=append.per_s), details=details
    )


def _by_lane(installation: Installation, sessions: list[str], lane: str, count: int, claims: int) -> tuple[Loaded, int]:
    workers.open_runs(installation, sessions, lane, claims + _SPARE * count)
    return _claimed(installation, [workers.claim_next(lane, _WAIT_MS)] * claims, count)


def _named(installation: Installation, sessions: list[str], lane: str, count: int, claims: int) -> tuple[Loaded, int]:
    runs = workers.open_runs(installation, sessions, f"{lane}-named", claims)
    return _claimed(installation, [workers.claim_of(session_id, run_id) for session_id, run_id in runs], count)


def _claimed(installation: Installation, asks: list[Ask], count: int) -> tuple[Loaded, int]:
    """The load, and how many commands it sent. Raises AssertionError unless each claim was granted a Run of its own."""
    before = _commands(installation)
    loaded = installation.ask(asks, count)
    sent = _commands(installation) - before
    if len(workers.held(loaded.outcome.bodies)) != len(asks):
        raise AssertionError(f"{len(loaded.outcome.bodies)} of {len(asks)} claims were granted")
    return loaded, sent


def _race(installation: Installation, sessions: list[str]) -> Result:
    """Four times as many workers as Runs, all at once: each Run is granted once, and what it costs to find out who is first."""
    sent, walls = 0, 0.0
    for race in range(_RACES):
        lane = f"race{race}"
        workers.open_runs(installation, sessions, lane, _RACED)
        before = _commands(installation)
        loaded = installation.ask([workers.claim_next(lane, _RACE_WAIT_MS)] * _RACING, _RACING)
        sent += _commands(installation) - before
        walls += max(loaded.outcome.seconds)
        if len(workers.held(loaded.outcome.bodies)) != _RACED:
            raise AssertionError(f"{len(loaded.outcome.bodies)} claims were granted {_RACED} Runs")
    grants = _RACES * _RACED
    details = {"racing": _RACING, "runs": _RACED, "races": _RACES, "last_grant_ms": walls / _RACES * 1000}
    return Result(name="claim_race_commands_per_grant", value=sent / grants, unit="commands", details=details)


def _commands(installation: Installation) -> int:
    """How many have ever been sent. Claims alone are under way while they are measured, so the difference is theirs."""
    settings = installation.settings
    return total(end_offsets(settings, places(settings, Topics(settings.topic_prefix).commands), committed=False))
