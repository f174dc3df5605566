"""Answers to reads, as they travel from the owner of a partition to a gateway (msgpack)."""

import base64
import binascii

from msgspec import Struct

from streams.errors import Invalid
from streams.projections.checkpoints import CheckpointRow
from streams.projections.sessions import SessionRow
from streams.projections.unsettled import Unsettled
from streams.session.ids import is_id


class Gap(Struct, frozen=True):
    """Events that are in the log and cannot be shown: those with sequences first..last (none known: last < first).

    `reason`: the code of `RecordUnreadable`. `offset`: the record's, where one was set aside.
    """

    first_sequence: int
    last_sequence: int
    reason: str
    offset: int | None = None


class EventsPage(Struct, frozen=True):
    """Raw values of consecutive events (`streams.log.record.decode_event`) and what is missing between them.

    `next_after`: the `after` of the next page; `end_sequence`: the session's last sequence as of this page.
    """

    session: SessionRow
    events: tuple[bytes, ...]
    gaps: tuple[Gap, ...]
    next_after: int

    @property
    def end_sequence(self) -> int:
        return self.session.sequence


class SessionsPage(Struct, frozen=True):
    """Newest first. `cursor`: what continues behind the last one; None at the end."""

    sessions: tuple[SessionRow, ...]
    cursor: str | None


class CheckpointsPage(Struct, frozen=True):
    """Newest first. `cursor`: what continues behind the last one; None at the end."""

    checkpoints: tuple[CheckpointRow, ...]
    cursor: str | None


class UnsettledPage(Struct, frozen=True):
    """What of a session nothing has ended yet, as of `session.sequence`: waits first, approvals last. `truncated`: there is more.

    `gaps`: a record of the session could not be read, so something may have begun that nobody sees.
    """

    session: SessionRow
    items: tuple[Unsettled, ...]
    truncated: bool
    gaps: bool


def checkpoints_before(cursor: str | None) -> int | None:
    """The sequence of the event that told of the last checkpoint of the page before. Raises `Invalid` (request.malformed)."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise Invalid("cursor: not one of ours", code="request.malformed")
    return int(cursor)


class ListingCursor(Struct, frozen=True, order=True):
    """The place of a session in a listing: the next page begins with what is older."""

    created_at: int
    session_id: str

    def __str__(self) -> str:
        raw = self.created_at.to_bytes(8, "big") + bytes.fromhex(self.session_id.removeprefix("sess_"))
        return base64.urlsafe_b64encode(raw).decode()

    @classmethod
    def parse(cls, text: str) -> "ListingCursor":
        """Raises `Invalid` (request.malformed)."""
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Invalid("cursor: not one of ours", code="request.malformed") from error
        cursor = cls(int.from_bytes(raw[:8], "big"), f"sess_{raw[8:].hex()}")
        if len(raw) != 24 or not is_id(cursor.session_id, "sess"):
            raise Invalid("cursor: not one of ours", code="request.malformed")
        return cursor
