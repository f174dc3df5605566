"""Commands of retention: `erase`, `erasures`, `receipts`. They talk to a gateway, with a key; `receipts` to nobody."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from connectors.cli.console import OK
from connectors.cli.options import ApiKey, DataDir, Json, Url
from connectors.cli.usage import client_of

# Bodies import what they need: every command starts in a fifth of a second, whatever the others bring along.

erasures_app = typer.Typer(help="How erasures go.", no_args_is_help=True, rich_markup_mode=None)
Receipts = Annotated[Path | None, typer.Option("--receipt", metavar="FILE", help="Write the signed receipts there, one a line.")]


def erase(
    subject: Annotated[str | None, typer.Option(help="A person, all over the workspace: your own id, or subj_...")] = None,
    session: Annotated[str | None, typer.Option(help="One session: sess_...")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is complete, showing who is awaited.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer; it goes on. Status 4.")] = None,
    receipt: Receipts = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Erase a person or a session: what is sealed for it opens nowhere any more, and nobody can undo it. The same again is safe."""
    from connectors.cli import erasing

    scope: Literal["subject", "session"] = "subject" if subject is not None else "session"
    target = subject if session is None else session
    if target is None or (subject is not None and session is not None):
        raise typer.BadParameter("either one or the other", param_hint="--subject, --session")
    with client_of(url, api_key, data_dir) as client:
        erasing.erase(client, scope, target, wait=wait, timeout_s=timeout, receipts=receipt, as_json=as_json)
    raise typer.Exit(OK)


@erasures_app.command("show")
def erasures_show(
    erasure_id: Annotated[str, typer.Argument(help="ers_..., as `erase` told it.")],
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is complete.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer. Status 4.")] = None,
    receipt: Receipts = None,
    url: Url = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show one: how far it is, what was removed, and who has not confirmed yet."""
    from connectors.cli import erasing

    with client_of(url, api_key, data_dir) as client:
        found = erasing.waited_for(client, erasure_id, timeout_s=timeout, quiet=as_json) if wait else client.erasure(erasure_id)
    if receipt is not None:
        erasing.keep_receipts(found, receipt)
    erasing.show(found, as_json=as_json)
