"""`session-streams`: the command line. Each command reads its options here and calls the module that does the work."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import structlog
import typer

from connectors.cli import administration, bundling, found, keyring, logs, policy, retention, runner, support, trust, usage
from connectors.cli.console import INTERRUPTED, OK, exit_code, remark
from connectors.cli.interrupts import stop_event
from connectors.cli.options import Broker, DataDir, Host, Json, LogFile
from streams.errors import StreamsError

_EPILOG = (
    "Exit status: 0 done; 1 refused, not found, or a difference; 2 wrong command line; 3 the installation does not fit; "
    "4 not reachable or not ready; 5 a process could not go on; 6 and 7 a runner's; 130 stopped with Ctrl-C."
)

app = typer.Typer(
    help="A durable session log for AI agents on Apache Kafka.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(administration.topics_app, name="topics")
app.add_typer(administration.keys_app, name="keys")
app.add_typer(keyring.keyring_app, name="keyring")
app.add_typer(administration.schemas_app, name="schemas")
app.add_typer(policy.policy_app, name="policy")
app.add_typer(support.support_app, name="support")
app.add_typer(bundling.bundle_app, name="bundle")
app.add_typer(trust.trust_app, name="trust")
app.add_typer(retention.erasures_app, name="erasures")
app.add_typer(retention.receipts_app, name="receipts")
app.add_typer(retention.holders_app, name="holders")
app.command()(retention.erase)
app.command()(administration.doctor)
app.command()(administration.rebuild)
app.command()(usage.sessions)
app.command()(usage.tail)
app.command()(usage.export)
app.command()(usage.graph)
app.command()(usage.ingest)
app.command()(runner.runner)


def main() -> None:
    """Runs the command line, and turns what it raises into a line for a person and an exit status."""
    try:
        app()
    except StreamsError as error:
        remark(f"{error.code}: {error.detail}")
        sys.exit(exit_code(error))
    except usage.ClientFailed as failed:
        remark(str(failed))
        sys.exit(failed.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has seen enough (`| head`); the interpreter must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OK)


@app.command()
def up(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Of the gateway; 0 takes a free one. Default: 8700, or a free one where that is taken.")
    ] = None,
    kafka_nodes: Annotated[int, typer.Option(help="Of the local Kafka: 1 or 3.")] = 1,
    taps: Annotated[bool, typer.Option("--taps", help="And a tap: live tables at /tap/. Needs the extra `taps`.")] = False,
    as_json: Json = False,
) -> None:
    """Run everything on this machine: a local Kafka unless --broker, and all roles. Ctrl-C stops."""
    from connectors.cli.local import LocalOptions
    from connectors.cli.up import run_up

    logs.configure()
    settings = found.settings_of_up(data_dir)
    options = LocalOptions(settings=settings, broker=broker, kafka_nodes=kafka_nodes, host=host, port=port, taps=taps)
    raise typer.Exit(run_up(options, as_json=as_json))


@app.command()
def demo(
    taps: Annotated[bool, typer.Option("--taps", help="And a tap, with its tables. Needs the extra `taps`.")] = False,
) -> None:
    """The whole show: a local Kafka and all roles, sample transcripts in, sessions and events out. Leaves nothing behind."""
    from connectors.cli.demo import run_demo

    logs.configure(level=logging.WARNING)
    raise typer.Exit(run_demo(found.settings_of_up(None), taps=taps))


@contextmanager
def _role(name: str, log_file: Path | None) -> Iterator[threading.Event]:
    """Logs, the event that a signal sets, and a last line in the log that says why the role ended where nobody asked."""
    logs.configure(log_file)
    with stop_event() as stop:
        try:
            yield stop
        except StreamsError as error:
            structlog.get_logger(__name__).error("role_ended", role=name, code=error.code, reason=error.detail)
            raise
        except Exception:
            structlog.get_logger(__name__).exception("role_failed", role=name)
            raise


@app.command()
def authority(
    broker: Broker = None,
    data_dir: DataDir = None,
    log_file: LogFile = None,
    crash_at: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one authority: it decides what becomes an event, for its share of the partitions."""
    from connectors.cli.roles import run_authority

    with _role("authority", log_file) as stop:
        run_authority(found.settings(broker=broker, data_dir=data_dir), stop, crash_at=crash_at)


@app.command()
def projector(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the internal HTTP; 0 takes a free one.")] = 0,
    log_file: LogFile = None,
) -> None:
    """Run one projector: tables of its share of the partitions, and the reads of them."""
    from connectors.cli.roles import run_projector

    with _role("projector", log_file) as stop:
        run_projector(found.settings(broker=broker, data_dir=data_dir), host, port, stop)


@app.command()
def graph_projector(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the internal HTTP; 0 takes a free one.")] = 0,
    log_file: LogFile = None,
    crash_at: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one maker of graphs: the execution graphs of its share of the partitions, and the reads of them."""
    from connectors.cli.roles import run_graph

    with _role("graph-projector", log_file) as stop:
        run_graph(found.settings(broker=broker, data_dir=data_dir), host, port, stop, crash_at=crash_at)


@app.command()
def custodian(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the internal HTTP; 0 takes a free one.")] = 0,
    log_file: LogFile = None,
    crash_at: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one custodian: it keeps leases and waits of its share of the partitions to their time, and throws orphaned uploads away."""
    from connectors.cli.roles import run_custodian

    with _role("custodian", log_file) as stop:
        run_custodian(found.settings(broker=broker, data_dir=data_dir), host, port, stop, crash_at=crash_at)


@app.command()
def agents(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the internal HTTP; 0 takes a free one.")] = 0,
    log_file: LogFile = None,
    crash_at: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one keeper of agents' checkpoints: it decides the saves of its share of the partitions, and answers the reads of them."""
    from connectors.cli.roles import run_agents

    with _role("agents", log_file) as stop:
        run_agents(found.settings(broker=broker, data_dir=data_dir), host, port, stop, crash_at=crash_at)


@app.command()
def gateway(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the public HTTP; 0 takes a free one.")] = 8700,
    log_file: LogFile = None,
) -> None:
    """Run one gateway: the REST interface, which seals content and sends commands."""
    from connectors.cli.roles import run_gateway

    with _role("gateway", log_file) as stop:
        run_gateway(found.settings(broker=broker, data_dir=data_dir), host, port, stop)


@app.command()
def tap(
    broker: Broker = None,
    data_dir: DataDir = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the tables' HTTP.")] = 8710,
    log_file: LogFile = None,
) -> None:
    """Run one tap: live tables of sessions, minutes and tools, at /tap/. Needs the extra `taps`."""
    from connectors.cli.taps import run_tap

    with _role("tap", log_file) as stop:
        run_tap(found.settings(broker=broker, data_dir=data_dir), host, port, stop)
