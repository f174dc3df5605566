"""Whoever sits at the other side: answers waits and decides approvals as they come, until told to stop or the session ends.

It reads the session from its beginning, so what was asked while nobody sat there is answered too; what is settled already is passed
over. A timer is nobody's to answer: it expires.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from session_streams import Client, Conflict, Event, SessionStreamsError

_POLL_S: Final = 0.05
_SETTLED: Final = frozenset({"runtime.already_settled", "runtime.wait_expired", "runtime.approval_expired"})


class Desk:
    """On a thread of its own within the block. `decision` is asked about each action's digest."""

    def __init__(self, client: Client, session_id: str, *, decision: Callable[[str], str] = lambda _: "granted") -> None:
        self._client, self._session_id, self._decision = client, session_id, decision
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)
        self.answered = self.decided = 0

    def look(self, after: int) -> int:
        """Answers what stands behind `after`; returns how far it has read. Raises what the client raises."""
        for event in self._client.events(self._session_id, after_sequence=after):
            after = event.sequence
            if event.type == "wait.opened" and event.attributes["kind"] != "timer":
                self.answered += self._tell(f"waits/{event.attributes['wait_id']}/answer", {"content": {"answer": "go on"}}, event)
            elif event.type == "approval.requested":
                digest = event.attributes["action_digest"]
                body = {"decision": self._decision(digest), "action_digest": digest, "content": {"because": "asked"}}
                self.decided += self._tell(f"approvals/{event.attributes['approval_id']}/decide", body, event)
        return after

    def _tell(self, path: str, body: dict[str, Any], event: Event) -> int:
        try:
            self._client.request("POST", f"/v1/sessions/{self._session_id}/{path}", body, key=f"desk/{event.event_id}")
        except Conflict as refused:
            if refused.code not in _SETTLED:
                raise
            return 0
        return 1

    def _run(self) -> None:
        after = 0
        while not self._stop.is_set():
            try:
                after = self.look(after)
            except SessionStreamsError:
                # The service is away; what is asked is still there when it is back.
                time.sleep(_POLL_S)
            self._stop.wait(_POLL_S)

    def __enter__(self) -> "Desk":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
