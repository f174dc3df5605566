"""All roles of an installation as threads of the test's own process, on a real broker."""

import concurrent.futures
import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient

from connectors.cli.roles import run_agents, run_authority, run_custodian, run_gateway, run_graph, run_projector
from streams.log import topics
from streams.settings import Settings
from tests.support.rows import key_administration
from tests.support.waiting import eventually

WORKSPACE = "ws_" + "a" * 32


class Roles:
    """`url` is the gateway's. A role that ends by itself fails the test when the block ends."""

    def __init__(
        self, settings: Settings, *, authority: bool = True, graph: bool = False, custodian: bool = False, agents: bool = False
    ) -> None:
        self.settings = settings
        self.stop = threading.Event()
        self.failures: list[tuple[str, BaseException]] = []
        self.port = 0
        self._listening = threading.Event()
        self._threads = [
            self._thread("projector", run_projector, settings, "127.0.0.1", 0, self.stop),
            self._thread("gateway", run_gateway, settings, "127.0.0.1", 0, self.stop, on_listening=self._on_listening),
        ]
        if authority:
            self._threads.append(self._thread("authority", run_authority, settings, self.stop))
        if graph:
            self._threads.append(self._thread("graph-projector", run_graph, settings, "127.0.0.1", 0, self.stop))
        if custodian:
            self._threads.append(self._thread("custodian", run_custodian, settings, "127.0.0.1", 0, self.stop))
        if agents:
            self._threads.append(self._thread("agents", run_agents, settings, "127.0.0.1", 0, self.stop))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def key(self, *scopes: str, workspace_id: str = WORKSPACE, **more: Any) -> str:
        """The secret of a new key, once the gateway knows it."""
        secret = key_administration(self.settings).create(workspace_id, scopes or ("admin",), **more)[1]
        with httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {secret}"}) as client:
            eventually(lambda: client.get("/v1/sessions/sess_" + "0" * 32).status_code != 401, timeout_s=10)
        return secret

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        assert self._listening.wait(30), self.failures
        with httpx.Client(base_url=self.url) as client:
            eventually(lambda: client.get("/readyz").status_code == 200, timeout_s=30)

    @contextmanager
    def another_gateway(self) -> Iterator[str]:
        """The address of a second gateway of the same installation."""
        listening, stop, ports = threading.Event(), threading.Event(), list[int]()

        def on_listening(port: int) -> None:
            ports.append(port)
            listening.set()

        settings = dataclasses.replace(self.settings, instance="1")
        thread = self._thread("gateway-1", run_gateway, settings, "127.0.0.1", 0, stop, on_listening=on_listening)
        thread.start()
        try:
            assert listening.wait(30), self.failures
            url = f"http://127.0.0.1:{ports[0]}"
            with httpx.Client(base_url=url) as client:
                eventually(lambda: client.get("/readyz").status_code == 200, timeout_s=30)
            yield url
        finally:
            stop.set()
            thread.join(30)

    def close(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.failures, self.failures

    def _on_listening(self, port: int) -> None:
        self.port = port
        self._listening.set()

    def _thread(self, name: str, run: Callable[..., None], *arguments: Any, **named: Any) -> threading.Thread:
        def target() -> None:
            try:
                run(*arguments, **named)
            except BaseException as error:
                self.failures.append((name, error))
                self._listening.set()

        return threading.Thread(target=target, name=f"role-{name}", daemon=True)


@contextmanager
def running_roles(
    settings: Settings, *, authority: bool = True, graph: bool = False, custodian: bool = False, agents: bool = False
) -> Iterator[Roles]:
    """`authority`: False where a test has its own. `graph`, `custodian`, `agents`: with one of these."""
    roles = Roles(settings, authority=authority, graph=graph, custodian=custodian, agents=agents)
    roles.start()
    try:
        yield roles
    finally:
        roles.close()


@contextmanager
def installation(bootstrap: str, data_dir: Path, *, graph: bool = False, custodian: bool = False, agents: bool = False) -> Iterator[Roles]:
    """The roles with topics of their own, for all tests of a module; the topics go with it."""
    settings = Settings(bootstrap=bootstrap, topic_prefix=f"t{uuid.uuid4().hex[:10]}.", data_dir=data_dir)
    topics.apply(settings)
    try:
        with running_roles(settings, graph=graph, custodian=custodian, agents=agents) as roles:
            yield roles
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        deleted = admin.delete_topics([spec.name for spec in topics.declared(settings)], request_timeout=5)
        concurrent.futures.wait(deleted.values(), timeout=5)
