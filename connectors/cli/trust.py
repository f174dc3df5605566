"""Commands `trust show | rotate | revoke`: the keys that this installation signs with, and those that files are checked by. Asks nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from connectors.cli.console import emit_json, print_table, remark
from connectors.cli.options import DataDir, Json
from streams.errors import Invalid
from streams.settings import Settings

trust_app = typer.Typer(
    help="The keys that this installation signs bundles, receipts and statements with. (Whose observations count: `support trust`.)",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Purpose = Literal["bundles", "receipts", "retention", "qualifications"]
"""As `streams.custody.signers` has it, which takes its time to be imported."""


@trust_app.command("show")
def trust_show(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show every public key: for what, since when, whether revoked. With --json it is the document that others check with."""
    from streams.custody.signers import Signers

    keys = Signers(folder_of(data_dir)).trust()
    if as_json:
        emit_json(keys)
        return
    columns = ["key", "purpose", "created", "retired", "revoked"]
    print_table(columns, [[key.key_id, key.purpose, key.created_at, key.retired_at or "-", key.revoked_at or "-"] for key in keys.keys])


@trust_app.command("rotate")
def trust_rotate(
    purpose: Annotated[Purpose, typer.Argument(help="What the key is for.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Sign with another key from now on. What was signed before stays good."""
    from streams.custody.signers import Signers

    made = Signers(folder_of(data_dir)).rotate(purpose)
    if as_json:
        emit_json(made)
        return
    remark(f"{made.key_id} signs {purpose} since {made.created_at}")


@trust_app.command("revoke")
def trust_revoke(
    key_id: Annotated[str, typer.Argument(help="As `trust show` tells it.")], data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Let a key count no more: nothing that it ever signed is evidence, for whoever has the new document."""
    from streams.custody.signers import Signers

    key = Signers(folder_of(data_dir)).revoke(key_id)
    if as_json:
        emit_json(key)
        return
    remark(f"{key.key_id} ({key.purpose}) is revoked since {key.revoked_at}")


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """What cannot be read comes out as `Invalid`; that nobody takes our own output any more does not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Invalid(f"{error.filename or file}: {error.strerror or error}") from error


def keys_of(trust: Path | None, data_dir: Path | None) -> Path:
    """Raises `Invalid` where none are named and none are here."""
    if trust is not None:
        return trust
    own = folder_of(data_dir) / "trust.json"
    if not own.exists():
        raise Invalid(f"{own} is not there: name the public keys of who signed it with --trust")
    return own


def folder_of(data_dir: Path | None) -> Path:
    """Of the signing keys. Nobody is asked for it, no schema registry either."""
    given = Settings.from_environment()
    return (given if data_dir is None else replace(given, data_dir=data_dir)).signers_path
