"""A whole installation on this machine, load upon it, and what each process spent meanwhile.

Roles are those of `session-streams up`, started as it starts them. Only the limit of one key's requests is lifted, since
one key brings all the load.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from benchmarks import httpload
from benchmarks.bench import PARTITIONS, Bench, Cost
from benchmarks.httpload import Ask, Outcome, Task
from benchmarks.traffic import content_bytes_of
from connectors.cli.found import Up
from connectors.cli.local import LocalInstallation, LocalOptions
from streams.custody.sealing import seal_bytes
from streams.settings import Settings

UNLIMITED: Final = {"SESSION_STREAMS_GATEWAY_REQUESTS_PER_S": "1000000", "SESSION_STREAMS_GATEWAY_REQUESTS_BURST": "1000000"}
_CREATING: Final = 32
_PATIENCE_S: Final = 120


@dataclass
class Loaded:
    """An outcome, and the cores that each process used while it came about."""

    outcome: Outcome
    cores: Mapping[str, float]

    @property
    def per_s(self) -> float:
        """Requests answered a second."""
        return len(self.outcome.seconds) / self.outcome.wall_s


class Installation:
    """All roles, up and answering."""

    def __init__(self, bench: Bench, installation: LocalInstallation, up: Up) -> None:
        self.settings: Settings = installation.settings
        self.up = up
        self._installation = installation
        address = urlsplit(up.gateway)
        self._host, self._port = str(address.hostname), int(address.port or 0)
        self.options = bench.options
        self.pids = installation.pids()
        self._answer = bench.folder / "outcome.json"
        self._cost = Cost({**self.pids, "broker": bench.broker_pid()})

    def create_sessions(self, count: int) -> list[str]:
        return self.load(Task(**self.gateway(), kind="create", connections=min(_CREATING, count), requests=count)).outcome.created

    def run(self, kind: str, connections: int, sessions: list[str], **more: Any) -> Loaded:
        """Load for as long as the options say."""
        options = self.options
        task = Task(
            **self.gateway(), kind=kind, connections=connections, sessions=sessions,
            warm_s=options.warm_s, load_s=options.load_s, **more,
        )  # fmt: skip
        return self.load(task)

    def load(self, task: Task) -> Loaded:
        """Raises RuntimeError where an answer was not what was asked for."""
        argv = [sys.executable, "-m", "benchmarks.httpload", str(self._answer)]
        self._answer.unlink(missing_ok=True)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(msgspec.json.encode(task))
            client.stdin.close()
            client.stdout.readline()  # the warm-up is over
            before = self._cost.cpu_s()
            client.stdout.readline()  # the last answer has come
            after = self._cost.cpu_s()
            client.wait(_PATIENCE_S)
        self._installation.watch()
        if client.returncode != 0:
            raise RuntimeError(f"the client of {task.kind} ended with status {client.returncode}")
        outcome = msgspec.json.decode(self._answer.read_bytes(), type=Outcome)
        if outcome.refusal:
            raise RuntimeError(f"{task.kind}, {task.connections} connections: {outcome.refusal} ({outcome.statuses})")
        cores = {name: (after[name] - before[name]) / outcome.wall_s for name in after}
        return Loaded(outcome, {f"{name}_cores": used for name, used in {**cores, "client": outcome.cpu_s / outcome.wall_s}.items()})

    def ask(self, asks: list[Ask], connections: int) -> Loaded:
        """Each once, in turn. All answers have come before the load is over, so nothing is under way behind it."""
        return self.load(Task(**self.gateway(), kind="ask", connections=min(connections, len(asks)), asks=asks, requests=len(asks)))

    def cpu_s(self) -> dict[str, float]:
        """Of each process so far; also notes its memory."""
        return self._cost.cpu_s()

    def rss(self, name: str) -> int:
        """At the end of the last load."""
        return self._cost.rss[name]

    def rss_max(self, name: str) -> int:
        return self._cost.rss_max[name]

    def authorization(self) -> dict[str, str]:
        """The header that brings the key."""
        return {"authorization": f"Bearer {self.up.api_key}"}

    def gateway(self) -> dict[str, Any]:
        """Where a task goes, and with which key."""
        return {"host": self._host, "port": self._port, "key": self.up.api_key}


@contextmanager
def running(bench: Bench, **changes: Any) -> Iterator[Installation]:
    """`changes` of the settings."""
    settings = bench.settings("installation", partitions=PARTITIONS, **changes)
    before = {name: os.environ.get(name) for name in UNLIMITED}
    os.environ.update(UNLIMITED)
    installation = LocalInstallation(LocalOptions(settings=settings, broker=bench.kafka.bootstrap, port=0), bench.say)
    try:
        yield Installation(bench, installation, installation.start())
    finally:
        installation.stop()
        bench.forget(settings)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def content_chars_of(event_bytes: int) -> int:
    """How much text of `httpload.content_of` makes an event of about `event_bytes` in the log, compressed and sealed."""
    wanted = content_bytes_of(event_bytes)
    chars = max(1, wanted - 48)
    for _ in range(20):
        text = msgspec.json.encode(httpload.content_of(chars))
        got = len(seal_bytes(bytes(32), aad=b"", nonce=bytes(12), salt=bytes(16), json_text=text)[0])
        if abs(got - wanted) <= 2:
            break
        chars = max(1, chars + wanted - got)
    return chars
