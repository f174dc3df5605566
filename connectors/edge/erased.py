"""Which subjects and sessions are erased, as far as a process has to know in order to refuse at once.

What is sealed needs no list: without its secret nothing opens, and nothing is sealed. But a key that is restricted to an erased subject
opens nothing any more, events without content are events of somebody, and what is uploaded has a secret of its own. Orders tell of what
is erased from now on, before the holder confirms them; of what was erased before, the keyring tells when it is first asked for.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from streams.clock import now_us
from streams.custody.keyring import Keyring, SecretRef
from streams.errors import ContentUnavailable
from streams.log.retention import SESSION, SUBJECT, Order
from streams.session.words import CONTENT_ERASED

_REMEMBERED_MAX: Final = 200_000
"""Ids of each of the two sorts: 20 MB. One that is forgotten is asked for again."""


class Erased:
    """Thread-safe."""

    def __init__(self, keyring: Keyring, *, remembered_max: int = _REMEMBERED_MAX, clock: Callable[[], int] = now_us) -> None:
        self._keyring, self._max, self._clock = keyring, remembered_max, clock
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._there: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def told(self, orders: Sequence[Order]) -> None:
        """Of what is erased; other orders are passed over."""
        now = self._clock()
        self._remember({order.id: now for order in orders if order.kind in (SUBJECT, SESSION)}, ())

    def told_at(self, identifier: str) -> int:
        """When an order was heard of that erases it, in microseconds since the epoch; 0: none was, in this process."""
        return self._gone.get(identifier, 0)

    def known(self, refs: Collection[SecretRef]) -> bool | None:
        """Whether one of these is erased; None where only the keyring can tell. Does not block."""
        if any(ref.id in self._gone for ref in refs):
            return True
        return False if all(ref.id in self._there for ref in refs) else None

    def ask(self, refs: Collection[SecretRef]) -> bool:
        """As `known`; blocks on the keyring where that does not know. Raises `KeyringUnavailable`."""
        known = self.known(refs)
        if known is not None:
            return known
        destroyed = {ref.id for ref in self._keyring.destroyed(refs)}
        self._remember(dict.fromkeys(destroyed, 0), {ref.id for ref in refs} - destroyed)
        return bool(self.known(refs)) or bool(destroyed)

    def _remember(self, gone: Mapping[str, int], there: Collection[str]) -> None:
        with self._lock:
            for each, at in gone.items():
                self._gone.setdefault(each, at)
                self._there.pop(each, None)
            for each in there:
                # An order may have come between the keyring's answer and now.
                if each not in self._gone:
                    self._there[each] = None
            while len(self._gone) > self._max:
                self._gone.popitem(last=False)
            while len(self._there) > self._max:
                self._there.popitem(last=False)


def people_of(workspace_id: str, subject_id: str | None, *session_ids: str) -> tuple[SecretRef, ...]:
    """Whose erasure takes a thing away that concerns this subject and is of these sessions."""
    subject = () if subject_id is None else (SecretRef("subject", workspace_id, subject_id),)
    return (*subject, *[SecretRef("session", workspace_id, session_id) for session_id in session_ids])


def erased() -> ContentUnavailable:
    """Refuses what concerns somebody who is erased."""
    return ContentUnavailable("the session or its subject is erased", code=CONTENT_ERASED)
