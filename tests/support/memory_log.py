"""A log and its authority in memory: the pure core decides what is sent, and a table folds what comes of it."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from msgspec import structs

from streams.errors import StreamsError
from streams.log.partitioner import partition_of
from streams.log.record import decode_command, encode_attributes, encode_draft, encode_event
from streams.projections.sessions import SessionRow, SourceCursor
from streams.session import chain
from streams.session.commands import Command, Kind
from streams.session.dead_letters import DeadLetter
from streams.session.decide import decide
from streams.session.events import SessionAttributes
from streams.session.items import SessionState, session_of
from streams.session.outcomes import ACCEPTED, REJECTED, Outcome, Rejected
from streams.session.state import DictItems
from streams.settings import Settings
from tests.support.owner_table import OwnerTable


class MemoryLog:
    """Commands go in, outcomes come back by the loop's next turn; dead letters are kept as they are."""

    def __init__(self, settings: Settings) -> None:
        self.rows: dict[str, SessionRow] = {}
        self.table = OwnerTable()
        self.events: dict[str, list[bytes]] = {}
        self.commands: list[Command] = []
        self.values: list[bytes] = []
        self.letters: list[DeadLetter] = []
        self.withhold = 0
        self.mute = 0
        self.undeliverable: StreamsError | None = None
        self.settle: Callable[[list[Outcome]], None] = lambda outcomes: None
        self._settings = settings
        self._offsets = itertools.count()
        self._erasures = itertools.count()
        self._items: dict[str, DictItems] = {}
        self._told: dict[str, tuple[bytes, Outcome]] = {}

    def partition_of(self, session_id: str) -> int:
        return partition_of(session_id.encode(), self._settings.partitions)

    def send(self, value: bytes, session_id: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None:
        if self.undeliverable is not None:
            assert on_done is not None
            on_done(self.undeliverable)
            return
        command = decode_command(value)
        assert command.session_id == session_id
        if self.mute:
            self.mute -= 1
            return
        self.commands.append(command)
        self.values.append(value)
        outcome = structs.replace(self._decided(command), correlation=command.correlation)
        if self.withhold:
            self.withhold -= 1
            return
        self.settle([outcome])

    def erase(self, session_id: str) -> None:
        """As the custodian tells the authority of it."""
        command = Command(
            command_id=f"cmd_{next(self._erasures):032x}", session_id=session_id, workspace_id=self.rows[session_id].workspace_id,
            kind=Kind.ERASE, principal_id="key_" + "0" * 32, request_digest=bytes(32), issued_at=0, not_after=2**62,
        )  # fmt: skip
        assert self._decided(command).status == ACCEPTED

    def send_dead_letter(self, letter: DeadLetter, key: str, on_done: Callable[[StreamsError | None], None]) -> None:
        self.letters.append(letter)
        on_done(self.undeliverable)

    def _decided(self, command: Command) -> Outcome:
        known = self._told.get(command.command_id)
        if known is not None:
            if known[0] != command.request_digest:
                return self._refused(command, Rejected("request.idempotency_mismatch", "another request"))
            return structs.replace(known[1], repeated=True)
        items = self._items.setdefault(command.session_id, DictItems())
        offset = next(self._offsets)
        decision = decide(items, command, time.time_ns() // 1000, offset)
        if isinstance(decision, Rejected):
            outcome = self._refused(command, decision)
        else:
            header = session_of(items)
            told = len(self.events.get(command.session_id, []))
            previous = chain.genesis(command.session_id) if header is None else header.last_hash
            for index, draft in enumerate(decision.drafts):
                added: dict[str, Any] = {
                    "sequence": decision.first_sequence + index, "command_offset": offset,
                    "command_last": index == len(decision.drafts) - 1, "accepted_at": decision.accepted_at, "previous_hash": previous,
                }  # fmt: skip
                attributes = encode_attributes(draft.type, draft.attributes)
                previous = chain.event_hash(draft, attributes, **added)
                self.events.setdefault(command.session_id, []).append(encode_event(encode_draft(draft), **added, hash=previous))
            items.put(decision.chained(previous) if decision.drafts else decision.changed)
            header = items.get("session", "")
            assert isinstance(header, SessionState)
            self.table.apply(command.session_id, self.events.get(command.session_id, [])[told:])
            self._fold(header, decision.drafts)
            for sent in decision.sent:
                self._decided(sent)
            outcome = Outcome(
                command_id=command.command_id, correlation=0, session_id=command.session_id, status=ACCEPTED,
                first_sequence=decision.first_sequence, last_sequence=header.sequence, position_offset=header.last_command_offset,
                decided_at=decision.accepted_at, grant=decision.grant, actual_run_sequence=decision.run_sequence,
            )  # fmt: skip
        self._told[command.command_id] = (command.request_digest, outcome)
        return outcome

    def _refused(self, command: Command, rejected: Rejected) -> Outcome:
        header = session_of(self._items.get(command.session_id, DictItems()))
        return Outcome(
            command_id=command.command_id, correlation=0, session_id=command.session_id, status=REJECTED, code=rejected.code,
            detail=rejected.detail, last_sequence=0 if header is None else header.sequence, decided_at=0,
            actual_run_sequence=rejected.actual_run_sequence, missing=rejected.missing,
        )  # fmt: skip

    def _fold(self, header: SessionState, drafts: tuple[Any, ...]) -> None:
        row = self.rows.get(header.session_id)
        folded = self.table.model.session(header.workspace_id, header.session_id)
        counts = {} if row is None else dict(row.counts)
        source = None if row is None else row.source
        for draft in drafts:
            counts[draft.type] = counts.get(draft.type, 0) + 1
            index = getattr(draft.attributes, "source_index", None)
            if index is not None:
                source = SourceCursor(draft.attributes.source_kind, index, draft.attributes.source_digest)
            if isinstance(draft.attributes, SessionAttributes) and draft.type == "session.created":
                origin = draft.attributes.origin
        self.rows[header.session_id] = SessionRow(
            header.session_id, header.workspace_id, header.subject_id, header.status, origin if row is None else row.origin,
            header.policy_mode, header.content_window_days, header.created_at, header.last_accepted_at, header.sequence,
            header.last_command_offset, counts, source, folded.checkpoint_window_s, folded.lineage,
        )  # fmt: skip
