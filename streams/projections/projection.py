"""What a projection is: a fold of one partition's events into rows, the same rows from the same events, always.

- A projection reads nothing but the event, its record and its own rows: no clock, no chance, no other partition. So a
  rebuild gives the same bytes, wherever the batches were cut.
- Its rows lie under key prefixes of its own.
- `version` rises whenever the same events would give other rows; the stores are then rebuilt, not migrated.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from streams.log.reader import Record
from streams.session.events import Event
from streams.store.table import Put, Reads


class Unreadable(Struct, frozen=True):
    """A record that no event could be made of. `reason` is a code, `session_id` what its key says, where that is an id."""

    offset: int
    reason: str
    session_id: str | None


class BatchFold(Protocol):
    """The fold over one batch. It is dropped with its batch, so nothing in it outlives a failed write."""

    def apply(self, event: Event, record: Record) -> None:
        """Raises `RecordUnreadable`, before it changes anything, where the event cannot follow what is there.

        Only the first of the projections may: those after it have no way back.
        """

    def set_aside(self, unreadable: Unreadable) -> None:
        """In the place of `apply`, for a record that cannot be read or cannot follow."""

    def awaited(self) -> Iterable[str]:
        """Names under which somebody may wait for what the batch brought (`Freshness.next_of`), beside the ids of its sessions."""

    def puts(self) -> Iterable[Put]:
        """The changed rows, each once."""


class Projection(Protocol):
    name: str
    version: int

    def begin(self, rows: Reads) -> BatchFold: ...
