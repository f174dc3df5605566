"""`session-streams policy`: what is pinned to sessions of a workspace when they are created. It talks to Kafka, as `keys` does."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from msgspec import Struct, structs

from connectors.cli import found
from connectors.cli.administration import rfc3339, workspace_of
from connectors.cli.console import emit_json, remark
from connectors.cli.options import Broker, DataDir, Json

if TYPE_CHECKING:
    from connectors.edge.policies import WorkspacePolicy

policy_app = typer.Typer(
    help="Policies of workspaces. A change holds for sessions created after it.", no_args_is_help=True, rich_markup_mode=None
)

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
Workspace = Annotated[str | None, typer.Option(help="ws_...; default: that of up.json.")]


class _PolicyRow(Struct, frozen=True, kw_only=True):
    """`source` is `installation` where the workspace has no policy of its own."""

    workspace_id: str
    mode: str
    content_window_days: int
    checkpoint_window_s: int
    source: Literal["workspace", "installation"]
    changed_at: str | None


class _PolicySet(_PolicyRow, frozen=True, kw_only=True):
    """`effective_within_s`: until then a gateway may pin what was before."""

    effective_within_s: float


@policy_app.command("set")
def policy_set(
    workspace: Workspace = None,
    mode: Annotated[str | None, typer.Option(help="standard, or zdr: content is dropped before it is stored.")] = None,
    content_days: Annotated[int | None, typer.Option("--content-days", help="Days for which content is kept.")] = None,
    checkpoint_window: Annotated[
        int | None, typer.Option("--checkpoint-window", help="Seconds for which a checkpoint restores something: 30 days at most.")
    ] = None,
    broker: Broker = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Change what is given, and keep the rest. Sessions that are there keep what was pinned to them."""
    from connectors.edge.policies import PolicyAdministration

    settings = found.settings(broker=broker, data_dir=data_dir)
    workspace_id = workspace_of(workspace, settings)
    policy = PolicyAdministration(settings).set(
        workspace_id, mode=mode, content_window_days=content_days, checkpoint_window_s=checkpoint_window
    )
    row = _row(workspace_id, policy)
    if as_json:
        emit_json(_PolicySet(**structs.asdict(row), effective_within_s=settings.lease_s))
    else:
        _print(row)
        remark(f"every gateway follows within {settings.lease_s:g} seconds, or creates no session")


@policy_app.command("show")
def policy_show(workspace: Workspace = None, broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show what is pinned to a session that is created now."""
    from connectors.edge.policies import PolicyAdministration

    settings = found.settings(broker=broker, data_dir=data_dir)
    workspace_id = workspace_of(workspace, settings)
    row = _row(workspace_id, PolicyAdministration(settings).show(workspace_id))
    if as_json:
        emit_json(row)
    else:
        _print(row)


def _row(workspace_id: str, policy: "WorkspacePolicy") -> _PolicyRow:
    return _PolicyRow(
        workspace_id=workspace_id,
        mode=policy.mode,
        content_window_days=policy.content_window_days,
        checkpoint_window_s=policy.checkpoint_window_s,
        source="installation" if policy.changed_at is None else "workspace",
        changed_at=rfc3339(policy.changed_at),
    )


def _print(row: _PolicyRow) -> None:
    since = "of the installation" if row.changed_at is None else f"since {row.changed_at}"
    print(f"{row.workspace_id}  {row.mode}, {since}")
    print(f"    content: {row.content_window_days} days; checkpoints: {in_words(row.checkpoint_window_s)}")


def in_words(seconds: int) -> str:
    """In the largest unit that divides it."""
    unit, name = next((unit, name) for unit, name in _UNITS if seconds % unit == 0)
    count = seconds // unit
    return f"{count:,} {name}{'' if count == 1 else 's'}"
