"""Sessions with subjects, forks and uploads on the simulated cluster, orders to erase them, and what has to be true of it in the end."""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streams.custodian.backlog import Backlog
from streams.custodian.custodian import ROLE
from streams.custodian.following import ancestors_of
from streams.custodian.removing import Done, Job
from streams.custody.days import content_expiry_day
from streams.custody.keyring import SecretRef
from streams.holders.orders import Orders
from streams.log.record import decode_event, decode_outcomes
from streams.log.retention import SESSION, Order, Purged, RetentionRow, decode_retention
from streams.session.commands import Kind
from streams.session.events import (
    SEALED,
    CheckpointAttributes,
    Content,
    Event,
    KeyReference,
    MessageAttributes,
    SessionAttributes,
)
from streams.session.outcomes import ACCEPTED, Grant
from tests.support.commands import WINDOW_DAYS, WORKSPACE, command, draft, new_id, new_marker
from tests.support.timekeeping import TOPICS, Process, World

Blob = tuple[str, str]
"""Session, and the upload or the event whose text it is."""


class RemoverInMemory:
    """Does what it was given when `work` is called."""

    def __init__(self, blobs: set[Blob], secrets: set[SecretRef]) -> None:
        """`secrets` are those that it has destroyed."""
        self._blobs, self._secrets = blobs, secrets
        self.jobs: deque[Job] = deque()
        self._done: dict[int, list[Done]] = {}

    def room(self, *, expired: bool) -> int:
        return 8 - len(self.jobs)

    def submit(self, jobs: Sequence[Job]) -> None:
        self.jobs.extend(jobs)

    def has_done(self, partition: int) -> bool:
        return bool(self._done.get(partition))

    def taken(self, partition: int, limit: int) -> list[Done]:
        return self._done.pop(partition, [])

    def forget(self) -> None:
        self.jobs.clear()
        self._done.clear()

    def work(self) -> None:
        while self.jobs:
            job, gone = self.jobs.popleft(), set[Blob]()
            for discard in job.discards:
                session_id, upload_id = discard.place.session_id, discard.upload_id
                gone |= {blob for blob in self._blobs if blob[0] == session_id and upload_id in (None, blob[1])}
            self._blobs -= gone
            self._secrets.update(job.secrets)
            texts = sum(name.startswith("evt_") for _, name in gone)
            self._done.setdefault(job.partition, []).append(Done(job, len(gone) - texts, texts))


class Told:
    """What the partitions of a process say, checked as they say it."""

    def __init__(self, world: "ErasingWorld") -> None:
        self._world = world

    def told(self, partition: int, enforced_through: int, purged_through: int, purged: Sequence[Purged] = ()) -> None:
        assert enforced_through >= purged_through
        self._world.check(partition, purged_through)
        self._world.purged[partition] = purged_through
        for each in purged:
            self._world.reports[partition, each.order] = each.counts

    def again(self) -> None:
        """Nothing is lost here."""


class ErasingWorld(World):
    """`blobs` are what lies in the blob store; `held` stops those who remove; `unheard` keeps orders from the custodians."""

    def __init__(self, folder: Path, partitions: int = 2, **settings: Any) -> None:
        super().__init__(folder, partitions)
        self.settings = replace(self.settings, **settings)
        self.blobs: set[Blob] = set()
        self.destroyed: set[SecretRef] = set()
        self.orders: list[Order] = []
        self.known: list[list[int]] = []
        """For each order, how many events each partition had."""
        self.held = self.unheard = False
        self.purged: dict[int, int] = {}
        self.reports: dict[tuple[int, int], dict[str, int]] = {}
        self.believed = True

    def parts(self, process: Process) -> dict[str, Any]:
        return {
            "orders": Orders(), "backlog": Backlog(), "holders": Told(self), "remover": RemoverInMemory(self.blobs, self.destroyed),
            "may_destroy": lambda now: self.believed,
        }  # fmt: skip

    def claimed_in(self, session_id: str) -> Grant:
        """A worker's, for ever."""
        asked = self.claim(session_id, self.run(session_id), 600)
        self.settle()
        grant = self.outcome(asked).grant
        assert grant is not None
        return grant

    def step(self, role: str, instance: str = "0") -> bool:
        parts = self.processes[role, instance].parts
        if role == ROLE:
            if not self.unheard:
                for order in self.orders:
                    parts["orders"].add(order)
            if parts["orders"].reached > parts["backlog"].known:
                places = range(self.settings.partitions)
                ends = {each: self.cluster.high_watermark((TOPICS.events, each)) for each in places}
                parts["backlog"].note(parts["orders"].reached, ends)
            if not self.held:
                parts["remover"].work()
        return super().step(role, instance)

    # -- what clients do --------------------------------------------------------------------------------------------------

    def erase(self, kind: str, identifier: str) -> int:
        order = Order(len(self.orders) + 1, kind, WORKSPACE, identifier)
        self.known.append([len(self._events_in(each)) for each in range(self.settings.partitions)])
        self.orders.append(order)
        return order.order

    def begin(self, subject_id: str | None = None) -> str:
        session_id, command_id = new_id("sess"), new_id("cmd")
        attributes = SessionAttributes(origin="live", policy_mode="standard", content_window_days=WINDOW_DAYS)
        created = draft(session_id, command_id, 0, "session.created", attributes, subject_id=subject_id)
        self.send(command(session_id, (created,), command_id=command_id))
        return session_id

    def say(self, session_id: str, subject_id: str | None = None) -> str:
        """The event; its text lies in the blob store."""
        command_id, marker = new_id("cmd"), new_marker()
        reference = KeyReference(subject_id, session_id, content_expiry_day(self.now, WINDOW_DAYS))
        content = Content("sealed", reference, marker, hashlib.sha256(marker).digest())
        told = draft(session_id, command_id, 0, "message.appended", MessageAttributes(role="user"), content, subject_id=subject_id)
        self.blobs.add((session_id, told.event_id))
        self.send(command(session_id, (told,), command_id=command_id))
        return told.event_id

    def upload(self, session_id: str) -> str:
        upload_id = new_id("snap")
        self.blobs.add((session_id, upload_id))
        return upload_id

    def checkpoint(self, session_id: str, grant: Grant, upload_id: str) -> str:
        checkpoint_id, last = new_id("ckpt"), [each for each in self.events() if each.session_id == session_id][-1]
        attributes = CheckpointAttributes(
            checkpoint_id=checkpoint_id, through_sequence=last.sequence, through_event_id=last.event_id, through_hash=last.hash.hex(),
            continuation_kind="event_log_rebuild", snapshot_kind="stored", snapshot_id=upload_id, snapshot_bytes=1,
            snapshot_digest="sha256:" + "0" * 64,
        )  # fmt: skip
        self.tell(session_id, "checkpoint.created", attributes, self.report(grant), run_id=grant.run_id)
        return checkpoint_id

    def fork(self, session_id: str) -> None:
        last, command_id = [each for each in self.events() if each.session_id == session_id][-1], new_id("cmd")
        attributes = SessionAttributes(
            fork_id=new_id("fork"), through_sequence=last.sequence, through_event_id=last.event_id, source_hash=last.hash.hex()
        )
        forked = draft(session_id, command_id, 0, "session.forked", attributes)
        self.send(command(session_id, (forked,), command_id=command_id, kind=Kind.FORK))

    # -- what is true -----------------------------------------------------------------------------------------------------

    def created(self) -> dict[str, Event]:
        """Every session that was begun."""
        return {event.session_id: event for event in self.events() if event.type == "session.created"}

    def scope(self, order: Order) -> dict[str, Kind]:
        """What an order means for which session."""
        scope = {}
        for session_id, created in self.created().items():
            assert isinstance(created.attributes, SessionAttributes)
            if order.id in (created.subject_id, session_id):
                scope[session_id] = Kind.ERASE
            elif order.kind == SESSION and order.id in ancestors_of(created.attributes):
                scope[session_id] = Kind.DISINHERIT
        return scope

    def through(self, session_id: str, kind: Kind) -> int | None:
        """Up to where its authority has erased a session."""
        asked = {each.command_id for each in self.asked() if (each.session_id, each.kind) == (session_id, kind)}
        found = [told.last_sequence for told in self._custodians_outcomes() if told.command_id in asked and told.status == ACCEPTED]
        return max(found, default=None)

    def check(self, partition: int, purged_through: int) -> None:
        """What a partition says is so: of everything that had been accepted when an order was given."""
        for order, known in zip(self.orders[:purged_through], self.known, strict=False):
            events = self._events_in(partition)[: known[partition]]
            for session_id, kind in self.scope(order).items():
                self._check_session(session_id, kind, [each for each in events if each.session_id == session_id])

    def check_end(self) -> None:
        """Once everything was done: all of the scope is erased, and nothing else is touched."""
        assert self.purged == dict.fromkeys(range(self.settings.partitions), len(self.orders))
        scopes = [self.scope(order) for order in self.orders]
        for scope in scopes:
            for session_id, kind in scope.items():
                self._check_session(session_id, kind, [each for each in self.events() if each.session_id == session_id])
        concerned = {(session_id, kind) for scope in scopes for session_id, kind in scope.items()}
        assert {(each.session_id, each.kind) for each in self.asked() if each.kind in (Kind.ERASE, Kind.DISINHERIT)} == concerned

    def expected_blobs(self, made: set[Blob]) -> set[Blob]:
        """Which of those that were made have to be there still."""
        left = set(made)
        for order in self.orders:
            for session_id, kind in self.scope(order).items():
                if kind == Kind.ERASE:
                    left -= {blob for blob in made if blob[0] == session_id}
                else:
                    through = self.through(session_id, kind) or 0
                    named = self._named([each for each in self.events() if each.session_id == session_id and each.sequence <= through])
                    left -= {(session_id, upload_id) for upload_id in named}
        return left

    def retention(self) -> dict[str, RetentionRow]:
        """Checkpoints and capsules as `sessions.retention` has them; each is told once."""
        rows = [decode_retention(entry.value) for entry in self.cluster.committed((TOPICS.retention, 0)) if entry and entry.value]
        assert len({row.id for row in rows}) == len(rows)
        return {row.id: row for row in rows}

    def _check_session(self, session_id: str, kind: Kind, events: Sequence[Event]) -> None:
        if not events:
            return
        through = self.through(session_id, kind)
        assert through is not None
        if kind == Kind.ERASE:
            bearing = [each for each in events if each.content.state == SEALED or each.type == "checkpoint.created"]
            assert through >= max([each.sequence for each in bearing], default=0)
            gone = {each.event_id for each in events} | self._named(events)
        else:
            gone = self._named([each for each in events if each.sequence <= through])
        assert not {name for owner, name in self.blobs if owner == session_id} & gone

    @staticmethod
    def _named(events: Sequence[Event]) -> set[str]:
        own = [
            each.attributes for each in events if isinstance(each.attributes, CheckpointAttributes) and each.type == "checkpoint.created"
        ]
        return {each.snapshot_id for each in own if each.snapshot_id is not None and each.fork_id is None}

    def _events_in(self, partition: int) -> list[Event]:
        return [decode_event(entry.value) for entry in self.cluster.committed((TOPICS.events, partition)) if entry.value]

    def _custodians_outcomes(self) -> list[Any]:
        found = []
        for partition in range(self.settings.partitions):
            for entry in self.cluster.committed((TOPICS.outcomes, partition)):
                if entry.key is not None and entry.key.startswith(ROLE.encode()) and entry.value:
                    found.extend(decode_outcomes(entry.value)[1])
        return found
