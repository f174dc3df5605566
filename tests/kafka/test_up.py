"""`session-streams up`: everything on one machine, ready when it says so, and gone when it stops."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.conftest import Broker

REPOSITORY = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


def clean_environment() -> dict[str, str]:
    """Without settings of whoever runs the tests, and with the code of this tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SESSION_STREAMS_")}
    code = [str(REPOSITORY), str(REPOSITORY / "connectors" / "client" / "src")]
    # The jars' cache is the one thing that runs may share.
    cache = {name: os.environ[name] for name in ("SESSION_STREAMS_CACHE",) if name in os.environ}
    return {**kept, **cache, "PYTHONPATH": os.pathsep.join(code)}


class RunningUp:
    """An `up --json` of its own folder, and what it says on stderr."""

    def __init__(self, data_dir: Path, *arguments: str, topic_prefix: str = "") -> None:
        self.data_dir = data_dir
        self._said = data_dir.parent / "said.txt"
        environment = {**clean_environment(), "SESSION_STREAMS_TOPIC_PREFIX": topic_prefix}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "connectors.cli", "up", "--json", "--port", "0", "--data-dir", str(data_dir), *arguments],
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=REPOSITORY,
                env=environment,
            )

    def ready(self) -> dict[str, str]:
        """Waits for the one line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"up ended: {self.said()}"
        up: dict[str, str] = json.loads(line)
        return up

    def said(self) -> str:
        return self._said.read_text()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def role(self, name: str) -> psutil.Process | None:
        for process in self.family():
            try:
                if name in process.cmdline():
                    return process
            except psutil.NoSuchProcess:
                continue
        return None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[Callable[..., RunningUp]]:
    started: list[RunningUp] = []

    def start(*arguments: str, topic_prefix: str = "") -> RunningUp:
        started.append(RunningUp(tmp_path / "data", *arguments, topic_prefix=topic_prefix))
        return started[-1]

    yield start
    for each in started:
        each.close()


def post(up: dict[str, str], path: str, body: object, key: str) -> dict[str, object]:
    request = urllib.request.Request(
        up["gateway"] + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {up['api_key']}", "Idempotency-Key": key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        decoded: dict[str, object] = json.loads(answer.read())
        return decoded


def wait_until(happened: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def all_gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_up_is_ready_when_it_says_so_and_leaves_nothing_running(start_up: Callable[..., RunningUp]) -> None:
    """The printed gateway and key take a session at once; an interrupt stops it with status 0 and no process left; what was
    kept is found by the next `up`, with the same key."""
    running = start_up()
    up = running.ready()
    session = post(up, "/v1/sessions", {}, "first")
    written = running.data_dir / "up.json"
    assert written.stat().st_mode & 0o777 == 0o600
    assert json.loads(written.read_bytes())["api_key"] == up["api_key"]
    family = running.family()
    # Kafka and three roles.
    assert len(family) >= 4

    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 0, running.said()
    assert all_gone(family)
    assert not written.exists()

    again = start_up()
    second = again.ready()
    assert second["api_key"] == up["api_key"]
    assert post(second, "/v1/sessions", {}, "first")["session_id"] == session["session_id"]
    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(60) == 0


class Up(NamedTuple):
    running: RunningUp
    told: dict[str, str]


@pytest.fixture(scope="module")
def roles_only(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """On the shared broker, to start the roles only; one for all of them to be killed in."""
    running = RunningUp(tmp_path_factory.mktemp("up") / "data", "--broker", broker.bootstrap, topic_prefix=f"up.{os.getpid()}.")
    try:
        yield Up(running, running.ready())
    finally:
        running.close()


@pytest.mark.parametrize("role", ["authority", "projector", "graph-projector", "custodian", "agents", "gateway"])
def test_a_role_that_is_killed_is_started_again_and_serves(roles_only: Up, role: str) -> None:
    running, up = roles_only
    post(up, "/v1/sessions", {}, f"before {role}")
    killed = running.role(role)
    assert killed is not None
    killed.kill()
    wait_until(lambda: (now := running.role(role)) is not None and now.pid != killed.pid, 30)
    assert f"{role} was ended by SIGKILL; starting it again" in running.said()

    def serves() -> bool:
        try:
            post(up, "/v1/sessions", {}, f"after {role}")
        except OSError:
            return False
        return True

    wait_until(serves, 60)


def test_pressed_twice_it_stops_at_once(start_up: Callable[..., RunningUp]) -> None:
    running = start_up()
    running.ready()
    family = running.family()
    running.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in running.said(), 10)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(5) in (130, 0)
    wait_until(lambda: all_gone(family), 5)


def test_a_killed_up_takes_its_children_with_it(start_up: Callable[..., RunningUp]) -> None:
    running = start_up()
    running.ready()
    family = running.family()
    running.process.kill()
    running.process.wait()
    wait_until(lambda: all_gone(family), 10)


def test_a_second_up_in_the_same_folder_is_refused(start_up: Callable[..., RunningUp], broker: Broker) -> None:
    start_up("--broker", broker.bootstrap, topic_prefix=f"up.{os.getpid()}.twice.").ready()
    second = start_up()
    assert second.process.wait(30) == 3
    assert "another `session-streams up` runs" in second.said()


def test_a_broker_that_is_not_there_is_said_with_status_4(start_up: Callable[..., RunningUp]) -> None:
    running = start_up("--broker", "127.0.0.1:1")
    assert running.process.wait(90) == 4
    assert "service.broker_unavailable" in running.said()
