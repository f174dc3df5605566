"""Starts, stops and harms the nodes of a local Kafka cluster (KRaft, every node broker and controller).

A node keeps its data and its ports from start to start. A folder is formatted once; a folder that is kept remembers its
cluster and is refused with another number of nodes. Nothing outlives the process that started it: see `offspring`.
"""

import json
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from connectors.cli.kafka import jars, properties
from connectors.cli.kafka.probe import brokers_up
from connectors.cli.kafka.properties import Ports
from connectors.cli.offspring import start_child
from connectors.cli.ports import free_ports, is_free
from streams.errors import BrokerUnavailable, Misconfigured

_TAIL_LINES: Final = 25
_STOP_TIMEOUT_S: Final = 15.0
_ROOMY_MB: Final = 512
"""A heap of this size or more is a lone node's; nodes of a cluster on one machine have less."""


@dataclass
class _Node:
    node_id: int
    ports: Ports
    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def log(self) -> Path:
        return self.folder / "kafka.log"

    @property
    def output(self) -> Path:
        """What the Java machine itself prints, before and beside the log."""
        return self.folder / "output.txt"

    @property
    def configuration(self) -> Path:
        return self.folder / "server.properties"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Sends `number` to a running node; nothing to a stopped one."""
        if self.process is not None:
            self.process.send_signal(number)

    def tail(self) -> str:
        """The last lines of log and output, for a person to read why."""
        lines = [line for path in (self.log, self.output) if path.exists() for line in _last_lines(path)]
        return "\n".join(lines) or "(it wrote nothing)"


class LocalKafka:
    """A cluster of `nodes` (1 or 3) on this machine, up and answering once `start` returns."""

    def __init__(self, nodes: Sequence[_Node], folder: Path, *, temporary: bool, heap_mb: int, start_timeout_s: float) -> None:
        self._nodes = {node.node_id: node for node in nodes}
        self._folder = folder
        self._temporary = temporary
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s

    @classmethod
    def start(
        cls,
        nodes: int = 1,
        *,
        data_dir: Path | None = None,
        heap_mb: int | None = None,
        overrides: Mapping[str, str] | None = None,
        start_timeout_s: float = 60.0,
    ) -> "LocalKafka":
        """Formats where needed and starts all nodes; returns when each has joined.

        `data_dir` is kept and found again at the next start; without one a temporary folder goes with `stop`.
        `overrides` are broker settings on top of `properties`. Raises `Misconfigured` (Java, Maven or the folder does
        not fit) or `BrokerUnavailable` with the broker's own last log lines.
        """
        if nodes not in (1, 3):
            raise Misconfigured(f"a local Kafka has 1 or 3 nodes, not {nodes}")
        jars.jars()
        folder = Path(tempfile.mkdtemp(prefix="session-streams-kafka-")) if data_dir is None else data_dir.absolute()
        try:
            cluster_id, ports = _identity(folder, nodes)
            members = [_Node(number, port, folder / f"node-{number}") for number, port in enumerate(ports, 1)]
            cluster = cls(
                members, folder, temporary=data_dir is None, heap_mb=heap_mb or (256 if nodes > 1 else 512), start_timeout_s=start_timeout_s
            )
            for node in members:
                node.folder.mkdir(parents=True, exist_ok=True)
                node.configuration.write_text(properties.render(node.node_id, ports, node.folder / "data", overrides or {}))
            try:
                _format(members, cluster_id)
                cluster.start_nodes(*cluster.node_ids)
            except BaseException:
                cluster._kill_all()
                raise
        except BaseException:
            if data_dir is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.ports.broker}" for node in self._nodes.values())

    @property
    def data_dir(self) -> Path:
        return self._folder

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    @property
    def running(self) -> frozenset[int]:
        """The nodes whose process is alive."""
        return frozenset(node.node_id for node in self._nodes.values() if node.running)

    def pid(self, node_id: int) -> int:
        process = self._nodes[node_id].process
        if process is None:
            raise RuntimeError(f"node {node_id} was never started")
        return process.pid

    def log_tail(self, node_id: int = 1) -> str:
        return self._nodes[node_id].tail()

    def start_nodes(self, *node_ids: int) -> None:
        """Starts stopped nodes on their own data and ports; returns when they have joined. Raises `BrokerUnavailable`."""
        starting = [self._nodes[node_id] for node_id in node_ids]
        for node in starting:
            if node.running:
                raise RuntimeError(f"node {node.node_id} is running")
            node.process = start_child(self._command(node), output=node.output)
        self._wait_until_joined(starting)

    def restart(self, node_id: int = 1) -> None:
        """An orderly stop and start of one node. Not for one of three that would be left without a quorum."""
        self.stop_node(node_id)
        self.start_nodes(node_id)

    def stop_node(self, node_id: int) -> None:
        """An orderly stop of one node."""
        _stop([self._nodes[node_id]])

    def kill_node(self, node_id: int = 1) -> None:
        """kill -9: nothing is flushed or handed over, as in a crash of the process."""
        node = self._nodes[node_id]
        node.signal(signal.SIGKILL)
        if node.process is not None:
            node.process.wait()

    def pause_node(self, node_id: int = 1) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._nodes[node_id].signal(signal.SIGSTOP)

    def resume_node(self, node_id: int = 1) -> None:
        self._nodes[node_id].signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stops all nodes; a temporary folder goes with them. Safe to call twice."""
        if self._temporary:
            self._kill_all()
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            # All at once: stopped one by one, the last of three waits for a quorum that no longer exists.
            _stop(list(self._nodes.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _kill_all(self) -> None:
        for node in self._nodes.values():
            node.signal(signal.SIGKILL)
        for node in self._nodes.values():
            if node.process is not None:
                node.process.wait()

    def _command(self, node: _Node) -> list[str]:
        return [
            *_java(self._heap_mb),
            f"-Dlog4j2.configurationFile={jars.LOG_CONFIGURATION}",
            f"-Dsession.streams.log={node.log}",
            "kafka.Kafka",
            str(node.configuration),
        ]

    def _wait_until_joined(self, starting: Sequence[_Node]) -> None:
        """Until each of `starting` answers and knows all that run; the first that ends instead is told about."""
        deadline = time.monotonic() + self._start_timeout_s
        waiting = list(starting)
        while waiting:
            for node in starting:
                if not node.running:
                    raise BrokerUnavailable(f"Kafka node {node.node_id} ended while starting; its last lines:\n{node.tail()}")
            expected = self.running
            waiting = [node for node in waiting if not expected <= (brokers_up("127.0.0.1", node.ports.broker) or frozenset())]
            if waiting and time.monotonic() > deadline:
                node = waiting[0]
                raise BrokerUnavailable(
                    f"Kafka node {node.node_id} did not join within {self._start_timeout_s:g} s; its last lines:\n{node.tail()}"
                )
            time.sleep(0.05)


def _java(heap_mb: int) -> list[str]:
    """SerialGC: the least memory and threads; more processors gain nothing on a small machine.

    A node with a large heap has it whole from the start, a good part of it for young objects: one that grows from little stands
    still for 11 ms three times a second under appends, which is the slowest hundredth of them.
    """
    heap = [f"-Xms{heap_mb}m", f"-Xmn{heap_mb * 3 // 8}m"] if heap_mb >= _ROOMY_MB else ["-Xms64m"]
    return [str(jars.java()), f"-Xmx{heap_mb}m", *heap, "-XX:+UseSerialGC", "-Xshare:auto", "-cp", f"{jars.jars()}/*"]


def _identity(folder: Path, nodes: int) -> tuple[str, tuple[Ports, ...]]:
    """The cluster id and ports of `folder`: those of before where it was used before, else new ones, written down."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cluster.json"
    if path.exists():
        kept = json.loads(path.read_text())
        if len(kept["ports"]) != nodes:
            raise Misconfigured(
                f"{folder} holds a cluster of {len(kept['ports'])} node(s), not {nodes}: choose that number or another folder"
            )
        cluster_id: str = kept["cluster_id"]
        ports = tuple(Ports(*pair) for pair in kept["ports"])
        if not all(is_free(port) for pair in ports for port in pair):
            ports = _free_ports(nodes)
    else:
        cluster_id, ports = _new_cluster_id(), _free_ports(nodes)
    path.write_text(json.dumps({"cluster_id": cluster_id, "kafka": jars.kafka_version(), "ports": ports}))
    return cluster_id, ports


def _new_cluster_id() -> str:
    """As Kafka makes them: one that begins with a dash would be an option on the formatter's command line."""
    while True:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id


def _free_ports(nodes: int) -> tuple[Ports, ...]:
    chosen = free_ports(2 * nodes)
    return tuple(Ports(*pair) for pair in zip(chosen[::2], chosen[1::2], strict=True))


def _format(nodes: Sequence[_Node], cluster_id: str) -> None:
    """Writes the identity that KRaft wants into each data folder that has none. Raises `BrokerUnavailable` with what it said."""
    formatting = [
        (
            node,
            start_child(
                [*_java(128), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(node.configuration)],
                output=node.output,
            ),
        )
        for node in nodes
        if not (node.folder / "data" / "meta.properties").exists()
    ]
    for node, process in formatting:
        if process.wait() != 0:
            raise BrokerUnavailable(f"the data folder of Kafka node {node.node_id} cannot be formatted:\n{node.tail()}")


def _stop(nodes: Sequence[_Node]) -> None:
    """SIGTERM to all at once, then SIGKILL to whoever is left after the bound."""
    for node in nodes:
        node.signal(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    for node in nodes:
        if node.process is None:
            continue
        try:
            node.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()


def _last_lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16384))
        return file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
