"""Tool calls and their results, paired within one source by the source's own tool ids.

A tool id may repeat (a trajectory numbers its calls anew, a transcript may be replayed): every occurrence is a call of
its own, and a result answers the oldest open one. A result without any call is a typed gap, a call without a result
stays open; neither is an error.
"""

from collections import defaultdict, deque

from connectors.sources.bodies import outside_id

CALL_MISSING = "call_missing"


class ToolCalls:
    """The calls seen so far. `scope` keeps sources of one session apart."""

    def __init__(self, session_id: str, scope: str) -> None:
        self._session_id = session_id
        self._scope = scope
        self._seen: defaultdict[str, int] = defaultdict(int)
        self._open: defaultdict[str, deque[str]] = defaultdict(deque)
        self._latest: dict[str, str] = {}

    def called(self, tool_id: str) -> str:
        """The id of a new call."""
        call_id = outside_id("call", self._session_id, self._scope, tool_id, str(self._seen[tool_id]))
        self._seen[tool_id] += 1
        self._open[tool_id].append(call_id)
        self._latest[tool_id] = call_id
        return call_id

    def returned(self, tool_id: str) -> tuple[str, str | None]:
        """The id of the call that a result answers, and the gap where the source has no such call."""
        waiting = self._open.get(tool_id)
        if waiting:
            return waiting.popleft(), None
        known = self._latest.get(tool_id)
        if known is not None:
            return known, None
        return outside_id("call", self._session_id, self._scope, tool_id, "missing"), CALL_MISSING

    def known(self, tool_id: object) -> str | None:
        """The latest call under this tool id."""
        return self._latest.get(tool_id) if isinstance(tool_id, str) else None
