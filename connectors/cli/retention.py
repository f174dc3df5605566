"""Commands of retention: `erase`, `erasures`, `receipts`. They talk to a gateway, with a key; `receipts` to nobody."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from connectors.cli.console import OK, REFUSED, emit_json, print_table, remark
from connectors.cli.options import ApiKey, Broker, DataDir, Json, Url
from connectors.cli.usage import client_of

# Bodies import what they need: every command starts in a fifth of a second, whatever the others bring along.

erasures_app = typer.Typer(help="How erasures go.", no_args_is_help=True, rich_markup_mode=None)
receipts_app = typer.Typer(help="Signed receipts of erasures.", no_args_is_help=True, rich_markup_mode=None)
holders_app = typer.Typer(help="Who holds data, and has confirmed what is erased.", no_args_is_help=True, rich_markup_mode=None)
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
    """Erase a person or a session: what is sealed for it opens nowhere any more, and nobody can undo it. Keep the erasure's id, or the
    pseudonym: once it is done, your own id of the person leads nowhere, and who has returned under it is somebody else."""
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


@receipts_app.command("verify")
def receipts_verify(
    file: Annotated[Path, typer.Argument(help="As `erase --receipt` wrote it.")],
    trust: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public keys of who signed them. Default: those of this installation.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Check receipts by nothing but their file and public keys, without any service. Status 1 where one is no evidence."""
    from connectors.cli.trust import keys_of, reading
    from session_streams.receipts import verify

    with reading(file):
        verdict = verify(file, keys_of(trust, data_dir))
    if as_json:
        told = {"ok": verdict.ok, "code": verdict.code, "detail": verdict.detail, "number": verdict.number}
        emit_json({**told, "receipts": [{**receipt.raw, "key_id": receipt.key_id} for receipt in verdict.receipts]})
    else:
        print(verdict, flush=True)
    raise typer.Exit(OK if verdict.ok else REFUSED)


@holders_app.command("list")
def holders_list(broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List who has told what lately: caches of processes, stores of partitions, sinks."""
    from connectors.cli import found
    from connectors.cli.doctor_retention import heard_of

    rows = sorted(heard_of(found.settings(broker=broker, data_dir=data_dir)).values(), key=lambda heard: heard.told.holder_id)
    if as_json:
        for heard in rows:
            emit_json(heard.row)
        return
    columns = ["holder", "kind", "enforced through", "purged through", "heard"]
    table = [[row["holder"], row["kind"], str(row["enforced_through"]), str(row["purged_through"]), row["heard_at"]] for row in
             (heard.row for heard in rows if not heard.told.leaving)]  # fmt: skip
    print_table(columns, table)


@holders_app.command("remove")
def holders_remove(
    holder: Annotated[str, typer.Argument(help="sink/...: what it still holds is no longer this installation's to erase.")],
    broker: Broker = None,
    data_dir: DataDir = None,
) -> None:
    """Take a sink that is gone for good off the list: no erasure waits for it any more."""
    from connectors.cli import found
    from streams.holders.confirmed import remove_sink

    if not holder.startswith("sink/"):
        raise typer.BadParameter("expected sink/...; processes and stores go by themselves", param_hint="HOLDER")
    remove_sink(found.settings(broker=broker, data_dir=data_dir), holder)
    remark(f"{holder} is not waited for any more")
