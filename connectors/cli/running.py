"""`runner`: one worker at one Run of a recorded transcript, told in a few lines or as JSON."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

from connectors.cli.console import FENCED, INDETERMINATE, OK, REFUSED, UNAVAILABLE, emit_json, remark
from connectors.cli.found import Gateway
from connectors.runner.acting import Provider
from connectors.runner.crash import Crash, DieAt, NoCrash
from connectors.runner.desk import Desk
from connectors.runner.plan import NoTranscript, Plan, make_plan, read_records
from connectors.runner.starting import open_run
from connectors.runner.worker import End, Options, Target, Worker
from connectors.sources.files import SourceUnusable
from session_streams import Client
from streams.errors import Misconfigured

_EXIT: Final = {
    End.COMPLETED: OK, End.OVER: OK, End.FENCED: FENCED, End.INDETERMINATE: INDETERMINATE, End.UNREPLACEABLE: REFUSED, End.OTHER: REFUSED,
    End.NOTHING: UNAVAILABLE,
}  # fmt: skip


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """`target`: None for any Run of the lane, or for a new one with `start`."""

    transcript: Path
    workspace: Path
    gateway: Gateway
    provider: str
    target: Target | None = None
    lane: str
    start: bool = False
    approve: bool = False
    steps_max: int
    forgetful_provider: bool = False
    worker: Options
    die_at: str | None = None
    as_json: bool = False


def plans_of(transcript: Path, steps_max: int) -> Callable[[str], Plan]:
    """Raises `Misconfigured` where the file is no transcript."""
    try:
        records = read_records(transcript)
        make_plan(records, "run_" + "0" * 32, steps_max)
    except (NoTranscript, SourceUnusable, OSError) as error:
        raise Misconfigured(f"{transcript}: {error}") from error
    return lambda run_id: make_plan(records, run_id, steps_max)


def run(options: RunnerOptions) -> int:
    """The exit status. Raises `Misconfigured`, and what the client raises."""
    plan_for = plans_of(options.transcript, options.steps_max)
    crash: Crash = NoCrash() if options.die_at is None else DieAt.parse(options.die_at)
    with Client(options.gateway.url, options.gateway.api_key) as client:
        target = open_run(client, plan_for, lane=options.lane) if options.start else options.target
        if options.start and target is not None:
            remark(f"{target.session_id} {target.run_id}")
        with (
            Provider(options.provider, knows_identities=not options.forgetful_provider) as provider,
            Desk(client, target.session_id) if options.approve and target is not None else nullcontext(),
        ):
            notice = _as_json if options.as_json else _in_words
            worker = Worker(client, plan_for, options.workspace, provider, options.worker, crash=crash, lost=_fenced, notice=notice)
            left = worker.run(target, [options.lane])
    notice("left", to_builtins(left))
    return _EXIT[left.end]


def _as_json(what: str, told: dict[str, Any]) -> None:
    emit_json({"told": what, **told})


def _in_words(what: str, told: dict[str, Any]) -> None:
    print(in_words(what, told), flush=True)


def in_words(what: str, told: dict[str, Any]) -> str:
    """A line for a person."""
    match what:
        case "claimed":
            return f"generation {told['generation']}: {told['mode']}{_in_brackets(told['reason'])}"
        case "begun":
            native = "native state" if told["native"] else "no native state"
            files = f"{told['files']}{_in_brackets(told['unusable'])}"
            return f"  begins at step {told['steps']}; files: {files}, {native}, {told['history']} events of the conversation read"
        case "checkpoint":
            return f"  checkpoint after step {told['step']}, through {told['through_sequence']}"
        case "acted":
            return f"  step {told['step']}: the {told['provider']} acted, settled by {told['settled']}"
        case "refused":
            return f"  refused: {told['code']}{_in_brackets(', '.join(told['missing']))}"
        case _:
            settled = ", ".join(f"{count} by {how}" for how, count in sorted(told["settled"].items()))
            return f"{told['end']}{_in_brackets(told['detail'])}{f'; actions settled: {settled}' if settled else ''}"


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _fenced() -> None:
    """Whatever the worker is in the middle of: nothing more of it is done."""
    remark("fenced: another attempt has the Run, or may have it")
    os._exit(FENCED)
