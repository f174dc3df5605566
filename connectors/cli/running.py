"""`runner`: one worker at one Run of a recorded transcript, told in a few lines or as JSON."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

from connectors.cli.console import FENCED, INDETERMINATE, OK, REFUSED, UNAVAILABLE, emit_json, remark
from connectors.cli.found import Gateway
from connectors.cli.worker_words import in_words
from connectors.runner.acting import NoProvider, Provider
from connectors.runner.crash import Crash, DieAt, NoCrash
from connectors.runner.desk import Desk
from connectors.runner.plan import NoTranscript, Plan, make_plan, read_records
from connectors.runner.starting import open_run
from connectors.runner.worker import End, Options, Target, Worker
from connectors.runner.workspace import require_usable
from connectors.sources.files import SourceUnusable
from session_streams import Client
from streams.errors import Misconfigured, Retriable

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
    """The exit status. Raises `Misconfigured`, `Retriable` where no provider answers, and what the client raises."""

    def in_lines(what: str, told: dict[str, Any]) -> None:
        print(in_words(what, told, approve=options.approve), flush=True)

    notice = _as_json if options.as_json else in_lines
    plan_for = plans_of(options.transcript, options.steps_max)
    crash: Crash = NoCrash() if options.die_at is None else DieAt.parse(options.die_at)
    require_usable(options.workspace)
    with (
        Provider(options.provider, knows_identities=not options.forgetful_provider) as provider,
        Client(options.gateway.url, options.gateway.api_key) as client,
    ):
        _require(provider, options.provider)
        target = options.target
        if options.start:
            target = open_run(client, plan_for, lane=options.lane)
            notice("started", to_builtins(target))
        with Desk(client, target.session_id) if options.approve and target is not None else nullcontext():
            worker = Worker(client, plan_for, options.workspace, provider, options.worker, crash=crash, lost=_fenced, notice=notice)
            left = worker.run(target, [options.lane])
    notice("left", to_builtins(left))
    return _EXIT[left.end]


def _require(provider: Provider, url: str) -> None:
    """Before a Run is opened or taken that would end in the middle of an action."""
    try:
        provider.require()
    except NoProvider as error:
        hint = "`python -m connectors.runner.provider` starts one for trials"
        raise Retriable(f"--provider {url}: {error}; {hint}", code="runner.provider_away") from error


def _as_json(what: str, told: dict[str, Any]) -> None:
    emit_json({"told": what, **told})


def _fenced() -> None:
    """Whatever the worker is in the middle of: nothing more of it is done."""
    remark("fenced: another attempt has the Run, or may have it")
    os._exit(FENCED)
