"""Commands for whoever runs it: topics, keys, doctor, rebuild. They talk to Kafka and the local folder, not to a gateway."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec import Struct

from connectors.cli import found
from connectors.cli.console import MISCONFIGURED, OK, emit_json, print_table, remark
from connectors.cli.options import Broker, DataDir, Json
from connectors.edge.principal import SCOPES
from streams.clock import now_us
from streams.errors import Misconfigured
from streams.settings import Settings

if TYPE_CHECKING:
    from connectors.edge.keys import ApiKey

# Bodies import what they need: every command starts in a fifth of a second, whatever the others bring along.

topics_app = typer.Typer(help="Declared topics: what would be made, and make it.", no_args_is_help=True, rich_markup_mode=None)
schemas_app = typer.Typer(help="Schemas of this release, in a registry.", no_args_is_help=True, rich_markup_mode=None)
keys_app = typer.Typer(help="API keys. A secret is shown once, when it is made.", no_args_is_help=True, rich_markup_mode=None)


class _TopicRow(Struct, frozen=True, kw_only=True):
    name: str
    key: str
    partitions: int
    replication: int
    config: dict[str, str]
    why: str
    state: Literal["there", "missing", "wrong"]
    found: str = ""


class _KeyRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key without its secret's digest. Times are RFC 3339."""

    key_id: str
    workspace_id: str
    kind: str
    scopes: tuple[str, ...]
    state: str
    created_at: str
    subject_id: str | None = None
    agent_id: str | None = None
    not_before: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None
    api_key: str | None = None


@topics_app.command("plan")
def topics_plan(broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show every declared topic with its settings and reasons, and what the cluster has. Status 3 where they differ."""
    rows = _topic_rows(found.settings(broker=broker, data_dir=data_dir))
    for row in rows:
        if as_json:
            emit_json(row)
            continue
        print(f"{row.name}  {row.state}{f' ({row.found})' if row.found else ''}")
        print(f"    key: {row.key}; partitions: {row.partitions}; replication: {row.replication}. {row.why}")
        print(f"    {', '.join(f'{name}={value}' for name, value in sorted(row.config.items()))}")
    raise typer.Exit(OK if all(row.state == "there" for row in rows) else MISCONFIGURED)


@topics_app.command("apply")
def topics_apply(broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Make the topics that are missing, and check all of them. What exists is never changed."""
    from connectors.registry import verify_numbers
    from streams.log.topics import apply

    settings = found.settings(broker=broker, data_dir=data_dir)
    created = apply(settings)
    verify_numbers(settings)
    if as_json:
        emit_json({"created": created})
    else:
        print("\n".join(f"created {name}" for name in created) or "all topics are there and fit")


def _topic_rows(settings: Settings) -> list[_TopicRow]:
    from streams.log import inspect
    from streams.log.topics import declared

    existing = inspect.topics(settings)
    rows = []
    for spec in declared(settings):
        facts, wanted = existing.get(spec.name), spec.partitions(settings)
        differs = facts is not None and facts.partitions != wanted
        rows.append(
            _TopicRow(
                name=spec.name,
                key=spec.key,
                partitions=wanted,
                replication=settings.replication,
                config=spec.config,
                why=spec.why,
                state="missing" if facts is None else "wrong" if differs else "there",
                found=f"{facts.partitions} partitions" if facts is not None and differs else "",
            )
        )
    return rows


@keys_app.command("create")
def keys_create(
    scope: Annotated[list[str], typer.Option(help=f"What it may do; repeat it: {', '.join(SCOPES)}. `admin` includes all.")],
    workspace: Annotated[str | None, typer.Option(help="ws_...; default: that of up.json.")] = None,
    kind: Annotated[str, typer.Option(help="Of who holds it: service, runner or person.")] = "service",
    subject: Annotated[str | None, typer.Option(help="subj_...: it sees nothing but what concerns this subject.")] = None,
    agent: Annotated[str | None, typer.Option(help="agent_...: keys of one agent share its checkpoints. Default: its own.")] = None,
    expires_in_days: Annotated[float | None, typer.Option(min=0, help="Default: it does not expire.")] = None,
    broker: Broker = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Make a key and show its secret, this once."""
    from connectors.edge.keys import KeyAdministration

    settings = found.settings(broker=broker, data_dir=data_dir)
    workspace = workspace_of(workspace, settings)
    expires_at = None if expires_in_days is None else now_us() + int(expires_in_days * 86_400_000_000)
    key, secret = KeyAdministration(settings).create(workspace, scope, kind=kind, subject_id=subject, agent_id=agent, expires_at=expires_at)
    if as_json:
        emit_json(_key_row(key, secret))
    else:
        remark(f"{key.key_id} of {key.workspace_id}, scopes: {', '.join(key.scopes)}. The secret is not shown again:")
        print(secret)


@keys_app.command("list")
def keys_list(broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """All keys, oldest first, without their secrets."""
    from connectors.edge.keys import KeyAdministration

    rows = [_key_row(key) for key in KeyAdministration(found.settings(broker=broker, data_dir=data_dir)).list()]
    if as_json:
        for row in rows:
            emit_json(row)
    else:
        print_table(
            ["key", "workspace", "kind", "state", "created", "expires", "scopes"],
            [
                [row.key_id, row.workspace_id, row.kind, row.state, row.created_at, row.expires_at or "-", " ".join(row.scopes)]
                for row in rows
            ],
        )


@keys_app.command("revoke")
def keys_revoke(
    key_id: Annotated[str, typer.Argument(help="key_...")], broker: Broker = None, data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Revoke a key: every gateway refuses it as soon as it has followed."""
    from connectors.edge.keys import KeyAdministration

    row = _key_row(KeyAdministration(found.settings(broker=broker, data_dir=data_dir)).revoke(key_id))
    if as_json:
        emit_json(row)
    else:
        print(f"{row.key_id} is revoked since {row.revoked_at}")


def _key_row(key: "ApiKey", secret: str | None = None) -> _KeyRow:
    return _KeyRow(
        key_id=key.key_id,
        workspace_id=key.workspace_id,
        kind=key.principal_kind,
        scopes=key.scopes,
        state=key.state(now_us()).replace("_", " "),
        created_at=rfc3339(key.created_at) or "",
        subject_id=key.subject_id,
        agent_id=key.agent_id,
        not_before=rfc3339(key.not_before),
        expires_at=rfc3339(key.expires_at),
        revoked_at=rfc3339(key.revoked_at),
        api_key=secret,
    )


def workspace_of(given: str | None, settings: Settings) -> str:
    """The one that is named, or that of `up`. Raises `Misconfigured`."""
    if given is not None:
        return given
    up = found.read_up(settings.data_dir)
    if up is None:
        raise Misconfigured(f"no up.json in {settings.data_dir.absolute()} tells the workspace: give --workspace ws_...")
    return up.workspace_id


def rfc3339(at_us: int | None) -> str | None:
    """Whole seconds, UTC."""
    return None if at_us is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_us // 1_000_000))


def doctor(broker: Broker = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Look at brokers, topics, roles, disk, keyring, clock and lag; each finding says what to do. Status 3 if any failed."""
    from connectors.cli.doctor import examine

    failed = False
    for finding in examine(found.settings(broker=broker, data_dir=data_dir)):
        failed |= finding.status == "failed"
        if as_json:
            emit_json(finding)
        else:
            print(f"{finding.status:8} {finding.check}: {finding.found}", flush=True)
            if finding.to_do:
                print(f"{'':8} -> {finding.to_do}", flush=True)
    raise typer.Exit(MISCONFIGURED if failed else OK)


def rebuild(
    graph: Annotated[
        bool, typer.Option("--graph", help="The graphs instead: topic and offsets go too, and all is folded anew from the events.")
    ] = False,
    broker: Broker = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Throw the projector's local stores away, while it is stopped: its next start makes them anew from the topics."""
    from connectors.cli.rebuild import remake_graphs, wipe_stores

    settings = found.settings(broker=broker, data_dir=data_dir)
    role, wiped = ("graph-projector", remake_graphs(settings)) if graph else ("projector", wipe_stores(settings, "projector"))
    if as_json:
        emit_json({"wiped": [str(store) for store in wiped]})
    else:
        print(f"{len(wiped)} stores removed; the {role} makes them anew at its next start")


@schemas_app.command("publish")
def schemas_publish(
    registry: Annotated[str, typer.Option("--registry", help="URL of a Confluent-compatible schema registry.")],
    as_json: Json = False,
) -> None:
    """Register every version of every schema that is missing there. Roles register nothing by running."""
    from connectors.registry import RegistryClient, SubjectNames, publish

    settings = Settings.from_environment()
    client = RegistryClient(registry)
    try:
        published = publish(client, SubjectNames(settings.registry_subjects))
    finally:
        client.close()
    if as_json:
        emit_json([{"subject": one.subject, "version": one.version, "id": one.id} for one in published])
    else:
        print("\n".join(f"{one.subject} v{one.version} has number {one.id}" for one in published))
