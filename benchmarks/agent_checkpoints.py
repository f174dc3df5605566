"""Agent checkpoints over HTTP: saves until they are committed and readable, and reads by subject and kind, each over a thousand rows.

`grown` does the same while the tables hold few rows and many. The many come to the log straight through Kafka, of another agent, and
are folded by the authority like any other; random bytes stand in the place of their states, which nobody reads.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from benchmarks import httpload, limits, traffic
from benchmarks.bench import Bench, Progress, every_look, places, total
from benchmarks.httpload import Ask, Task
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Installation, Loaded, running
from streams.agents.core import KINDS, AgentScope, Save, Sealed
from streams.agents.ids import mint
from streams.agents.records import AgentCommand, encode_command
from streams.custody.sealing import content_expiry_day
from streams.log.partitioner import partition_of
from streams.log.reader import end_offsets
from streams.log.topics import Topics

ROWS: Final = 1000
_CALLERS: Final = (1, 16, 64, 256)
_GROWN_CALLERS: Final = (1, 16)
_FILLING: Final = 32
_WARMING: Final = (16, 1, 16)
_TTL_S: Final = 86_400
_HOUR_US: Final = 3600 * 1_000_000
_DEADLINE_S: Final = 1200.0


def measure(bench: Bench) -> Iterator[Result]:
    """agent_save_c<callers>_* and agent_get_c<callers>_*: p50, p99 and requests a second; R is measured anew beside them."""
    with running(bench) as installation:
        saves, gets = _asks(bench, ROWS)
        _filled_over_http(installation, saves)
        # As with appends: a new broker compiles itself for a while.
        for callers in _WARMING:
            _run(installation, saves, callers)
        raw = limits.raw_transaction(bench).value
        yield Result(name="agent_raw_transaction_p50_ms", value=raw, unit="ms")
        for name, asks in (("agent_save", saves), ("agent_get", gets)):
            for callers in _CALLERS:
                yield from _told(f"{name}_c{callers}", _run(installation, asks, callers), ROWS, R=raw)


def grown(bench: Bench, steps: Sequence[int]) -> Iterator[Result]:
    """agent_<save or get>_at_<rows>_c<callers>_*: each told in parts of the first step's."""
    with running(bench) as installation:
        saves, gets = _asks(bench, min(ROWS, steps[0]))
        _filled_over_http(installation, saves)
        for callers in _WARMING:
            _run(installation, saves, callers)
        firsts: dict[tuple[str, int], float] = {}
        rows = len(saves)
        for step in steps:
            rows += _filled(bench, installation, step - rows)
            for name, asks in (("save", saves), ("get", gets)):
                for callers in _GROWN_CALLERS:
                    loaded = _run(installation, asks, callers)
                    p50 = percentile(loaded.outcome.seconds, 50) * 1000
                    first = firsts.setdefault((name, callers), p50)
                    yield from _told(f"agent_{name}_at_{step}_c{callers}", loaded, rows, first=first)


def _asks(bench: Bench, rows: int) -> tuple[list[Ask], list[Ask]]:
    """Saves of so many scopes, and reads of the same."""
    saves, gets = [], []
    for number in range(rows):
        subject_id, kind = f"subject {number // len(KINDS)}", KINDS[number % len(KINDS)]
        state = {"step": number, "of": rows, "note": httpload.content_of(bench.options.event_bytes - 64)}
        body = {"subject_id": subject_id, "kind": kind, "state": state, "ttl_seconds": _TTL_S}
        saves.append(Ask(path="/v1/checkpoints", body=msgspec.json.encode(body).decode()))
        gets.append(Ask(path=f"/v1/checkpoints?subject_id={quote(subject_id)}&kind={kind}"))
    return saves, gets


def _filled_over_http(installation: Installation, saves: list[Ask]) -> None:
    """Raises AssertionError where a save was not the first of its scope."""
    statuses = installation.ask(saves, _FILLING).outcome.statuses
    if statuses != {201: len(saves)}:
        raise AssertionError(f"{len(saves)} first saves were answered {statuses}")


def _run(installation: Installation, asks: list[Ask], callers: int) -> Loaded:
    options = installation.options
    task = Task(
        **installation.gateway(), kind="ask", connections=callers, asks=asks, warm_s=options.warm_s / 2, load_s=options.load_s / 2,
    )  # fmt: skip
    return installation.load(task)


def _told(name: str, loaded: Loaded, rows: int, **to: float) -> Iterator[Result]:
    """`to`: what p50 is compared with; R goes to p99 too."""
    p50, p99 = (percentile(loaded.outcome.seconds, percent) * 1000 for percent in (50, 99))
    yield Result(name=f"{name}_p50_ms", value=p50, unit="ms", ratios=ratios(p50, **to), details={"rows": rows})
    yield Result(name=f"{name}_p99_ms", value=p99, unit="ms", ratios=ratios(p99, R=to.get("R"), p50=p50))
    yield Result(name=f"{name}_requests_per_s", value=loaded.per_s, unit="requests/s", details=loaded.cores)


def _filled(bench: Bench, installation: Installation, count: int) -> int:
    """So many rows more, once the authority has folded them."""
    if count <= 0:
        return 0
    begun = time.monotonic()
    settings = installation.settings
    topic = Topics(settings.topic_prefix).agent_commands
    traffic.produce(traffic.sender(settings), topic, settings.partitions, _commands(bench, installation, count))
    end = total(end_offsets(settings, places(settings, topic), committed=False))
    progress = Progress(settings, "agents", topic)
    try:
        for _ in every_look(_DEADLINE_S, "folding the rows", 1.0):
            if progress.committed() >= end:
                break
    finally:
        progress.close()
    bench.say(f"{count} rows more in {time.monotonic() - begun:.0f} s")
    return count


def _commands(bench: Bench, installation: Installation, count: int) -> Iterator[tuple[bytes, bytes]]:
    now = time.time_ns() // 1000
    day = content_expiry_day(now, -(-_TTL_S // 86_400))
    ciphertext = secrets.token_bytes(bench.options.event_bytes)
    partitions, agent_id = installation.settings.partitions, f"actr_{secrets.token_hex(16)}"
    for number in range(count):
        scope = AgentScope(installation.up.workspace_id, f"subj_{secrets.token_hex(16)}", agent_id, KINDS[number % len(KINDS)])
        key = scope.key.encode()
        save = Save(
            scope=scope, checkpoint_id=mint(partition_of(key, partitions)), state_hash=secrets.token_hex(32), ttl_seconds=_TTL_S,
            sealed=Sealed(ciphertext, secrets.token_bytes(32), day, ""), not_after=now + _HOUR_US,
        )  # fmt: skip
        yield key, encode_command(AgentCommand(command_id=f"cmd_{secrets.token_hex(16)}", what=save, issued_at=now))
