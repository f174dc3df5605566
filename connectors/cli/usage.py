"""Commands for whoever uses a log: ingest, sessions, tail, export, graph. They talk to a gateway, with a key."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from connectors.cli import found
from connectors.cli.console import OK, REFUSED, UNAVAILABLE
from connectors.cli.options import ApiKey, Broker, DataDir, Json, Url

if TYPE_CHECKING:
    from session_streams import Client

_PATIENCE_S: Final = 8.0

# Bodies import what they need: every command starts in a fifth of a second, whatever the others bring along.


class ClientFailed(Exception):
    """What the gateway refused, or that it did not answer, with the exit status for it."""

    def __init__(self, told: str, exit_code: int) -> None:
        super().__init__(told)
        self.exit_code = exit_code


@contextmanager
def client_of(url: str | None, api_key: str | None, data_dir: Path | None) -> "Iterator[Client]":
    """Of the gateway that flags, environment or `up.json` name. What it raises comes out as `ClientFailed`."""
    from session_streams import Client, Retries

    gateway = found.gateway(url=url, api_key=api_key, data_dir=data_dir)
    # A person waits: what is only restarting is waited for, what is away is said soon.
    with failures_told(gateway.url), Client(gateway.url, gateway.api_key, retries=Retries(total_s=_PATIENCE_S)) as client:
        yield client


@contextmanager
def failures_told(url: str) -> Iterator[None]:
    """What the client raises within the block comes out as `ClientFailed`."""
    from session_streams import ApiError, ConnectionFailed, ExportChanged, RateLimited, Unavailable

    try:
        yield
    except ConnectionFailed as failed:
        raise ClientFailed(f"{url} does not answer: {failed}", UNAVAILABLE) from failed
    except (RateLimited, Unavailable) as failed:
        raise ClientFailed(f"{failed.code}: {failed.detail}", UNAVAILABLE) from failed
    except ApiError as failed:
        raise ClientFailed(f"{failed.code}: {failed.detail}", REFUSED) from failed
    except ExportChanged as failed:
        raise ClientFailed(str(failed), REFUSED) from failed


def sessions(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, newest first.")] = 50,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List sessions with their counts, newest first."""
    from connectors.cli.reading import show_sessions

    with client_of(url, api_key, data_dir) as client:
        show_sessions(client, limit=limit, as_json=as_json)


def tail(
    session_id: Annotated[str | None, typer.Argument(help="sess_...; default: the newest session.")] = None,
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="So many events from the end.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the session ends or Ctrl-C.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show the last events of a session, opened where this key may."""
    from connectors.cli.reading import newest_session, show_tail

    with client_of(url, api_key, data_dir) as client:
        session = newest_session(client) if session_id is None else client.session(session_id)
        show_tail(client, session, count=count, follow=follow, as_json=as_json)


def export(
    target: Annotated[
        str | None, typer.Argument(metavar="[SESSION|FILE]", help="sess_...; default: the newest session. With --verify also a file.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the export, or a file without any service. Status 1 where it fails.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier run left in FILE.part.")] = False,
    lineage: Annotated[bool, typer.Option("--lineage", help="Of a fork: its ancestors first, each up to where it was forked.")] = False,
    last_hash: Annotated[
        str | None, typer.Option(metavar="HEX", help="The hash that a file has to end with, known from elsewhere.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Write a session with its hash chain to a file that anybody can check, or check one."""
    from connectors.cli import exporting
    from connectors.cli.reading import newest_session
    from streams.session.ids import is_id

    if verify and target is not None and not is_id(target, "sess"):
        verdict = exporting.check_file(target, last_hash=last_hash, lineage=lineage)
        exporting.tell(verdict, as_json=as_json)
        raise typer.Exit(OK if verdict.ok else REFUSED)
    if target is not None and not is_id(target, "sess"):
        raise typer.BadParameter("expected sess_...; a file is checked with --verify", param_hint="SESSION")
    if resume and output is None:
        raise typer.BadParameter("needs --output", param_hint="--resume")
    if resume and lineage:
        raise typer.BadParameter("goes on with the export of one session only", param_hint="--resume")
    checked = None
    with client_of(url, api_key, data_dir) as client:
        session_id = newest_session(client).session_id if target is None else target
        if output is None:
            checked = exporting.export_to_stdout(client, session_id, check=verify, last_hash=last_hash, lineage=lineage)
        else:
            exporting.export_to_file(client, session_id, output, resume=resume, lineage=lineage)
            checked = exporting.check_file(str(output), last_hash=last_hash, lineage=lineage) if verify else None
    if checked is not None:
        exporting.tell(checked, as_json=as_json, aside=output is None)
        raise typer.Exit(OK if checked.ok else REFUSED)


def graph(
    session_id: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="sess_...; default: the newest session.")] = None,
    form: Annotated[Literal["json", "mermaid", "dot", "svg"], typer.Option("--format", help="How it is told or drawn.")] = "json",
    through: Annotated[int | None, typer.Option(min=1, metavar="N", help="As it was at this sequence.")] = None,
    around: Annotated[str | None, typer.Option(metavar="NODE", help="Only what lies around this node (run_..., turn_... ...).")] = None,
    depth: Annotated[int, typer.Option(min=0, max=20, help="So many edges around it.")] = 2,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
) -> None:
    """Show a session's execution graph: Runs, attempts, child work, waits, approvals, effects, and what led to what."""
    from connectors.cli.graphing import GraphOptions, show_graph
    from connectors.cli.reading import newest_session

    with client_of(url, api_key, data_dir) as client:
        named = newest_session(client).session_id if session_id is None else session_id
        show_graph(client, named, GraphOptions(format=form, through=through, around=around, depth=depth), output)


def ingest(
    paths: Annotated[list[str], typer.Argument(help="Files and folders of transcripts and trajectories; - reads standard input.")],
    subject: Annotated[str | None, typer.Option(help="Outside id of the person whom transcripts concern.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Take in what is added, until Ctrl-C.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Afterwards read every session back and compare. Status 1 on a difference.")
    ] = False,
    direct: Annotated[bool, typer.Option("--direct", help="Past the gateway, straight to Kafka; needs the keyring's folder.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    broker: Broker = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Take recorded sessions into the log, each record once however often it is run. Status 1 where a file did not go in."""
    from connectors.cli import logs
    from connectors.cli.ingesting import IngestOptions, tell
    from connectors.cli.ingesting import ingest as run

    logs.configure()
    options = IngestOptions(
        paths=paths,
        gateway=found.gateway(url=url, api_key=api_key, data_dir=data_dir),
        direct=found.settings(broker=broker, data_dir=data_dir) if direct else None,
        subject=subject,
        follow=follow,
        check=check,
    )
    summary = run(options)
    tell(summary, as_json=as_json)
    raise typer.Exit(OK if summary.report.ok else REFUSED)
