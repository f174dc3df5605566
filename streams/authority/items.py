"""The authority's state, an item a record: `session/kind/id` in the changelog and in the store.

Kept per item, so an event costs the same in a session of 100,000 Runs as in a new one. Sessions that were at work lately
stay in memory as typed items (`HotSessions`), within a bound of bytes; everything in it is either in the store or in the
batch at hand, and an abort or a change of partitions empties it (`Handler.discard`).
"""

from collections import OrderedDict
from typing import Final

from streams.authority.encoding import decode_state, encode_header, encode_state, header_prefix
from streams.loop.step import Step
from streams.session.items import Item, ItemKey, SessionState

_ITEM_BYTES: Final = 600
"""What an item takes in memory beside its encoded length: the record, its strings, its place here."""
_SESSION_BYTES: Final = 800
_LARGEST: Final = 64 * 1024
"""Bytes of one session that are kept: one of many open items is read from the store again."""


def state_key(session_id: str, kind: str, item_id: str) -> bytes:
    """Of a record of the changelog, and of its row."""
    return f"{session_id}/{kind}/{item_id}".encode()


class SessionItems:
    """The items of one session: read once, encoded once a step."""

    def __init__(self, session_id: str, partition: int) -> None:
        self.session_id = session_id
        self.partition = partition
        self.bytes = _SESSION_BYTES
        """About what it takes in memory."""
        self._step: Step | None = None
        self._known: dict[ItemKey, Item | None] = {}
        self._sizes: dict[ItemKey, int] = {}
        self._dirty: set[ItemKey] = set()
        self._prefix: tuple[str, bytes] | None = None
        """Of the header, and the status that stands in it."""

    def begin(self, step: Step) -> None:
        """From now on items are read through this step."""
        self._step = step

    def get(self, kind: str, item_id: str) -> Item | None:
        """Between `begin` and `flush`. Raises as `Step.get`, and `StoreUnusable` for what cannot be read."""
        key = (kind, item_id)
        known = self._known
        if key in known:
            return known[key]
        assert self._step is not None
        return self.read(key, self._step.get(state_key(self.session_id, kind, item_id)))

    def read(self, key: ItemKey, value: bytes | None) -> Item | None:
        """Takes note of what the store holds under a key."""
        item = self._known[key] = None if value is None else decode_state(key[0], value)
        self._measured(key, 0 if value is None else len(value))
        return item

    def put(self, changed: dict[ItemKey, Item]) -> None:
        """Seen by `get` at once, handed to the step by `flush`."""
        self._known.update(changed)
        self._dirty.update(changed)

    def flush(self) -> None:
        """Hands every changed item to the step: one changelog record an item, however many events changed it."""
        assert self._step is not None
        dirty = self._dirty
        for key in sorted(dirty) if len(dirty) > 1 else dirty:
            item = self._known[key]
            assert item is not None
            kind, item_id = key
            value = self._encoded_header(item) if type(item) is SessionState else encode_state(kind, item)
            self._step.put(state_key(self.session_id, kind, item_id), value)
            self._measured(key, len(value))
        dirty.clear()
        self._step = None

    def _encoded_header(self, header: SessionState) -> bytes:
        if self._prefix is None or self._prefix[0] != header.status:
            self._prefix = (header.status, header_prefix(header))
        return encode_header(self._prefix[1], header)

    def _measured(self, key: ItemKey, encoded: int) -> None:
        size = _ITEM_BYTES + encoded
        self.bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size


class HotSessions:
    """The sessions used last, at most `limit_bytes` of them. Called from the loop's thread only."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._sessions: OrderedDict[str, SessionItems] = OrderedDict()

    def take(self, session_id: str, partition: int) -> SessionItems:
        """The session's items, which are the caller's until `keep`."""
        items = self._sessions.pop(session_id, None)
        if items is None:
            return SessionItems(session_id, partition)
        self._bytes -= items.bytes
        return items

    def keep(self, items: SessionItems) -> None:
        """Lets go of those used longest ago where there are too many."""
        if items.bytes > _LARGEST:
            return
        self._sessions[items.session_id] = items
        self._bytes += items.bytes
        while self._sessions and self._bytes > self._limit:
            _, oldest = self._sessions.popitem(last=False)
            self._bytes -= oldest.bytes

    def holds(self, session_id: str, partition: int) -> bool:
        """Whether it is here, taken over with this partition."""
        items = self._sessions.get(session_id)
        return items is not None and items.partition == partition

    def clear(self) -> None:
        self._sessions.clear()
        self._bytes = 0
