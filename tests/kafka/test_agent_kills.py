"""Kill -9 of the authority and of the gateway under 16 savers over HTTP; judged from what they were told and from what the log holds."""

import hashlib
import http.client
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from connectors.cli.ports import free_ports
from connectors.edge.keys import KeyAdministration
from streams.settings import Settings
from tests.consistency import agents as judging
from tests.support.agent_log import logged
from tests.support.agent_requests import Told, ask
from tests.support.processes import Fleet
from tests.support.roles import WORKSPACE
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SUBJECTS = ("one", "two", "three")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, member_session_timeout_s=6.0, transaction_timeout_s=4.0, request_timeout_s=20.0)


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with Fleet(settings) as fleet:
        yield fleet


@dataclass
class Site:
    """The gateway as savers meet it, and what they did and were told. Versions are told by the log alone, so none is known yet."""

    url: str
    secret: str
    savings: list[judging.Saving] = field(default_factory=list)
    acknowledged: list[judging.Saving] = field(default_factory=list)
    readings: list[judging.Reading] = field(default_factory=list)

    def ask(self, method: str, target: str, body: bytes | None = None) -> Told | None:
        """None: no answer came."""
        try:
            return ask(self, method, target, self.secret, body)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def read(self, subject: str) -> str | None:
        """The hash of the state that is there, noted; None: there is none, or no answer."""
        began = time.monotonic()
        told = self.ask("GET", f"/v1/checkpoints?subject_id={subject}&kind=workflow")
        if told is None or told.status not in (200, 404):
            return None
        found = told.data["state_hash"] if told.status == 200 else None
        self.readings.append(judging.Reading(row=subject, version=0, state_hash=found, began=began, ended=time.monotonic()))
        return found

    def save(self, subject: str, saver: int, turn: int, expected: str | None) -> None:
        state = f'{{"saver":{saver},"turn":{turn}}}'
        body = {"subject_id": subject, "kind": "workflow", "state": json.loads(state), "ttl_seconds": 600}
        if expected is not None:
            body["expected_state_hash"] = expected
        began = time.monotonic()
        told = self.ask("POST", "/v1/checkpoints", json.dumps(body).encode())
        state_hash = hashlib.sha256(state.encode()).hexdigest()
        saving = judging.Saving(row=subject, state_hash=state_hash, expected=expected, began=began, ended=time.monotonic())
        if told is not None and told.status in (200, 201):
            assert told.data["state_hash"] == state_hash
            self.acknowledged.append(saving)
        elif told is not None and told.status == 409:
            self.savings.append(structs.replace(saving, conflict=True, actual=told.body["meta"]["actual_state_hash"]))
        else:
            # Nobody knows what became of it.
            self.savings.append(saving)


def keep_saving(site: Site, saver: int, stop: threading.Event) -> None:
    """Reads and replaces what it has read, as fast as it is answered; every fourth save expects nothing."""
    turn = 0
    while not stop.is_set():
        turn += 1
        subject = SUBJECTS[turn % 3]
        expected = site.read(subject)
        if expected is None:
            stop.wait(0.05)
        site.save(subject, saver, turn, expected if turn % 4 else None)
        site.read(subject)


def test_no_acknowledged_save_is_lost_and_no_update_whichever_of_authority_and_gateway_is_killed(settings: Settings, fleet: Fleet) -> None:
    ports = free_ports(2)
    authority = fleet.start("agents", "0", "--port", str(ports[0]))
    gateway = fleet.start("gateway", "0", "--port", str(ports[1]))
    secret = KeyAdministration(settings).create(WORKSPACE, ("agent-checkpoints:read", "agent-checkpoints:write"))[1]
    site, stop = Site(f"http://127.0.0.1:{ports[1]}", secret), threading.Event()

    def serves() -> bool:
        told = site.ask("GET", "/v1/checkpoints?subject_id=nobody&kind=cursor")
        return told is not None and told.status == 404

    eventually(serves, timeout_s=60)
    with ThreadPoolExecutor(16) as pool:
        savers = [pool.submit(keep_saving, site, number, stop) for number in range(16)]
        try:
            for victims in ((gateway,), (authority,), (gateway, authority), (authority,), (gateway,)):
                known = len(site.acknowledged)
                eventually(lambda known=known: len(site.acknowledged) >= known + 60, timeout_s=60)  # type: ignore[misc]
                for victim in victims:
                    victim.kill()
                if len(victims) == 2:
                    shutil.rmtree(settings.stores_path("agents"))
                for victim in victims:
                    victim.restart("--port", str(ports[0] if victim is authority else ports[1]))
            known = len(site.acknowledged)
            eventually(lambda: len(site.acknowledged) >= known + 60, timeout_s=60)
        finally:
            stop.set()
        for saver in savers:
            saver.result()
    judge(settings, site)


def judge(settings: Settings, site: Site) -> None:
    """The history has no anomaly, and the last version of each row is what is read."""
    told, names, last = logged(settings), dict[str, str](), dict[str, str]()
    for subject in SUBJECTS:
        found = site.ask("GET", f"/v1/checkpoints?subject_id={subject}&kind=workflow")
        assert found is not None
        (key,) = {key.decode().split("#")[0] for key, head in told if head.checkpoint_id == found.data["checkpoint_id"]}
        names[key], last[subject] = subject, found.data["state_hash"]
    log = [
        judging.Logged(row=names[row], version=head.version, state_hash=head.state_hash)
        for key, head in told
        if (row := key.decode().split("#")[0]) in names
    ]
    versions = {(each.row, each.state_hash): each.version for each in log}
    for subject, state_hash in last.items():
        assert versions[subject, state_hash] == max(each.version for each in log if each.row == subject)
    # A state that the log does not have has a version that it does not have either.
    savings = [structs.replace(each, version=versions.get((each.row, each.state_hash), -1)) for each in site.acknowledged]
    readings = [
        each if each.state_hash is None else structs.replace(each, version=versions.get((each.row, each.state_hash), -1))
        for each in site.readings
    ]
    assert [each for each in site.savings if each.conflict], "they were in each other's way"
    assert [each for each in savings if each.expected is not None]
    assert judging.check([*savings, *site.savings], readings, log) == {}
