"""Command of a worker: it executes a recorded transcript as if live. It talks to a gateway, with a key, and to a provider."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from connectors.cli import found
from connectors.cli.options import ApiKey, DataDir, Json, Url
from connectors.cli.usage import failures_told


def runner(
    transcript: Annotated[Path, typer.Argument(help="A recorded session, as Claude Code writes it; packed or not.")],
    workspace: Annotated[
        Path, typer.Option(metavar="DIR", help="Where it works: a folder of its own, which it empties. One with other files is refused.")
    ],
    provider: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Who performs actions, each once under its key; `python -m connectors.runner.provider` starts one for trials.",
        ),
    ],
    session: Annotated[str | None, typer.Option(metavar="SESS", help="Of the Run to work on, with --run.")] = None,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="The Run to work on; else any of --lane.")] = None,
    lane: Annotated[str, typer.Option(help="Whose Runs to take, and where --start opens one.")] = "transcripts",
    start: Annotated[bool, typer.Option("--start", help="Open a session and a Run for the transcript first.")] = False,
    approve: Annotated[bool, typer.Option("--approve", help="Grant what is asked and answer what waits, as a person would.")] = False,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many steps of it; the same for each worker of a Run.")] = 10_000,
    lease_ms: Annotated[int, typer.Option(min=1_000, max=3_600_000, help="Milliseconds.")] = 10_000,
    snapshot_every: Annotated[int, typer.Option(min=1, help="Steps between two checkpoints.")] = 10,
    continuation: Annotated[
        Literal["native", "log"], typer.Option(help="What a checkpoint keeps of the harness beside its files.")
    ] = "native",
    replace: Annotated[bool, typer.Option(help="Take the place of an attempt that was ready, where the evidence allows it.")] = True,
    patience_s: Annotated[float, typer.Option(min=0, help="Seconds to try for a Run.")] = 30.0,
    forgetful_provider: Annotated[bool, typer.Option("--forgetful-provider", help="The provider has no identities to ask for.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    die_at: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Work on one Run as a recorded transcript has it: report, write files, act at a provider, ask, wait, leave checkpoints.

    Killed, another one goes on where it ended, here or elsewhere (--session, --run). The place of an attempt that was ready is taken
    on evidence only: docs/recovery.md says how an installation gets it. Status 6: another worker has the Run; 7: nobody can tell
    whether a provider acted, until the effect is reconciled.
    """
    from connectors.cli.running import RunnerOptions
    from connectors.cli.running import run as work
    from connectors.runner.worker import Options, Target

    if (session is None) != (run is None) or (start and run is not None):
        raise typer.BadParameter("--session and --run come together, and not with --start", param_hint="--run")
    if urlsplit(provider).scheme not in ("http", "https") or not urlsplit(provider).netloc:
        raise typer.BadParameter("expected http://HOST:PORT", param_hint="--provider")
    if approve and not start and run is None:
        raise typer.BadParameter("needs --run or --start: somebody has to know the session", param_hint="--approve")
    gateway = found.gateway(url=url, api_key=api_key, data_dir=data_dir)
    if urlsplit(provider).netloc == urlsplit(gateway.url).netloc:
        raise typer.BadParameter("is the gateway, which performs nothing", param_hint="--provider")
    options = RunnerOptions(
        transcript=transcript,
        workspace=workspace,
        gateway=gateway,
        provider=provider,
        target=Target(session, run) if session is not None and run is not None else None,
        lane=lane,
        start=start,
        approve=approve,
        steps_max=steps,
        forgetful_provider=forgetful_provider,
        worker=Options(
            lease_ms=lease_ms, snapshot_every=snapshot_every, native=continuation == "native", replaces=replace, patience_s=patience_s
        ),
        die_at=die_at,
        as_json=as_json,
    )
    with failures_told(options.gateway.url):
        raise typer.Exit(work(options))
