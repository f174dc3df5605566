"""Event records as an authority writes them, without one: chained, with command offsets that rise and leave holes."""

from streams.log.partitioner import partition_of
from streams.log.reader import Record
from streams.log.record import encode_attributes, encode_draft, encode_event
from streams.session.chain import event_hash, genesis
from streams.session.events import (
    NO_CONTENT,
    Attributes,
    Content,
    Draft,
    KeyReference,
    MessageAttributes,
    SessionAttributes,
    SourceAttributes,
)
from streams.session.ids import derive_event_id
from tests.support.examples import made_up_id

TOPIC = "sessions.events"
WORKSPACE = made_up_id("ws")
NOON = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z in microseconds: when the first event of every log was accepted; each further one is a ms later."""


def session_id(label: object) -> str:
    return made_up_id("sess", label)


class EventLog:
    """One partition: `records` in order, whose offsets leave a hole after every command, as transaction markers do."""

    def __init__(self, partition: int = 0, first_offset: int = 0) -> None:
        self.partition = partition
        self.records: list[Record] = []
        self._offset = first_offset
        self._command_offset = 0
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._now = NOON

    @property
    def end(self) -> int:
        return self._offset

    @property
    def commands(self) -> int:
        """What `commands` is once all of this is applied."""
        return self._command_offset

    def create(self, label: object, *, subject_id: str | None = None, workspace_id: str = WORKSPACE) -> str:
        attributes = SessionAttributes(origin="live", policy_mode="standard", content_window_days=30)
        session = session_id(label)
        self.command(session, [("session.created", attributes)], subject_id=subject_id, workspace_id=workspace_id)
        return session

    def say(self, session: str, count: int = 1, *, ciphertext: bytes = b"", **more: object) -> list[Record]:
        """A command of `count` messages."""
        return self.command(session, [("message.appended", MessageAttributes(role="user"))] * count, ciphertext=ciphertext, **more)

    def source(self, session: str, index: int, digest: str = "sha256:" + "0" * 64) -> list[Record]:
        attributes = SourceAttributes(source_kind="claude-code", source_record_kind="summary", source_index=index, source_digest=digest)
        return self.command(session, [("source.recorded", attributes)])

    def close(self, session: str) -> list[Record]:
        return self.command(session, [("session.closed", SessionAttributes(reason="done"))])

    def command(
        self,
        session: str,
        events: list[tuple[str, Attributes | None]],
        *,
        subject_id: str | None = None,
        workspace_id: str = WORKSPACE,
        ciphertext: bytes = b"",
        **fields: object,
    ) -> list[Record]:
        """`fields`: more of each draft."""
        command_id = made_up_id("cmd", self._command_offset)
        content = Content("sealed", KeyReference(subject_id, session, "2027-01-02"), ciphertext, bytes(32)) if ciphertext else NO_CONTENT
        made = []
        for index, (event_type, attributes) in enumerate(events):
            draft = Draft(
                event_id=derive_event_id(command_id, index), session_id=session, type=event_type, workspace_id=workspace_id,
                subject_id=subject_id, command_id=command_id, attributes=attributes,
                content=content, **fields,
            )  # type: ignore[arg-type]  # fmt: skip
            made.append(self._accept(draft, index == len(events) - 1))
        self._command_offset += 2
        self._offset += 1
        return made

    def skip(self, session: str, count: int = 1) -> None:
        """Accepts events that are not in the log that is handed out: readers meet a hole in the sequences."""
        for _ in range(count):
            sequence, last = self._heads[session]
            self._heads[session] = (sequence + 1, last)

    def wait(self, minutes: int) -> None:
        """What comes is accepted so much later."""
        self._now += minutes * 60_000_000

    def append(self, key: bytes | None, value: bytes | None) -> Record:
        """Any record."""
        record = Record(TOPIC, self.partition, self._offset, key, value, 0)
        self._offset += 1
        self.records.append(record)
        return record

    def _accept(self, draft: Draft, command_last: bool) -> Record:
        previous, last_hash = self._heads.get(draft.session_id, (0, genesis(draft.session_id)))
        added = {
            "sequence": previous + 1, "command_offset": self._command_offset, "command_last": command_last,
            "accepted_at": self._now, "previous_hash": last_hash,
        }  # fmt: skip
        hash_ = event_hash(draft, encode_attributes(draft.type, draft.attributes), **added)
        self._heads[draft.session_id] = (previous + 1, hash_)
        self._now += 1000
        return self.append(draft.session_id.encode(), encode_event(encode_draft(draft), **added, hash=hash_))


def in_partition(partition: int, partitions: int, start: int = 0) -> int:
    """A label whose session lies in that partition."""
    label = start
    while partition_of(session_id(label).encode(), partitions) != partition:
        label += 1
    return label
