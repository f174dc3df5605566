"""Commands of evidence: `bundle create | verify | show`, `trust show | rotate | revoke`. What checks asks nobody."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from connectors.cli import found
from connectors.cli.console import OK, REFUSED, emit_json, print_table, remark
from connectors.cli.options import ApiKey, DataDir, Json, Url
from connectors.cli.usage import client_of

bundle_app = typer.Typer(help="A whole session as one signed file.", no_args_is_help=True, rich_markup_mode=None)
trust_app = typer.Typer(help="The keys that this installation signs with.", no_args_is_help=True, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="As `bundle create` wrote it.")]
Trust = Annotated[Path | None, typer.Option(metavar="FILE", help="Public keys of who signed it. Default: those of the data folder.")]
Purpose = Literal["bundles", "receipts", "retention", "qualifications"]


@bundle_app.command("create")
def bundle_create(
    session_id: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="sess_...; default: the newest session.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: SESSION.bundle")] = None,
    end_sequence: Annotated[int | None, typer.Option(min=1, metavar="N", help="As it was at this sequence. Default: as it is.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
) -> None:
    """Write a session as one signed file: its events, and by section what they tell of. It holds content in clear."""
    import os

    from connectors.cli.reading import newest_session
    from streams.errors import Misconfigured

    with client_of(url, api_key, data_dir) as client:
        named = newest_session(client).session_id if session_id is None else session_id
        path = output or Path(f"{named}.bundle")
        part = path.with_name(path.name + ".part")
        try:
            with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+b") as file:
                client.bundle(named, file, end_sequence=end_sequence)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise Misconfigured(f"{error.filename or part}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)
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
    from streams.errors import Invalid

    try:
        verdict = verify(file, _keys(trust, data_dir), session_id=session, last_hash=last_hash, end_sequence=end_sequence)
    except OSError as error:
        raise Invalid(f"{error.filename}: {error.strerror}") from error
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
    from streams.errors import Invalid

    if section is not None and section not in SECTIONS:
        raise typer.BadParameter(f"one of {', '.join(SECTIONS)}", param_hint="--section")
    try:
        status = show(str(file), str(_keys(trust, data_dir)), section, as_json=as_json)
    except OSError as error:
        raise Invalid(f"{error.filename}: {error.strerror}") from error
    raise typer.Exit(OK if status == 0 else REFUSED)


@trust_app.command("show")
def trust_show(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show every public key: for what, since when, whether revoked. With --json it is the document that others check with."""
    from streams.custody.signers import Signers

    keys = Signers(found.settings_of_up(data_dir).signers_path).trust()
    if as_json:
        emit_json(keys)
        return
    columns = ["key", "purpose", "created", "retired", "revoked"]
    print_table(columns, [[key.key_id, key.purpose, key.created_at, key.retired_at or "-", key.revoked_at or "-"] for key in keys.keys])


@trust_app.command("rotate")
def trust_rotate(purpose: Annotated[Purpose, typer.Argument(help="What the key is for.")], data_dir: DataDir = None) -> None:
    """Sign with another key from now on. What was signed before stays good."""
    from streams.custody.signers import Signers

    made = Signers(found.settings_of_up(data_dir).signers_path).rotate(purpose)
    remark(f"{made.key_id} signs {purpose} since {made.created_at}")


@trust_app.command("revoke")
def trust_revoke(key_id: Annotated[str, typer.Argument(help="As `trust show` tells it.")], data_dir: DataDir = None) -> None:
    """Let a key count no more: nothing that it ever signed is evidence, for whoever has the new document."""
    from streams.custody.signers import Signers

    key = Signers(found.settings_of_up(data_dir).signers_path).revoke(key_id)
    remark(f"{key.key_id} ({key.purpose}) is revoked since {key.revoked_at}")


def _keys(trust: Path | None, data_dir: Path | None) -> Path:
    return trust or found.settings_of_up(data_dir).signers_path / "trust.json"
