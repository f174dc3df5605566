"""What the erasure of customers is proven in: their conversations beside transcripts of code, and whatever else is kept of them.

Everything is searched by `everywhere`, in which canaries lie, written there unsealed on purpose: a search that finds them, and nothing
else, has looked.
"""

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

import connectors.sources.samples
from connectors.cli.kafka import LocalKafka
from connectors.sources.ingest import run_ingest
from connectors.sources.rest import RestTransport
from session_streams import Client, Retries
from session_streams.export import Verdict, verify
from streams.log.topics import Topics
from streams.session.ids import is_id
from streams.settings import Settings
from streams.store.store import Store
from streams.store.table import StoreIdentity
from tests.support.customers import Customer, needles_of, written
from tests.support.erasing import Erasing, secrets_of, standing_still
from tests.support.reading_logs import consumed, dumped, records, stored
from tests.support.recovery_rows import worker_at
from tests.support.roles import WORKSPACE
from tests.support.searching import Needles, Search, search_twice

CANARIES: Final = {
    "canary of a log line": b"canary-of-a-log-line-7f31",
    "canary of a table": b"canary-of-a-table-18c0",
    "canary of a topic": b"canary-of-a-topic-e594",
}
DEAD_LETTER: Final = "this line of a transcript is broken, and kept sealed"
LARGE_TEXT_BYTES: Final = 9 << 20
"""More than a record holds, so it lies in the blob store."""
KIND: Final = "task_state"


@dataclass
class World:
    """`gone` are the customers who are to be erased, `kept` the others: pseudonyms by user id. `sessions` of a pseudonym; `others` are
    sessions of no customer. `secrets` are those of `gone`, as of before; `exports` are such as their callers keep, by session."""

    erasing: Erasing
    kafka: LocalKafka
    customers: Sequence[Customer]
    gone: dict[str, str]
    kept: dict[str, str]
    sessions: dict[str, list[str]]
    others: list[str]
    secrets: dict[str, bytes]
    exports: dict[str, bytes]
    checkpoints: list[tuple[str, str]]
    """Of `gone`: session and checkpoint."""
    states: dict[str, bytes]
    """Of their agents, as they lie sealed in the compacted topic: a stretch of each."""

    def compacted(self) -> Search:
        """The files of the topic of agents' checkpoints, for `states`."""
        topic = Topics(self.erasing.settings.topic_prefix).agent_checkpoints
        return search_twice(self.kafka.data_dir.rglob(f"{topic}-*"), Needles(self.states))

    def blobs(self) -> list[Path]:
        """What lies in the blob store of the sessions of `gone`."""
        folder = self.erasing.settings.data_dir / "blobs" / WORKSPACE
        return [path for session in self.sessions_gone for path in (folder / session).rglob("*") if path.is_file()]

    @cached_property
    def texts(self) -> dict[str, bytes]:
        """By what those who are to be erased would be known."""
        return needles_of(customer for customer in self.customers if customer.user_id in self.gone)

    @cached_property
    def needles(self) -> Needles:
        """These, and their secrets; what nobody may ever find in clear; and the canaries."""
        return Needles({**self.texts, **self.secrets, "dead letter": DEAD_LETTER.encode(), **CANARIES})

    @cached_property
    def telling(self) -> Needles:
        """Of the texts, those that only their own exports have shown: others say some of the same."""
        texts = self.texts
        sessions = set(self.sessions_gone)
        own = _labels_in((export for session, export in self.exports.items() if session in sessions), texts)
        return Needles({label: texts[label] for label in own - _labels_in(self.exports_of_others, texts)})

    def settings_at(self, bootstrap: str, data_dir: Path) -> Settings:
        """Of the same installation elsewhere."""
        return replace(self.erasing.settings, bootstrap=bootstrap, data_dir=data_dir)

    @property
    def sessions_gone(self) -> list[str]:
        return [session for subject in self.gone.values() for session in self.sessions[subject]]

    @property
    def exports_of_others(self) -> list[bytes]:
        sessions = set(self.sessions_gone)
        return [export for session, export in self.exports.items() if session not in sessions]

    def everywhere(self, needles: Needles) -> Search:
        """Files of broker, stores, blobs, keyring and logs; segments through the dump tool; records through a consumer; rows through
        iterators."""
        data_dir = self.erasing.settings.data_dir
        found = search_twice([self.kafka.data_dir, data_dir], needles)
        for more in (dumped(self.kafka.data_dir, needles), consumed(self.kafka.bootstrap, needles), stored(data_dir, needles)):
            assert more.bytes > 0
            found.add(more)
        return found


def _labels_in(exports: Iterable[bytes], texts: Mapping[str, bytes]) -> set[str]:
    needles = Needles(texts)
    return {label for export in exports for label in needles.in_bytes(export, "export").labels}


def made_world(
    erasing: Erasing, kafka: LocalKafka, customers: Sequence[Customer], transcripts: Sequence[Path], *, erase: int, work: Path
) -> World:
    """Takes everything in. `work` is a folder for what is not searched: files to take in."""
    ingested = [written(customers, work / "trajectories.json"), *_transcripts(work), *transcripts]
    taken = asyncio.run(_ingested(erasing, ingested))
    subjects = {customer.user_id: _known(erasing.subject_of(customer.user_id)) for customer in customers}
    names = [customer.user_id for customer in customers]
    checkpoints: list[tuple[str, str]] = []
    for number, customer in enumerate(customers[: erase + 2]):
        made = keep_for(erasing.client, customer, thoroughly=number in (0, erase))
        checkpoints += made if number < erase else []
    sessions = {subject: erasing.sessions_of(subject) for subject in subjects.values()}
    gone = {name: subjects[name] for name in names[:erase]}
    others = [session for session in taken if session not in {each for found in sessions.values() for each in found}]
    secrets: dict[str, bytes] = {}
    for subject in gone.values():
        secrets |= secrets_of(erasing.settings.data_dir, subject, (), _snapshots(erasing, sessions[subject]))
    leave_canaries(erasing, kafka)
    exports = {session: erasing.exported(session) for found in [*sessions.values(), others] for session in found}
    kept = {name: subjects[name] for name in names[erase:]}
    return World(
        erasing, kafka, customers, gone, kept, sessions, others, secrets, exports, checkpoints, _states(erasing, kafka, gone.values())
    )


def keep_for(client: Client, customer: Customer, *, thoroughly: bool) -> list[tuple[str, str]]:
    """An agent's checkpoint of a customer; thoroughly also a session at work, with a text that is too large for a record, a checkpoint
    and a fork by it: session and checkpoint, of both."""
    told = b"\n".join(customer.needles.values()).decode()
    for version in range(3):
        client.save_checkpoint(customer.user_id, KIND, {"version": version, "told": told}, ttl_seconds=3600)
    if not thoroughly:
        return []
    session = client.create_session(subject=customer.user_id, metadata={"customer": told})
    worker = worker_at(client, session.session_id).claim()
    worker.say(told)
    checkpoint = worker.checkpoint(snapshot=told.encode() * 20, native=told.encode())
    worker.say(told + "." * LARGE_TEXT_BYTES)
    named = {"checkpoint_id": checkpoint["checkpoint_id"]}
    fork = client.request("POST", f"/v1/sessions/{session.session_id}/forks", named).json()
    return [(each, checkpoint["checkpoint_id"]) for each in (session.session_id, fork["session_id"])]


class Erasure(NamedTuple):
    """As it was told at its end, one after the other; `appends` went on meanwhile."""

    told: list[dict[str, Any]]
    appends: "Appends"

    def times(self) -> str:
        """Seconds from one step to the next, the least and the most, for a person to read."""
        steps = ("accepted_at", "destroyed_at", "enforced_at", "complete_at")
        lines = []
        for before, after in pairwise(steps):
            passed = [(datetime.fromisoformat(each[after]) - datetime.fromisoformat(each[before])).total_seconds() for each in self.told]
            lines.append(f"{before} -> {after}: {min(passed):.3f} to {max(passed):.3f} s")
        return "\n".join(lines)


def erased_from(world: World, *, within_s: float = 120) -> Erasure:
    """Erases `gone`, while a session of nobody goes on."""
    erasing = world.erasing
    with Appends(erasing, world.others[0]) as appends:
        asked = [erasing.ask_erasure(name) for name in world.gone]
        assert {each["scope"]["id"] for each in asked} == set(world.gone.values())
        assert {each["status"] for each in asked} == {"accepted"}
        told = erasing.reached([each["erasure_id"] for each in asked], "complete", within_s=within_s)
        assert appends.alive
    assert appends.acknowledged
    return Erasure(told, appends)


def backed_up(world: World, folder: Path) -> Path:
    """`kafka` is the broker's data folder, `data` the installation's without its keyring, as of one moment."""
    with standing_still(world.erasing.fleet, world.kafka):
        shutil.copytree(world.kafka.data_dir, folder / "kafka")
        shutil.copytree(world.erasing.settings.data_dir, folder / "data", ignore=shutil.ignore_patterns("keyring"))
    return folder


def verified(export: bytes) -> Verdict:
    """Whose chain is whole."""
    verdict = verify(BytesIO(export))
    assert verdict.ok, verdict
    return verdict


def leave_canaries(erasing: Erasing, kafka: LocalKafka) -> None:
    """Unsealed: a line in the log of a process, a row of RocksDB, a record."""
    line, row, record = CANARIES.values()
    data_dir = erasing.settings.data_dir
    program = (
        f"from connectors.cli import logs; import structlog; logs.configure(); structlog.get_logger().info('said', what={line.decode()!r})"
    )
    with (data_dir / "canary-0.log").open("wb") as output:
        subprocess.run([sys.executable, "-c", program], stderr=output, check=True, cwd=Path(__file__).parents[2])
    with closing(Store.open(data_dir / "stores" / "canary" / "0" / "0", StoreIdentity("canary", 1, "cluster", "topic", 0))) as store:
        store.write([(b"key", row)], {})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(f"{erasing.settings.topic_prefix}sessions.deadletter", value=record, key=b"canary")
    assert producer.flush(10) == 0


class Appends:
    """Goes on appending to a session, until `stop`. `acknowledged` are the texts that were told to be in."""

    def __init__(self, erasing: Erasing, session_id: str) -> None:
        self.session_id, self.acknowledged = session_id, list[str]()
        self._erasing, self._over = erasing, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with Client(self._erasing.url, self._erasing.key, retries=Retries(total_s=60)) as client:
            while not self._over.wait(0.02):
                text = f"still here {len(self.acknowledged)}"
                client.append(self.session_id, {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": text}})
                self.acknowledged.append(text)

    def __enter__(self) -> "Appends":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


async def _ingested(erasing: Erasing, paths: Sequence[Path]) -> list[str]:
    async with RestTransport.connect(erasing.url, erasing.key) as transport:
        report = await run_ingest(paths, transport)
    assert report.ok, report.failures
    assert report.dead_letters == 1
    return report.session_ids


def _transcripts(work: Path) -> list[Path]:
    """Of coding agents, as they are shipped; one with a line that is broken."""
    samples = sorted(Path(connectors.sources.samples.__file__).parent.glob("*.jsonl"))
    broken = work / "broken.jsonl"
    broken.write_bytes(samples[-1].read_bytes() + b'{"type": "user", "text": "' + DEAD_LETTER.encode() + b"\n")
    return [*samples[:-1], broken]


def _known(subject: str | None) -> str:
    assert subject is not None
    return subject


def _states(erasing: Erasing, kafka: LocalKafka, subjects: Collection[str]) -> dict[str, bytes]:
    topic = Topics(erasing.settings.topic_prefix).agent_checkpoints
    found = {}
    for place, key, value, _ in records(kafka.bootstrap):
        if place.startswith(topic) and value and any(subject.encode() in key for subject in subjects):
            # A record ends with what is sealed.
            found[f"state at {place}"] = value[-80:-40]
    return found


def _snapshots(erasing: Erasing, sessions: Iterable[str]) -> list[str]:
    """Whose bytes lie in the blob store."""
    blobs = erasing.settings.data_dir / "blobs" / WORKSPACE
    names = (path.name.partition(".")[0] for session in sessions for path in (blobs / session).rglob("*"))
    return sorted({name for name in names if is_id(name, "snap")})
