"""Histories up to one consistent renaming of ids: every id becomes its kind and the order of its first appearance.

Two installations derive other ids from the same input, so equal histories are equal after this, and only then: one
table serves all sessions, so an id that is shared on one side has to be shared on the other.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

ID = re.compile(r"\b(ws|sess|sthr|run|turn|evt|cmd|art|eff|wait|appr|subj|actr|key|task|call|chld)_[0-9a-f]{32}\b")
COMPARED = (
    "sequence", "type", "event_id", "session_id", "workspace_id", "thread_id", "turn_id", "run_id", "attempt_generation", "native_task_id",
    "actor_id", "subject_id", "command_id", "command_last", "occurred_at", "links", "attributes", "content_state", "gap",
)  # fmt: skip


class Renaming:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        text = json.dumps(value, sort_keys=True)
        return json.loads(ID.sub(lambda match: self._names.setdefault(match[0], f"{match[1]}#{len(self._names)}"), text))


def canonical(histories: Iterable[list[dict[str, Any]]]) -> list[list[tuple[Any, Any]]]:
    """Each session as (structure renamed, content as it is), the sessions in an order that content alone decides."""
    renaming = Renaming()
    ordered = sorted(histories, key=lambda events: [json.dumps(event.get("content"), sort_keys=True) for event in events])
    return [[(renaming.of({name: event.get(name) for name in COMPARED}), event.get("content")) for event in events] for events in ordered]
