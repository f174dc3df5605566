"""kill -9 of authority, gateway and projector in turn, at seeded points of an ingest of every recording.

Promise: afterwards each session's (sequence, type, ids, links, attributes, opened content) equal those of an
undisturbed run, up to one consistent renaming of ids; what is acknowledged survives (promise 7 of the log).
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.cli.ports import free_ports
from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.samples import FOLDER
from session_streams import Client
from streams.settings import Settings
from tests.support.processes import Fleet, RoleProcess, eventually
from tests.support.renaming import canonical
from tests.support.rows import key_administration

WORKSPACE = "ws_" + "c" * 32
ROLES = ("authority", "gateway", "projector")
SEED = 20261130
RECORDS = 13_754 + 3_916
"""Records of the transcripts and messages of the trajectories."""
SAMPLE_RECORDS = 115


class Installation:
    """The three roles as processes; one that died is started again, as `up` does."""

    def __init__(self, settings: Settings, fleet: Fleet) -> None:
        self.settings = settings
        self.url = f"http://127.0.0.1:{(port := free_ports(1)[0])}"
        self.roles: dict[str, RoleProcess] = {
            "authority": fleet.start("authority"),
            "projector": fleet.start("projector"),
            "gateway": fleet.start("gateway", "0", "--port", str(port)),
        }
        self._arguments = {"authority": (), "projector": (), "gateway": ("--port", str(port))}
        eventually(self._ready, why="the installation is not ready")
        self.key = key_administration(settings).create(WORKSPACE, ("admin",))[1]
        eventually(self._knows_the_key, why="the gateway does not follow its keys")

    def _knows_the_key(self) -> bool:
        return httpx.get(f"{self.url}/v1/sessions", headers={"authorization": f"Bearer {self.key}"}).status_code == 200

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self, role: str) -> None:
        self.roles[role].kill()
        self.roles[role].restart(*self._arguments[role])

    def ingest(self, paths: list[Path], on_progress: Callable[[Any], None] | None = None) -> IngestReport:
        async def scenario() -> IngestReport:
            async with RestTransport.connect(self.url, self.key) as transport:
                return await run_ingest(paths, transport, check=True, on_progress=on_progress, patience_s=120)

        return asyncio.run(scenario())

    def histories(self) -> list[list[dict[str, Any]]]:
        with Client(self.url, self.key) as client:
            ids = [session.session_id for session in client.sessions()]
            return [self._events(client, session_id) for session_id in ids]

    def _events(self, client: Client, session_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = client.request("GET", f"/v1/sessions/{session_id}/events?after_sequence={after}&limit=1000").json()
            found += page["events"]
            after = page["next_after_sequence"]
        return found


@contextmanager
def installation(settings: Settings) -> Iterator[Installation]:
    with Fleet(settings) as fleet:
        yield Installation(settings, fleet)


class KillAtPoints:
    """Called with the progress of an ingest: at each of the seeded record counts the next role in turn is killed."""

    def __init__(self, running: Installation, records: int, kills: int) -> None:
        self._running = running
        self._points = sorted(random.Random(SEED).sample(range(records // 20, records * 19 // 20), kills))
        self._turn = random.Random(SEED).randrange(len(ROLES))
        self.killed: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, progress: Any) -> None:
        with self._lock:
            if self._points and progress.records >= self._points[0]:
                self._points.pop(0)
                role = ROLES[(self._turn + len(self.killed)) % len(ROLES)]
                self.killed.append(role)
                self._running.kill(role)


def compare(settings_on: Callable[..., Settings], broker: Any, paths: list[Path], records: int, kills: int) -> None:
    fast = {"member_session_timeout_s": 6.0, "transaction_timeout_s": 4.0}
    undisturbed, disturbed = (replace(settings_on(broker.bootstrap), **fast) for _ in range(2))
    with installation(undisturbed) as running:
        report = running.ingest(paths)
        assert (report.ok, report.records) == (True, records), report
        expected = canonical(running.histories())
    with installation(disturbed) as running:
        nemesis = KillAtPoints(running, records, kills)
        report = running.ingest(paths, nemesis)
        assert report.ok, report
        assert len(nemesis.killed) == kills
        assert set(nemesis.killed) == set(ROLES) or kills < len(ROLES)
        found = canonical(running.histories())
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine == theirs
        again = running.ingest(paths)
        assert (again.ok, again.records) == (True, 0)


@pytest.mark.timeout(300)
def test_a_kill_of_each_role_changes_nothing_of_what_the_samples_become(settings_on: Callable[..., Settings], broker: Any) -> None:
    """What a clean clone can show without the recordings."""
    compare(settings_on, broker, [FOLDER], SAMPLE_RECORDS, kills=3)


@pytest.mark.timeout(600)
def test_five_kills_change_nothing(settings_on: Callable[..., Settings], broker: Any, recordings: Path) -> None:
    compare(settings_on, broker, [recordings], RECORDS, kills=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_kills_change_nothing(settings_on: Callable[..., Settings], broker: Any, recordings: Path) -> None:
    compare(settings_on, broker, [recordings], RECORDS, kills=20)
