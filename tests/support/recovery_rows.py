"""An installation as the rows of recovery need it: roles as processes, workspaces with their policies, workers over HTTP.

Every refusal is judged by the log itself: a reader that stays open knows each session's events, as positions and hashes.
"""

import concurrent.futures
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from connectors.cli.ports import free_ports
from connectors.support.capabilities import REPLACEMENT
from connectors.support.catalogue import STATEMENTS, TRUSTED
from connectors.support.journeys import record
from connectors.support.statement import Evidence
from connectors.support.trust import change_trust
from session_streams import ApiError, Client, Retries
from streams.custody.keyring import SecretRef
from streams.custody.signing import SigningKey
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log import topics
from streams.log.log import KafkaLog
from streams.log.record import decode_event
from streams.log.topics import Topics
from streams.session.commands import Kind
from streams.session.events import Event
from streams.session.ids import is_id
from streams.session.outcomes import ACCEPTED
from streams.settings import Settings
from tests.support.asker import Asker
from tests.support.commands import command, new_id
from tests.support.journeys import LOCAL
from tests.support.processes import Fleet, RoleProcess
from tests.support.roles import WORKSPACE
from tests.support.rows import key_administration, policy_administration
from tests.support.waiting import eventually

STANDARD = WORKSPACE
SHORT = "ws_" + "5" * 32
"""Its checkpoints end after `SHORT_WINDOW_S`."""
CHANGED = "ws_" + "c" * 32
"""Begins with the same window; a test changes its policy."""
ZDR = "ws_" + "2" * 32
SHORT_WINDOW_S = 3
HARNESS_REVISION, ENVIRONMENT_REVISION = "tests-1", "tests-1"
REVISIONS = {"harness_revision": HARNESS_REVISION, "environment_revision": ENVIRONMENT_REVISION}
LANE = {
    "driver": LOCAL.driver, "sandbox_provider_revision": LOCAL.sandbox_provider_revision, "policy": LOCAL.policy,
    "execution_target": LOCAL.execution_target, **REVISIONS,
}  # fmt: skip
"""On which post-ready replacement is verified here, once `verify_replacement` was called."""
LEASE_MS, SHORTEST_LEASE_MS = 600_000, 1000
OCTETS = "application/octet-stream"
DIGEST = "sha256:" + "7" * 64
PRINCIPALS = 8
LEASE_S = 3.0
"""How long a destroyed secret may still be in somebody's cache."""


class Ledger:
    """What stands in the log of events, as of the moment it is asked."""

    def __init__(self, settings: Settings) -> None:
        topic = Topics(settings.topic_prefix).events
        self._log = KafkaLog(settings)
        self._places = [(topic, partition) for partition in range(settings.partitions)]
        self._reader = self._log.reader("ledger", dict.fromkeys(self._places, 0))
        self._events: dict[str, list[Event]] = {}

    def events(self, session_id: str) -> list[Event]:
        ends = self._log.end_offsets(self._places, committed=False)
        while any(self._reader.position(*place) < end for place, end in ends.items()):
            for found in self._reader.read(1000, 0.05):
                event = decode_event(found.value or b"")
                self._events.setdefault(event.session_id, []).append(event)
        return list(self._events.get(session_id, []))

    def hashes(self, session_id: str) -> list[tuple[int, bytes]]:
        return [(event.sequence, event.hash) for event in self.events(session_id)]

    def close(self) -> None:
        self._reader.close()


class Installation:
    """`client` gives one of `PRINCIPALS` principals of a workspace."""

    def __init__(self, settings: Settings, url: str, secrets: dict[str, list[str]]) -> None:
        self.settings, self.url = settings, url
        self.ledger, self.asker = Ledger(settings), Asker(settings)
        self._clients = {name: [Client(url, secret, retries=Retries(total_s=30)) for secret in given] for name, given in secrets.items()}

    def client(self, workspace_id: str = STANDARD, number: int = 0) -> Client:
        return self._clients[workspace_id][number]

    @contextmanager
    def refused(self, session_id: str, code: str, status: int = 409) -> Iterator["Refusal"]:
        """What happens inside is refused with this code, and leaves the session's log as it is, position by position and hash by hash."""
        before, refusal = self.ledger.hashes(session_id), Refusal()
        assert before, f"{session_id} is not in the log"
        with pytest.raises(ApiError) as raised:
            yield refusal
        refusal.error = raised.value
        assert (raised.value.status, raised.value.code) == (status, code), raised.value
        assert self.ledger.hashes(session_id) == before

    def tell_erased(self, session_id: str) -> None:
        """As the custodian tells the authority of an erasure: what the session holds so far counts as erased."""
        outcome = self.asker.ask(command(session_id, (), command_id=new_id("cmd"), kind=Kind.ERASE))
        assert outcome is not None
        assert outcome.status == ACCEPTED, outcome

    def erase(self, session_id: str, *upload_ids: str) -> None:
        """The whole of it: secrets of content and of retained bytes are destroyed, then the authority is told."""
        refs = [SecretRef("session", STANDARD, session_id)]
        for upload_id in upload_ids:
            found = [
                path.name.partition(".")[0] for path in (self.settings.data_dir / "blobs" / STANDARD / session_id / upload_id).iterdir()
            ]
            refs += [SecretRef("snapshot", STANDARD, name) for name in found if is_id(name, "snap")]
        assert len(refs) > len(upload_ids)
        keyring = open_local_keyring(self.settings.data_dir / "keyring")
        try:
            keyring.destroy(refs)
        finally:
            keyring.close()
        self.tell_erased(session_id)

    def verify_replacement(self) -> None:
        """A statement, signed by a key that is trusted here, that exactly `LANE` was seen to replace an attempt."""
        key_file = self.settings.data_dir / "journeys.pem"
        key = SigningKey.at(key_file)
        record(self.settings.support_path / STATEMENTS, key, REPLACEMENT, LOCAL, "passed", Evidence(test="tests/support/recovery_rows.py"))
        change_trust(self.settings.support_path / TRUSTED, key_file=key_file)

    def close(self) -> None:
        for clients in self._clients.values():
            for client in clients:
                client.close()
        self.asker.close()
        self.ledger.close()


class Refusal:
    """`error` is there once the block is over."""

    error: ApiError


@contextmanager
def recovery_installation(bootstrap: str, data_dir: Path) -> Iterator[Installation]:
    """Authority, projector, custodian and gateway, each a process, and workspaces: standard, with a short window, zdr."""
    settings = Settings(
        bootstrap=bootstrap,
        topic_prefix=f"t{uuid.uuid4().hex[:10]}.",
        data_dir=data_dir,
        partitions=2,
        transaction_timeout_s=4.0,
        lease_s=LEASE_S,
    )
    topics.apply(settings)
    try:
        policies, keys = policy_administration(settings), key_administration(settings)
        for short in (SHORT, CHANGED):
            policies.set(short, checkpoint_window_s=SHORT_WINDOW_S)
        policies.set(ZDR, mode="zdr")
        secrets = {each: [keys.create(each, ("admin",))[1] for _ in range(PRINCIPALS)] for each in (STANDARD, SHORT, CHANGED, ZDR)}
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        with Fleet(settings) as fleet:
            for role in ("authority", "projector", "custodian"):
                fleet.start(role)
            gateway = fleet.start("gateway", "0", "--port", str(port))
            eventually(lambda: _serves(gateway, url, secrets[STANDARD][0]), timeout_s=60)
            installed = Installation(settings, url, secrets)
            try:
                yield installed
            finally:
                installed.close()
            assert all(role.alive for role in fleet.roles), [role.log()[-2000:] for role in fleet.roles if not role.alive]
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        deleted = admin.delete_topics([spec.name for spec in topics.declared(settings)], request_timeout=5)
        concurrent.futures.wait(deleted.values(), timeout=5)


def _serves(gateway: RoleProcess, url: str, secret: str) -> bool:
    assert gateway.alive, gateway.log()
    try:
        return httpx.get(f"{url}/v1/sessions", headers={"authorization": f"Bearer {secret}"}, timeout=10).status_code == 200
    except httpx.TransportError:
        return False


class Worker:
    """One principal at one Run: holds what it was granted, and reports with it."""

    def __init__(self, client: Client, session_id: str, run_id: str) -> None:
        self.client, self.session_id, self.run_id = client, session_id, run_id
        self.session = f"/v1/sessions/{session_id}"
        self.run = f"{self.session}/runs/{run_id}"
        self.grant: dict[str, Any] = {}
        self.seen = 0

    @property
    def generation(self) -> int:
        return int(self.grant["generation"])

    @property
    def attempt(self) -> str:
        return f"{self.run}/attempts/{self.generation}"

    @property
    def recovery(self) -> dict[str, Any]:
        return dict(self.grant["recovery"])

    def claim(self, *, key: str | None = None, **body: Any) -> "Worker":
        return self.granted(self.client.request("POST", f"{self.run}/claim", {"lease_ms": LEASE_MS, **body}, key=key).json())

    def replace(self, **body: Any) -> "Worker":
        return self.granted(self.client.request("POST", f"{self.run}/replace", {"lease_ms": LEASE_MS, **LANE, **body}).json())

    def granted(self, grant: dict[str, Any]) -> "Worker":
        self.grant, self.seen = grant, grant["run_sequence"]
        return self

    def report(self, **changes: Any) -> str:
        """What it proves with each report, or that with `changes`."""
        grant = self.grant
        held = {"run_id": self.run_id, "generation": self.generation, "native_task_id": grant["native_task_id"], "seen": self.seen}
        return ";".join(str(value) for value in {**held, **changes}.values())

    def post(self, path: str, body: Any = None, *, report: str | None = None, **headers: str) -> dict[str, Any]:
        """`path` begins below the session."""
        given = {"session-streams-report": report or self.report(), **headers}
        answer: dict[str, Any] = self.client.request("POST", self.session + path, {} if body is None else body, headers=given).json()
        if answer.get("run_sequence") is not None:
            self.seen = answer["run_sequence"]
        return answer

    def say(self, text: str, **more: Any) -> dict[str, Any]:
        """The event, as it is read again."""
        answer = self.post("/events", {**message(text), "run_id": self.run_id}, **more)
        return event_at(self.client, self.session_id, answer["last_sequence"])

    def ready(self) -> "Worker":
        self.grant = {**self.grant, **self.post(f"/runs/{self.run_id}/attempts/{self.generation}/ready")}
        return self

    def fail(self) -> None:
        self.post(f"/runs/{self.run_id}/attempts/{self.generation}/fail", {"reason": "broke"})

    def upload(self, content: bytes) -> str:
        headers = {"content-type": OCTETS, "session-streams-report": self.report()}
        return str(self.client.request("POST", f"{self.session}/snapshots", content, headers=headers).json()["upload_id"])

    def checkpoint(self, *, native: bytes | None = None, snapshot: bytes = b"disk", **more: Any) -> dict[str, Any]:
        """Of the session as it stands. `uploads` of the answer are the ids of what was uploaded for it."""
        uploads = [self.upload(snapshot)]
        continuation = {"kind": "event_log_rebuild"}
        if native is not None:
            uploads.append(self.upload(native))
            continuation = {"kind": "native", "upload_id": uploads[1]}
        last = last_event(self.client, self.session_id)
        body = {
            "through_sequence": last["sequence"], "through_event_id": last["event_id"], "continuation": continuation,
            "snapshot": {"upload_id": uploads[0]}, **more,
        }  # fmt: skip
        return {**self.post("/checkpoints", body), "uploads": uploads, "through": last}

    def conversation(self) -> list[dict[str, Any]]:
        answer = self.client.request("GET", f"{self.attempt}/conversation", headers={"session-streams-report": self.report()})
        return [json.loads(line) for line in answer.body.splitlines()]


def message(text: str) -> dict[str, Any]:
    return {"type": "message.appended", "attributes": {"role": "assistant"}, "content": {"text": text}}


def texts(lines: list[dict[str, Any]]) -> list[str]:
    """What a conversation, or a page of events, says."""
    return [line["content"]["text"] for line in lines if isinstance(line.get("content"), dict) and "text" in line["content"]]


def new_session(client: Client, **more: Any) -> str:
    return client.create_session(**more).session_id


def new_run(client: Client, session_id: str, **body: Any) -> str:
    return str(client.request("POST", f"/v1/sessions/{session_id}/runs", {"harness": "tests", **REVISIONS, **body}).json()["run_id"])


def worker_at(client: Client, session_id: str, **run: Any) -> Worker:
    """Of a new Run, which it has not claimed yet."""
    return Worker(client, session_id, new_run(client, session_id, **run))


def at_work(client: Client, **run: Any) -> Worker:
    """Holds a Run of a session of its own."""
    return worker_at(client, new_session(client), **run).claim()


def event_at(client: Client, session_id: str, sequence: int) -> dict[str, Any]:
    params = {"after_sequence": str(sequence - 1), "limit": "1"}
    return dict(client.request("GET", f"/v1/sessions/{session_id}/events", params=params).json()["events"][0])


def last_event(client: Client, session_id: str) -> dict[str, Any]:
    return event_at(client, session_id, client.session(session_id).sequence)


def types_of(installed: Installation, session_id: str) -> list[str]:
    return [event.type for event in installed.ledger.events(session_id)]


def material(client: Client, session_id: str, checkpoint_id: str, part: str = "snapshot") -> bytes:
    return client.request("GET", f"/v1/sessions/{session_id}/checkpoints/{checkpoint_id}/content", params={"part": part}).body


def listed(client: Client, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", f"/v1/sessions/{session_id}/checkpoints").json()["checkpoints"]
    return found


def past(moment: str) -> None:
    """Waits until the clock is behind an RFC 3339 moment."""
    until_s = datetime.fromisoformat(moment).timestamp()
    while time.time() <= until_s:
        time.sleep(max(0.01, until_s - time.time()))
