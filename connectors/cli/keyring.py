"""`session-streams keyring`: what wraps the secrets. No secret is ever shown."""

from typing import Annotated

import typer
from msgspec import Struct

from connectors.cli import found
from connectors.cli.console import emit_json, remark
from connectors.cli.options import DataDir, Json

keyring_app = typer.Typer(help="The keys that wrap secrets: count them, change them.", no_args_is_help=True, rich_markup_mode=None)
Workspace = Annotated[str | None, typer.Option(help="ws_...; default: every workspace that has a key.")]


class _Rotated(Struct, frozen=True):
    workspace_id: str
    rewrapped: int


class _Counted(Struct, frozen=True):
    """`secrets` by kind, those destroyed among them; `generation` is that of the workspace's key."""

    workspace_id: str
    generation: int
    secrets: dict[str, int]


@keyring_app.command("rotate")
def keyring_rotate(workspace: Workspace = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Give workspaces new keys, wrapped by the key file or KMS key of now. The log never notices; one that is broken off is finished by
    the next."""
    from contextlib import closing

    from streams.keyrings import open_keyring

    with closing(open_keyring(found.settings(data_dir=data_dir))) as keyring:
        rotated = [_Rotated(each, keyring.rotate(each)) for each in ([workspace] if workspace else keyring.workspaces())]
    if as_json:
        emit_json(rotated)
        return
    for each in rotated:
        print(f"{each.workspace_id}  {each.rewrapped:,} secrets wrapped anew")
    if not rotated:
        remark("there is no workspace yet")


@keyring_app.command("status")
def keyring_status(workspace: Workspace = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Count secrets by kind, and say which generation of its key each workspace has."""
    from contextlib import closing

    from streams.keyrings import open_keyring

    counted = []
    with closing(open_keyring(found.settings(data_dir=data_dir))) as keyring:
        for each in [workspace] if workspace else keyring.workspaces():
            counts = keyring.counts(each)
            counted.append(_Counted(each, counts.pop("generation"), counts))
    if as_json:
        emit_json(counted)
        return
    for row in counted:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in row.secrets.items())
        print(f"{row.workspace_id}  key {row.generation}: {kinds or 'no secret yet'}")
    if not counted:
        remark("there is no workspace yet")
