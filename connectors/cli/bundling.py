"""Commands `bundle create | verify | show`. What checks asks nobody."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from connectors.cli.console import OK, REFUSED, remark
from connectors.cli.options import ApiKey, DataDir, Json, Url
from connectors.cli.trust import keys_of, reading
from connectors.cli.usage import client_of
from streams.errors import Misconfigured
from streams.session.ids import is_id

bundle_app = typer.Typer(help="A whole session as one signed file.", no_args_is_help=True, rich_markup_mode=None)
File = Annotated[Path, typer.Argument(help="As `bundle create` wrote it.")]
Trust = Annotated[Path | None, typer.Option(metavar="FILE", help="Public keys of who signed it. Default: those of this installation.")]


@bundle_app.command("create")
def bundle_create(
    session_id: Annotated[str | None, typer.Argument(metavar="SESSION", help="sess_...; default: the newest session.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SESSION.bundle")] = None,
    end_sequence: Annotated[int | None, typer.Option(min=1, metavar="N", help="As it was at this sequence. Default: as it is.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
) -> None:
    """Write a session as one signed file: its events, and by section what they tell of. It holds content in clear."""
    from connectors.cli.reading import newest_session

    if session_id is not None and not is_id(session_id, "sess"):
        raise typer.BadParameter("expected sess_...", param_hint="SESSION")
    if output is not None and not output.name:
        raise typer.BadParameter("expected the name of a file", param_hint="--output")
    with client_of(url, api_key, data_dir) as client:
        named = newest_session(client).session_id if session_id is None else session_id
        path = output or Path(f"{named}.bundle")
        with whole_file(path) as file:
            client.bundle(named, file, end_sequence=end_sequence)
    remark(f"{path}: {path.stat().st_size} bytes")


@bundle_app.command("verify")
def bundle_verify(
    file: File,
    trust: Trust = None,
    session: Annotated[str | None, typer.Option(metavar="SESS", help="The session that it has to be of.")] = None,
    last_hash: Annotated[str | None, typer.Option(metavar="HEX", help="The hash that it has to end with, known from elsewhere.")] = None,
    end_sequence: Annotated[int | None, typer.Option(min=1, metavar="N", help="The position that it has to reach.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Check a bundle by nothing but its file and public keys, without any service. Status 1 where it is no evidence."""
    from session_streams.bundle import verify
    from session_streams.bundle.__main__ import tell

    with reading(file):
        verdict = verify(file, keys_of(trust, data_dir), session_id=session, last_hash=last_hash, end_sequence=end_sequence)
    raise typer.Exit(OK if tell(verdict, as_json=as_json) == 0 else REFUSED)


@bundle_app.command("show")
def bundle_show(
    file: File,
    section: Annotated[str | None, typer.Option(help="Its items, one a line: events, actors, work, ...")] = None,
    trust: Trust = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Tell what a bundle holds that verifies: its sections and gaps, or the items of one section."""
    from session_streams.bundle import SECTIONS
    from session_streams.bundle.__main__ import show

    if section is not None and section not in SECTIONS:
        raise typer.BadParameter(f"one of {', '.join(SECTIONS)}", param_hint="--section")
    with reading(file):
        status = show(str(file), str(keys_of(trust, data_dir)), section, as_json=as_json)
    raise typer.Exit(OK if status == 0 else REFUSED)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name once everything is in it, and leaves nothing behind where something is in the way. Only its owner may
    read it. Raises `Misconfigured` where nothing can be written."""
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise Misconfigured(f"{error.filename or part}: {error.strerror}") from error
