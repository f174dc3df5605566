"""Everything on one machine: Kafka (unless one is named), topics, a ready key, and each role as a process of its own.

In order: the lock on the data folder, Kafka, topics, the key, the roles; ready once both groups have taken all their
partitions and the gateway answers (a tap is not waited for: it reads the whole log first). `stop` goes backwards: the
gateway first, so that nothing is accepted that nobody decides, Kafka last. A killed `up` takes its children with it (see
`offspring`).
"""

import fcntl
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Final

import msgspec
from msgspec import Struct

from connectors.cli import found
from connectors.cli.found import Up
from connectors.cli.kafka import LocalKafka
from connectors.cli.ports import free_ports, is_free
from connectors.cli.supervise import Program, Supervisor
from connectors.cli.taps import TAP_PORT, require_taps, tap_url
from connectors.edge.keys import KeyAdministration, digest_of
from streams.errors import BrokerUnavailable, Fatal, Misconfigured, StreamsError
from streams.log import topics
from streams.log.owners import GroupOwners
from streams.log.topics import Topics
from streams.settings import Settings

GATEWAY_PORT: Final = 8700
"""Where people expect the gateway; another free one where this is taken and none was asked for."""
_READY_TIMEOUT_S: Final = 90.0
_BROKER_TIMEOUT_S: Final = 10.0
_LOCAL_SCOPES: Final = ("admin",)


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """`broker` names a cluster to use; without one a local Kafka of `kafka_nodes` runs below the data folder, with `kafka_settings`
    on top of its own."""

    settings: Settings
    broker: str | None = None
    kafka_nodes: int = 1
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int | None = None
    taps: bool = False


class _Kept(Struct, frozen=True, kw_only=True):
    """What a data folder keeps from one `up` to the next: a projector that comes back at its address need not wait."""

    workspace_id: str
    api_key: str
    projector_port: int
    graph_port: int = 0
    custodian_port: int = 0
    agents_port: int = 0


class LocalInstallation:
    """Belongs to one thread, which calls `start`, then `watch` again and again, then `stop`."""

    def __init__(self, options: LocalOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        # The roles run with the same folder whatever their working directory is.
        self._settings = replace(options.settings, data_dir=options.settings.data_dir.absolute())
        self._lock: IO[str] | None = None
        self._kafka: LocalKafka | None = None
        self._kafka_due_s: float | None = None
        self._supervisor: Supervisor | None = None

    @property
    def settings(self) -> Settings:
        """Those of the roles; the cluster's address is known after `start`."""
        return self._settings

    def start(self) -> Up:
        """Returns once everything answers. Raises StreamsError; what was started by then is stopped by `stop`."""
        if self._options.taps:
            require_taps()
        self._take_lock()
        self._start_kafka()
        for name in topics.apply(self._settings, timeout_s=_BROKER_TIMEOUT_S):
            self._say(f"created topic {name}")
        kept = self._kept()
        before = self._members()
        port = self._gateway_port()
        roles = {
            "authority": [],
            "projector": ["--port", str(kept.projector_port)],
            "graph-projector": ["--port", str(kept.graph_port)],
            "custodian": ["--port", str(kept.custodian_port)],
            "agents": ["--port", str(kept.agents_port)],
            "gateway": ["--host", self._options.host, "--port", str(port)],
        }
        tap = self._tap_port() if self._options.taps else None
        if tap is not None:
            roles["tap"] = ["--host", self._options.host, "--port", str(tap)]
        self._supervisor = Supervisor([self._program(role, arguments) for role, arguments in roles.items()], self._say)
        self._supervisor.start()
        url = f"http://{self._options.host}:{port}"
        self._wait_until_ready(url, before)
        up = Up(
            gateway=url,
            broker=self._settings.bootstrap,
            api_key=kept.api_key,
            workspace_id=kept.workspace_id,
            topic_prefix=self._settings.topic_prefix,
            partitions=self._settings.partitions,
            replication=self._settings.replication,
            pid=os.getpid(),
            tap=tap_url(self._options.host, tap) if tap is not None else None,
        )
        found.write_up(self._settings.data_dir, up)
        return up

    def pids(self) -> dict[str, int]:
        return self._supervisor.pids() if self._supervisor is not None else {}

    def watch(self) -> None:
        """One look at all processes; what died is started again."""
        if self._supervisor is not None:
            self._supervisor.watch()
        self._watch_kafka()

    def stop(self) -> None:
        """In order; safe to call whatever was started."""
        if self._lock is None:
            return
        found.remove_up(self._settings.data_dir)
        if self._supervisor is not None:
            self._supervisor.stop()
        if self._kafka is not None:
            self._kafka.stop()
        self._lock.close()

    def kill(self) -> None:
        """At once."""
        if self._supervisor is not None:
            self._supervisor.kill()
        if self._kafka is not None:
            for node_id in self._kafka.node_ids:
                self._kafka.kill_node(node_id)
        if self._lock is not None:
            found.remove_up(self._settings.data_dir)

    def _take_lock(self) -> None:
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        lock = (self._settings.data_dir / "up.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise Misconfigured(f"another `session-streams up` runs in {self._settings.data_dir}: stop it, or give --data-dir") from error
        self._lock = lock

    def _start_kafka(self) -> None:
        if self._options.broker is not None:
            self._settings = replace(self._settings, bootstrap=self._options.broker)
            return
        nodes = self._options.kafka_nodes
        self._say(f"starting a local Kafka of {nodes} node{'s' if nodes > 1 else ''}")
        self._kafka = LocalKafka.start(nodes, data_dir=self._settings.data_dir / "kafka", overrides=self._options.kafka_settings)
        self._settings = replace(self._settings, bootstrap=self._kafka.bootstrap, replication=nodes)

    def _watch_kafka(self) -> None:
        if self._kafka is None:
            return
        gone = [node_id for node_id in self._kafka.node_ids if node_id not in self._kafka.running]
        now = time.monotonic()
        if not gone:
            self._kafka_due_s = None
        elif self._kafka_due_s is None:
            self._kafka_due_s = now + 1.0
            self._say(f"Kafka node {', '.join(map(str, gone))} ended; starting it again")
        elif now >= self._kafka_due_s:
            try:
                self._kafka.start_nodes(*gone)
            except StreamsError as error:
                self._kafka_due_s = now + 5.0
                self._say(f"{error.detail}\ntrying again in 5 s")

    def _kept(self) -> _Kept:
        """What was kept; the key is a new one where the cluster does not know the old one (any more)."""
        path = self._settings.data_dir / "installation.json"
        before = msgspec.json.decode(path.read_bytes(), type=_Kept) if path.exists() else None
        workspace_id = before.workspace_id if before is not None else f"ws_{secrets.token_hex(16)}"
        kept = _Kept(
            workspace_id=workspace_id,
            api_key=(before and self._still_valid(before.api_key)) or self._new_key(workspace_id),
            projector_port=_kept_port(0 if before is None else before.projector_port),
            graph_port=_kept_port(0 if before is None else before.graph_port),
            custodian_port=_kept_port(0 if before is None else before.custodian_port),
            agents_port=_kept_port(0 if before is None else before.agents_port),
        )
        if kept != before:
            found.write_private(path, msgspec.json.encode(kept))
        return kept

    def _still_valid(self, api_key: str) -> str | None:
        digest = digest_of(api_key)
        known = any(key.secret_digest == digest and key.revoked_at is None for key in KeyAdministration(self._settings).list())
        return api_key if known else None

    def _new_key(self, workspace_id: str) -> str:
        return KeyAdministration(self._settings).create(workspace_id, _LOCAL_SCOPES)[1]

    def _gateway_port(self) -> int:
        asked = self._options.port
        if asked is None:
            return GATEWAY_PORT if is_free(GATEWAY_PORT, self._options.host) else free_ports(1)[0]
        if asked != 0 and not is_free(asked, self._options.host):
            raise Misconfigured(f"port {asked} is taken: give another --port, or 0 for any free one")
        return asked or free_ports(1)[0]

    def _tap_port(self) -> int:
        return TAP_PORT if self._options.port != 0 and is_free(TAP_PORT, self._options.host) else free_ports(1)[0]

    def _program(self, role: str, arguments: list[str]) -> Program:
        logs = self._settings.data_dir / "logs"
        log = logs / f"{role}.log"
        return Program(
            name=role,
            argv=[sys.executable, "-m", "connectors.cli", role, *arguments, "--log-file", str(log)],
            environment={**os.environ, **self._settings.environment()},
            log=log,
            output=logs / f"{role}.out",
        )

    def _groups(self) -> dict[GroupOwners, frozenset[int]]:
        """With the partitions that each has to have taken."""
        names, everything = Topics(self._settings.topic_prefix), frozenset(range(self._settings.partitions))
        groups = {
            "authority": (names.commands, everything),
            "projector": (names.events, everything),
            "graph": (names.events, everything),
            "custodian": (names.events, everything),
            "agents": (names.agent_commands, everything),
            "retention": (names.workspace_commands, frozenset({0})),
        }
        return {GroupOwners(self._settings, group, topic): partitions for group, (topic, partitions) in groups.items()}

    def _members(self) -> frozenset[str]:
        """Members of before: the broker lists them until their session runs out, and they are not the ones waited for."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        groups = self._groups()
        while True:
            try:
                return frozenset(member for group in groups for member in group.assigned())
            except BrokerUnavailable:
                # A broker that has just started still loads what it knows of groups.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _wait_until_ready(self, url: str, before: frozenset[str]) -> None:
        assert self._supervisor is not None
        groups = self._groups()
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            self.watch()
            waiting = [group for group, partitions in groups.items() if not partitions <= _taken(group, before)]
            if not waiting and _answers(f"{url}/readyz"):
                self._supervisor.ready = True
                return
            if time.monotonic() > deadline:
                raise Fatal(f"not everything answered within {_READY_TIMEOUT_S:g} s; the logs are in {self._settings.data_dir / 'logs'}")
            time.sleep(0.1)


def _kept_port(before: int) -> int:
    """That of before, unless there is none (0) or somebody else has it now."""
    return before if before and is_free(before) else free_ports(1)[0]


def _taken(group: GroupOwners, before: frozenset[str]) -> frozenset[int]:
    try:
        members = group.assigned()
    except BrokerUnavailable:
        return frozenset()
    return frozenset[int]().union(*(partitions for member, partitions in members.items() if member not in before))


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
