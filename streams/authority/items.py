"""The authority's state, an item a record: `session/kind/id` in the changelog and in the store.

Kept per item, so an event costs the same in a session of 100,000 Runs as in a new one.
"""

from streams.authority.encoding import decode_state, encode_state
from streams.loop.step import Step
from streams.session.items import Item, ItemKey


def state_key(session_id: str, kind: str, item_id: str) -> bytes:
    return f"{session_id}/{kind}/{item_id}".encode()


class StepItems:
    """The items of one session as a step sees them; decoded once a step, encoded once at its end."""

    def __init__(self, step: Step, session_id: str) -> None:
        self._step, self._session_id = step, session_id
        self._known: dict[ItemKey, Item | None] = {}
        self._dirty: set[ItemKey] = set()

    def get(self, kind: str, item_id: str) -> Item | None:
        key = (kind, item_id)
        if key in self._known:
            return self._known[key]
        value = self._step.get(state_key(self._session_id, kind, item_id))
        item = self._known[key] = None if value is None else decode_state(kind, value)
        return item

    def put(self, changed: dict[ItemKey, Item]) -> None:
        self._known.update(changed)
        self._dirty.update(changed)

    def flush(self) -> None:
        """Hands every changed item to the step: one changelog record an item, however many events changed it."""
        for kind, item_id in sorted(self._dirty):
            item = self._known[(kind, item_id)]
            assert item is not None
            self._step.put(state_key(self._session_id, kind, item_id), encode_state(kind, item))
        self._dirty.clear()
