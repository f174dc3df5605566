"""The health check of the image: healthy is not ready, and what a restart cannot mend is not unhealthy."""

import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from streams.errors import BrokerUnavailable
from streams.settings import Settings

SCRIPT = Path(__file__).parents[2] / "docker" / "healthcheck.py"
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def healthcheck() -> ModuleType:
    specification = importlib.util.spec_from_file_location("healthcheck", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@contextmanager
def answering(**statuses: int) -> Iterator[int]:
    """A server with a status for each path; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.get(self.path.removeprefix("/"), 404))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "command_line",
    [
        [
            "/opt/session-streams/bin/python",
            "/opt/session-streams/bin/session-streams",
            "gateway",
            "--host",
            "0.0.0.0",
            "--port",
            "{port}",
            "",
        ],
        ["/sbin/docker-init", "--", "session-streams", "projector", "--host=127.0.0.1", "--port={port}", ""],
        ["python", "-m", "connectors.cli", "gateway", "--port", "{port}", ""],
    ],
)
def test_what_answers_is_healthy_before_it_is_ready(healthcheck: ModuleType, command_line: list[str]) -> None:
    with answering(healthz=200, readyz=503) as port:
        given = [word.format(port=port) for word in command_line]
        assert healthcheck.main([], given).yes
        not_ready = healthcheck.main(["--ready"], given)
        assert not not_ready.yes
        assert "503" in not_ready.reason
    with answering(healthz=200, readyz=200) as port:
        assert healthcheck.main(["--ready"], [word.format(port=port) for word in command_line]).yes


def test_what_does_not_answer_is_neither(healthcheck: ModuleType) -> None:
    with answering() as port:
        pass
    gone = ["session-streams", "gateway", "--port", str(port)]
    assert not healthcheck.main([], gone).yes
    assert not healthcheck.main(["--ready"], gone).yes


def test_a_projector_on_any_free_port_cannot_be_asked(healthcheck: ModuleType) -> None:
    answer = healthcheck.main([], ["session-streams", "projector"])
    assert not answer.yes
    assert "--port" in answer.reason


@pytest.mark.parametrize("command_line", [["session-streams", "topics", "apply"], ["session-streams"], ["bash"], [""]])
def test_what_is_no_role_has_nothing_to_answer(healthcheck: ModuleType, command_line: list[str]) -> None:
    assert healthcheck.main([], command_line).yes


@pytest.fixture
def members(healthcheck: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Says what the group of authorities looks like, for instance 1 of an installation with four partitions."""
    monkeypatch.setenv("SESSION_STREAMS_INSTANCE", "1")
    monkeypatch.setenv("SESSION_STREAMS_PARTITIONS", "4")

    def say(found: object) -> None:
        class Owners:
            def __init__(self, settings: Settings, group: str, topic: str) -> None:
                assert (group, topic) == ("authority", "sessions.commands")

            def assigned(self, timeout_s: float) -> object:
                if isinstance(found, Exception):
                    raise found
                return found

        monkeypatch.setattr(healthcheck, "GroupOwners", Owners)

    return say


ME, OTHER, LIKE_ME = f"authority.1-{UUID}", f"authority.2-{UUID}", f"authority.1-2-{UUID}"


@pytest.mark.parametrize(
    ("found", "healthy", "ready"),
    [
        ({ME: frozenset({0, 1}), OTHER: frozenset({2, 3})}, True, True),
        ({ME: frozenset(), OTHER: frozenset({0, 1, 2, 3})}, True, True),
        ({ME: frozenset(), OTHER: frozenset()}, True, False),
        ({OTHER: frozenset({0, 1, 2, 3})}, False, False),
        ({LIKE_ME: frozenset({0, 1, 2, 3})}, False, False),
        ({}, False, False),
        (BrokerUnavailable("timed out"), True, False),
    ],
    ids=["owns", "stands by", "rebalancing", "left", "another instance", "nobody", "no broker"],
)
def test_an_authority_is_healthy_while_its_group_names_it(
    healthcheck: ModuleType, members: Callable[[object], None], found: object, healthy: bool, ready: bool
) -> None:
    """It listens nowhere; a stuck one drops out of its group. A broker that is away is no reason to start it again."""
    members(found)
    assert healthcheck.main([], ["session-streams", "authority"]).yes is healthy
    assert healthcheck.main(["--ready"], ["session-streams", "authority"]).yes is ready
