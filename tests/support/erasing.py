"""An installation to erase in: a broker of its own that cleans within seconds, each role a process, and what is asked of it.

`QUICK` makes compaction and the removal of files quick enough to be waited for (design 09, "Erasure on disk"). Kafka's index files are kept
small, so that its data folder can be copied.
"""

import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx

from connectors.cli.kafka import LocalKafka
from connectors.cli.ports import free_ports
from session_streams import Client, Retries
from streams.custody.keyring import SecretKind, SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log import topics
from streams.settings import Settings
from tests.support.processes import Fleet, RoleProcess, eventually
from tests.support.roles import WORKSPACE
from tests.support.rows import key_administration

QUICK: Final = {
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.index.size.max.bytes": str(64 * 1024),
}
ROLES: Final = ("authority", "projector", "custodian", "agents")
LEASE_S: Final = 2.0


def quick_settings(bootstrap: str, data_dir: Path, **changes: Any) -> Settings:
    """With topics in place."""
    given: dict[str, Any] = {
        "topic_prefix": f"t{uuid.uuid4().hex[:10]}.",
        "partitions": 2,
        "lease_s": LEASE_S,
        "transaction_timeout_s": 3.0,
        "compacted_segment_s": 1.0,
        "compaction_lag_s": 1.0,
        "compaction_margin_s": 2.0,
        "tombstone_horizon_s": 4.0,
        "file_delete_delay_s": 0.5,
    }
    settings = Settings(bootstrap=bootstrap, data_dir=data_dir, **{**given, **changes})
    topics.apply(settings)
    return settings


class Served(NamedTuple):
    """A gateway."""

    process: RoleProcess
    url: str


class Erasing:
    """`key` opens everything there is in `WORKSPACE`; `client` asks the first gateway."""

    def __init__(self, settings: Settings, fleet: Fleet, gateways: Sequence[Served], key: str) -> None:
        self.settings, self.fleet, self.gateways, self.key = settings, fleet, gateways, key
        self.clients = [Client(gateway.url, key, retries=Retries(total_s=60)) for gateway in gateways]
        self.url, self.client = gateways[0].url, self.clients[0]

    def subject_of(self, outside_id: str) -> str | None:
        with closing(open_local_keyring(self.settings.data_dir / "keyring")) as keyring:
            return keyring.pseudonym(WORKSPACE, "subject", outside_id, create=False)

    def sessions_of(self, subject_id: str) -> list[str]:
        return [session.session_id for session in self.client.sessions(subject_id=subject_id)]

    def ask_erasure(self, subject: str) -> dict[str, Any]:
        """Of a subject, by its outside id or its pseudonym."""
        return dict(self.client.request("POST", f"/v1/subjects/{quote(subject, safe='')}/erasures").json())

    def erasure(self, erasure_id: str) -> dict[str, Any]:
        return dict(self.client.request("GET", f"/v1/erasures/{erasure_id}").json())

    def reached(self, erasure_ids: Iterable[str], status: str, *, within_s: float = 90) -> list[dict[str, Any]]:
        """Waits until each is there, or further."""
        steps = ("accepted", "destroyed", "enforced", "complete")
        told: dict[str, dict[str, Any]] = {}
        left = list(erasure_ids)

        def all_there() -> bool:
            for erasure_id in left:
                told[erasure_id] = self.erasure(erasure_id)
            left[:] = [each for each in left if steps.index(told[each]["status"]) < steps.index(status)]
            return not left

        try:
            eventually(all_there, within_s=within_s)
        except AssertionError:
            waited = [(told[each]["status"], told[each]["awaited"]) for each in left]
            raise AssertionError(f"not {status} within {within_s:g} s: {waited[:3]} of {len(left)}\n{self.logs()}") from None
        return list(told.values())

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """A role that ends while the block runs is started again, as `up` does."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                for role in self.fleet.roles:
                    if not role.alive:
                        role.again()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def exported(self, session_id: str) -> bytes:
        return b"".join(self.client.export(session_id))

    def say(self, session_id: str, *texts: str, client: Client | None = None) -> None:
        for text in texts:
            event = {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": text}}
            (client or self.client).append(session_id, event)

    def logs(self) -> str:
        return "\n".join(f"--- {role.output.name}\n{role.log()[-1500:]}" for role in self.fleet.roles)

    def close(self) -> None:
        for client in self.clients:
            client.close()


@contextmanager
def erasing_installation(
    settings: Settings, *, roles: Sequence[str] = ROLES, gateways: int = 1, key: str | None = None
) -> Iterator[Erasing]:
    """Each of `roles` and `gateways`, up and serving. With `key` one that the log knows already."""
    key = key or key_administration(settings).create(WORKSPACE, ("admin", "agent-checkpoints:read", "agent-checkpoints:write"))[1]
    ports = free_ports(gateways)
    with Fleet(settings) as fleet:
        for role in roles:
            fleet.start(role)
        served = [
            Served(fleet.start("gateway", str(number), "--port", str(port)), f"http://127.0.0.1:{port}")
            for number, port in enumerate(ports)
        ]
        eventually(lambda: all(_serves(gateway, key) for gateway in served))
        made = Erasing(settings, fleet, served, key)
        try:
            yield made
        finally:
            made.close()


def _serves(gateway: Served, key: str) -> bool:
    assert gateway.process.alive, gateway.process.log()
    try:
        return httpx.get(f"{gateway.url}/v1/sessions", headers={"authorization": f"Bearer {key}"}, timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def secrets_of(data_dir: Path, subject_id: str, sessions: Iterable[str], snapshots: Iterable[str]) -> dict[str, bytes]:
    """What in today's keyring belongs to a subject alone, for a search: the secrets, as they are and as they are wrapped there, and the
    keyed hash of the name that the pseudonym stands for.

    `sessions` count only as far as their secrets are to go as well. Label -> bytes.
    """
    directory = data_dir / "keyring"
    ids: list[tuple[SecretKind, str]] = [("subject", subject_id)]
    ids += [("session", each) for each in sessions]
    ids += [("snapshot", each) for each in snapshots]
    refs = [SecretRef(kind, WORKSPACE, each) for kind, each in ids]
    with closing(open_local_keyring(directory)) as keyring:
        found = {f"secret {ref.kind}/{ref.id}": secret for ref, secret in keyring.secrets(refs, create=False).items()}
    with closing(sqlite3.connect(f"file:{directory / 'keyring.sqlite'}?mode=ro", uri=True)) as rows:
        names = [ref.name for ref in refs]
        marks = ",".join("?" * len(names))
        for name, wrapped in rows.execute(f"SELECT name, wrapped FROM secrets WHERE destroyed = 0 AND name IN ({marks})", names):
            found[f"wrapped {name}"] = bytes(wrapped)
        for (outside,) in rows.execute("SELECT outside_hash FROM pseudonyms WHERE forgotten = 0 AND pseudonym = ?", (subject_id,)):
            found[f"hash of the name behind {subject_id}"] = bytes(outside)
    return found


@contextmanager
def quick_broker(nodes: int = 1, *, data_dir: Path | None = None, **overrides: str) -> Iterator[LocalKafka]:
    with LocalKafka.start(
        nodes, data_dir=data_dir, overrides={**QUICK, **{name.replace("_", "."): each for name, each in overrides.items()}}
    ) as kafka:
        yield kafka


@contextmanager
def standing_still(fleet: Fleet, kafka: LocalKafka) -> Iterator[None]:
    """Every process and the broker, so that their files can be copied as they are at one moment."""
    roles = [role for role in fleet.roles if role.alive]
    for role in roles:
        role.pause()
    for node in kafka.node_ids:
        kafka.pause_node(node)
    try:
        yield
    finally:
        for node in kafka.node_ids:
            kafka.resume_node(node)
        for role in roles:
            role.proceed()
