"""Checkpoints over HTTP: how long one takes to be told of, and how long a listing takes while other sessions have few or many.

The many come to the log straight through Kafka, a hundred in a command, and are decided by the authority like any other.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from benchmarks import limits, traffic, workers
from benchmarks.bench import Bench
from benchmarks.httpload import Ask, Task
from benchmarks.reads import catch_up
from benchmarks.results import Result, percentile, ratios
from benchmarks.serving import Installation, Loaded, running
from benchmarks.workers import Held
from connectors.edge.keys import KeyAdministration, digest_of
from streams.log import record
from streams.log.topics import Topics
from streams.session.commands import Command, Kind, Report
from streams.session.events import CheckpointAttributes, Draft
from streams.session.ids import event_ids

_LISTED: Final = 10
"""Sessions that are listed, and checkpoints of each: one page has them all."""
_PAGE: Final = 20
_OTHERS: Final = 100
"""Sessions that have the others."""
A_COMMAND: Final = 100
_KEPT_ELSEWHERE: Final = CheckpointAttributes(continuation_kind="event_log_rebuild", snapshot_kind="referenced")
_CALLERS: Final = (1, 16)
_CREATING: Final = 400
"""By 16 callers, and as many to warm up."""
_HOUR_US: Final = 3600 * 1_000_000

Boundaries = dict[str, tuple[str, str]]
"""By session: id and hash of its first event, up to which all its checkpoints reach."""


def measure(bench: Bench) -> Iterator[Result]:
    """checkpoint_create_c<callers>_*, checkpoint_read_*, checkpoint_list_at_<others>_*."""
    with running(bench) as installation:
        listed, others = installation.create_sessions(_LISTED), installation.create_sessions(_OTHERS)
        boundaries = boundaries_of(installation, [*listed, *others])
        creating = min(_CREATING, bench.options.checkpoints // 4)
        _created(installation, others, boundaries, creating, 16)
        raw = limits.raw_transaction(bench).value
        yield Result(name="checkpoint_raw_transaction_p50_ms", value=raw, unit="ms")
        alone = _created(installation, listed, boundaries, _LISTED * _LISTED, 1)
        yield from _latency("checkpoint_create_c1", alone, R=raw)
        few = _listing(installation, listed)
        yield from _latency("checkpoint_list_at_few", few)
        yield from _latency("checkpoint_create_c16", _created(installation, others, boundaries, creating, 16), R=raw)
        _fill(bench, installation, others, boundaries)
        many = _listing(installation, listed)
        few_p50, few_p99 = (percentile(few.outcome.seconds, percent) * 1000 for percent in (50, 99))
        yield from _latency("checkpoint_list_at_many", many, few_p50=few_p50, few_p99=few_p99)
        yield from _latency("checkpoint_read", _run(installation, _contents(alone)))


def _latency(name: str, loaded: Loaded, **to: float) -> Iterator[Result]:
    """`to`: what p50 is compared with; `few_p99` goes to p99."""
    p50, p99 = (percentile(loaded.outcome.seconds, percent) * 1000 for percent in (50, 99))
    few_p99 = to.pop("few_p99", None)
    renamed = {"few" if base == "few_p50" else base: value for base, value in to.items()}
    yield Result(
        name=f"{name}_p50_ms", value=p50, unit="ms", ratios=ratios(p50, **renamed), details={"per_s": loaded.per_s, **loaded.cores}
    )
    yield Result(name=f"{name}_p99_ms", value=p99, unit="ms", ratios=ratios(p99, p50=p50, few=few_p99))


def boundaries_of(installation: Installation, sessions: Sequence[str]) -> Boundaries:
    pages = installation.ask([Ask(path=f"/v1/sessions/{session_id}/events?limit=1") for session_id in sessions], 16).outcome.bodies
    events = [page["events"][0] for page in workers.decoded(pages)]
    return {event["session_id"]: (event["event_id"], event["hash"]) for event in events}


def granted(installation: Installation, sessions: Sequence[str], count: int) -> list[Held]:
    """Attempts of `count` new Runs."""
    runs = workers.open_runs(installation, sessions, "checkpoints", count)
    return workers.held(installation.ask([workers.claim_of(*run) for run in runs], 64).outcome.bodies)


def _created(installation: Installation, sessions: Sequence[str], boundaries: Boundaries, count: int, callers: int) -> Loaded:
    """Each by an attempt of its own, which knows where its Run stands."""
    asks = []
    for held in granted(installation, sessions, count):
        body = {
            "through_sequence": 1, "through_event_id": boundaries[held.session_id][0], "continuation": {"kind": "event_log_rebuild"},
            "snapshot": {"provider": "bench", "reference": secrets.token_hex(32)},
        }  # fmt: skip
        path = f"/v1/sessions/{held.session_id}/checkpoints"
        asks.append(Ask(path=path, body=msgspec.json.encode(body).decode(), report=held.report))
    return installation.ask(asks, callers)


def _listing(installation: Installation, listed: Sequence[str]) -> Loaded:
    """One caller. Raises AssertionError where a page has not what its session has."""
    asks = [Ask(path=f"/v1/sessions/{session_id}/checkpoints?limit={_PAGE}") for session_id in listed]
    loaded = _run(installation, asks)
    if any(len(page["checkpoints"]) != _LISTED for page in workers.decoded(loaded.outcome.bodies[-20:])):
        raise AssertionError(f"a page of other than {_LISTED} checkpoints")
    return loaded


def _contents(created: Loaded) -> list[Ask]:
    told = workers.decoded(created.outcome.bodies)
    return [Ask(path=f"/v1/sessions/{each['session_id']}/checkpoints/{each['checkpoint_id']}/content") for each in told]


def _run(installation: Installation, asks: list[Ask]) -> Loaded:
    options = installation.options
    task = Task(
        **installation.gateway(), kind="ask", connections=1, asks=asks, warm_s=options.warm_s, load_s=options.load_s / 2,
    )  # fmt: skip
    return installation.load(task)


def _fill(bench: Bench, installation: Installation, others: list[str], boundaries: Boundaries) -> None:
    """Until other sessions have as many checkpoints as the options say, and the tables have them."""
    begun = time.monotonic()
    attempts = granted(installation, others, bench.options.checkpoints // A_COMMAND)
    tell(installation, attempts, boundaries, dict.fromkeys(others, [_KEPT_ELSEWHERE] * A_COMMAND))
    catch_up(installation, others)
    bench.say(f"{len(attempts) * A_COMMAND} checkpoints of other sessions in {time.monotonic() - begun:.0f} s")
    filled = installation.ask([Ask(path=f"/v1/sessions/{attempts[-1].session_id}/checkpoints?limit=500")], 1).outcome.bodies
    if len(workers.decoded(filled)[0]["checkpoints"]) < A_COMMAND:
        raise AssertionError("the checkpoints of other sessions were refused")


def tell(
    installation: Installation, attempts: Sequence[Held], boundaries: Boundaries, snapshots: Mapping[str, Sequence[CheckpointAttributes]]
) -> None:
    """Through Kafka, in the name of whom the bench asks as: each attempt tells of its session's `snapshots`, in one command."""
    settings, workspace_id = installation.settings, installation.up.workspace_id
    secret_digest = digest_of(installation.up.api_key)
    (principal_id,) = (key.key_id for key in KeyAdministration(settings).list() if key.secret_digest == secret_digest)

    def told(held: Held) -> bytes:
        boundary, made = boundaries[held.session_id], snapshots[held.session_id]
        return record.encode_command(_command(held, workspace_id, principal_id, *boundary, made))

    commands = ((held.session_id.encode(), told(held)) for held in attempts)
    traffic.produce(traffic.sender(settings), Topics(settings.topic_prefix).commands, settings.partitions, commands)


def _command(
    held: Held, workspace_id: str, principal_id: str, event_id: str, event_hash: str, snapshots: Sequence[CheckpointAttributes]
) -> Command:
    """Checkpoints that an attempt tells of at once."""
    command_id, now = f"cmd_{secrets.token_hex(16)}", time.time_ns() // 1000
    identity = event_ids(command_id)
    drafts = tuple(
        Draft(
            event_id=identity(index), session_id=held.session_id, type="checkpoint.created", workspace_id=workspace_id,
            run_id=held.run_id, command_id=command_id,
            attributes=structs.replace(
                snapshot, checkpoint_id=f"ckpt_{secrets.token_hex(16)}", through_sequence=1, through_event_id=event_id,
                through_hash=event_hash,
            ),
        )
        for index, snapshot in enumerate(snapshots)
    )  # fmt: skip
    return Command(
        command_id=command_id, session_id=held.session_id, workspace_id=workspace_id, kind=Kind.APPEND, principal_id=principal_id,
        request_digest=secrets.token_bytes(32), issued_at=now, not_after=now + _HOUR_US,
        report=Report(held.run_id, held.generation, held.native_task_id, held.run_sequence), drafts=drafts,
    )  # fmt: skip
