"""Erasures over HTTP: how long one takes until nothing of it can be read anywhere, how many a second, and what appends notice of them
and of what expires.

Four processes keep secrets in memory: two gateways, the authority, the agents. Each person has a session with an event, which both gateways
have opened, and a checkpoint of an agent. Times are those of the erasures themselves, as their receipts have them.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import Event, Thread
from typing import Any, Final

from benchmarks import expiries, limits
from benchmarks.append import SESSIONS
from benchmarks.bench import Bench, Role, every_look
from benchmarks.httpload import Ask, Task
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Installation, Loaded, content_chars_of, running
from benchmarks.workers import decoded
from connectors.cli.ports import free_ports
from session_streams import Client, Retries

_CALLERS: Final = 8
_APPENDING: Final = 16
_PACED_PER_S: Final = 20.0
"""While appends are measured; the least that is aimed at."""
_PATIENCE_S: Final = 120.0
_READY_S: Final = 60.0
_WARM: Final = 5
"""Erasures that are not counted."""


@dataclass(frozen=True)
class _People:
    """Outside ids, of whom everything is in place and in memory; each can be erased once."""

    names: list[str]

    def take(self, count: int) -> list[str]:
        taken, self.names[:count] = self.names[:count], []
        if len(taken) < count:
            raise AssertionError(f"{count} people are wanted, {len(taken)} are left")
        return taken


def measure(bench: Bench) -> Iterator[Result]:
    """erasure_enforced_*, erasures_per_s, append_beside_*, day_expiries_per_s, checkpoint_expiries_per_s."""
    options = bench.options
    changes = {"checkpoint_window_s": expiries.WINDOW_S, "destruction_grace_s": expiries.GRACE_S}
    with running(bench, **changes) as installation, _second_gateway(installation) as second:
        one, many = options.erasures // 4, options.erasures
        beside = int(_PACED_PER_S * (options.load_s + options.warm_s) * 1.5) + _CALLERS
        people = _made(installation, second, _WARM + one + many + beside)
        with Client(installation.up.gateway, installation.up.api_key, retries=Retries(total_s=_READY_S)) as client:
            _one_by_one(client, people.take(_WARM))
            raw = limits.raw_transaction(bench).value
            yield Result(name="erasure_raw_transaction_p50_ms", value=raw, unit="ms")
            yield from _latency(installation, raw, _one_by_one(client, people.take(one)))
            yield _rate(client, people.take(many))
            yield from _beside(bench, installation, client, people)


def _latency(installation: Installation, raw: float, told: Sequence[dict[str, Any]]) -> Iterator[Result]:
    lease = installation.settings.lease_s * 1000
    enforced, destroyed = ([_ms(each, step) for each in told] for step in ("enforced_at", "destroyed_at"))
    p50, p99 = percentile(enforced, 50), percentile(enforced, 99)
    details = {"erasures": float(len(told)), "lease_ms": lease, "destroyed_p50_ms": percentile(destroyed, 50)}
    yield Result(
        name="erasure_enforced_p50_ms", value=p50, unit="ms", details=details, ratios=ratios(p50, R=raw, lease_and_10_R=lease + 10 * raw)
    )
    yield Result(name="erasure_enforced_p99_ms", value=p99, unit="ms", ratios=ratios(p99, R=raw, lease_and_1_s=lease + 1000))


def _rate(client: Client, names: Sequence[str]) -> Result:
    """From the first that is accepted to the last that is enforced."""
    told = _all_at_once(client, names)
    first, last = min(_at(each, "accepted_at") for each in told), max(_at(each, "enforced_at") for each in told)
    accepted = max(_at(each, "accepted_at") for each in told) - first
    details = {"erasures": float(len(told)), "callers": float(_CALLERS), "accepted_per_s": len(told) / accepted}
    return Result(name="erasures_per_s", value=len(told) / (last - first), unit="erasures/s", details=details)


def _beside(bench: Bench, installation: Installation, client: Client, people: _People) -> Iterator[Result]:
    """Appends of 16 callers: alone, while people are erased as fast as is aimed at, and while days and checkpoints expire."""
    options = installation.options
    sessions = installation.create_sessions(min(SESSIONS, options.sessions))
    chars = content_chars_of(options.event_bytes)
    task = Task(
        **installation.gateway(), kind="append", connections=_APPENDING, sessions=sessions, content_chars=chars,
        warm_s=options.warm_s, load_s=options.load_s,
    )  # fmt: skip
    load = partial(installation.load, task)
    load()
    idle = load()
    with _erasing(client, people) as asked:
        busy = load()
    told = _waited_for(client, asked)
    first, last = (choose(_at(each, "accepted_at") for each in told) for choose in (min, max))
    yield from _appended("append_beside_erasures", busy, idle, erasures_per_s=len(told) / (last - first))
    for name, expire in (("day", expiries.days), ("checkpoint", expiries.checkpoints)):
        # Anew each time: a broker that grows warm, and a machine that others use, are two minutes apart not the same.
        idle = load()
        rate, busy = expire(bench, installation, load)
        yield rate
        yield from _appended(f"append_beside_{name}_expiries", busy, idle)


def _appended(name: str, busy: Loaded, idle: Loaded, **details: float) -> Iterator[Result]:
    """p99 and rate; by those of `idle`, right before."""
    (p50, p99), (_, before) = ([percentile(each.outcome.seconds, percent) * 1000 for percent in (50, 99)] for each in (busy, idle))
    yield Result(
        name=f"{name}_p99_ms", value=p99, unit="ms", ratios=ratios(p99, idle=before), details={"p50_ms": p50, "idle_p99_ms": before}
    )
    yield Result(
        name=f"{name}_per_s", value=busy.per_s, unit="requests/s", ratios=ratios(busy.per_s, idle=idle.per_s),
        details={**details, "idle_per_s": idle.per_s, **busy.cores},
    )  # fmt: skip


def _one_by_one(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    return [_waited_for(client, [_asked(client, name)])[0] for name in names]


def _all_at_once(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(_CALLERS) as pool:
        return _waited_for(client, list(pool.map(lambda name: _asked(client, name), names)))


def _asked(client: Client, name: str) -> str:
    return str(client.request("POST", f"/v1/subjects/{name}/erasures").json()["erasure_id"])


def _waited_for(client: Client, erasure_ids: Sequence[str]) -> list[dict[str, Any]]:
    """As each is told once it is enforced."""
    told: list[dict[str, Any]] = []
    looks = every_look(_PATIENCE_S, "erasures are enforced", 0.02)
    for erasure_id in erasure_ids:
        while True:
            found = client.request("GET", f"/v1/erasures/{erasure_id}").json()
            if found["enforced_at"] is not None:
                told.append(found)
                break
            next(looks)
    return told


@contextmanager
def _erasing(client: Client, people: _People) -> Iterator[list[str]]:
    """Somebody every 50 ms, for as long as the block runs; yields the ids."""
    asked, over, failures = list[str](), Event(), list[BaseException]()

    def run() -> None:
        begun = time.monotonic()
        try:
            while not over.wait(max(0.0, begun + len(asked) / _PACED_PER_S - time.monotonic())) and people.names:
                asked.append(_asked(client, *people.take(1)))
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join(_PATIENCE_S)
    if failures:
        raise failures[0]


def _made(installation: Installation, second: str, count: int) -> _People:
    """People of whom both gateways have opened something, and of whom an agent keeps something."""
    names = [f"person-{number}" for number in range(count)]
    created = installation.ask(
        [Ask(path="/v1/sessions", body=f'{{"subject":"{name}","metadata":{{"of":"{name}"}}}}') for name in names], 16
    )
    sessions = [str(each["session_id"]) for each in decoded(created.outcome.bodies)]
    kept = '{{"subject_id":"{}","kind":"task_state","state":{{"step":1}},"ttl_seconds":3600}}'
    installation.ask([Ask(path="/v1/checkpoints", body=kept.format(name)) for name in names], 16)
    pages = [Ask(path=f"/v1/sessions/{session_id}/events?limit=1") for session_id in sessions]
    installation.ask(pages, 16)
    with Client(second, installation.up.api_key, retries=Retries(total_s=_READY_S)) as client, ThreadPoolExecutor(_CALLERS) as pool:
        list(pool.map(lambda ask: client.request("GET", ask.path), pages))
    return _People(names)


@contextmanager
def _second_gateway(installation: Installation) -> Iterator[str]:
    """Its address."""
    (port,) = free_ports(1)
    role = Role(replace(installation.settings, instance="1"), "gateway", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    try:
        with Client(url, installation.up.api_key, retries=Retries(total_s=_READY_S)) as client:
            client.request("GET", "/v1/sessions")
        role.check()
        yield url
    finally:
        role.stop()


def _at(told: dict[str, Any], step: str) -> float:
    """In seconds."""
    return datetime.fromisoformat(told[step]).timestamp()


def _ms(told: dict[str, Any], step: str) -> float:
    """Since it was accepted."""
    return (_at(told, step) - _at(told, "accepted_at")) * 1000
