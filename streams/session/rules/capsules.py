"""Continuation capsules: what the gateway has judged (`streams.capsules`), told of in the session that it is about.

A capsule and its imports are facts of their session, outside of all Runs: they change nothing but its counters. Whether a session is
idle is the gateway's to see, at the position that the command expects (`expected_sequence`): whatever moves in between refuses it.
"""

from collections.abc import Callable
from typing import Final

from streams.session import refusals
from streams.session.events import CapsuleAttributes, Draft, read
from streams.session.outcomes import Rejected
from streams.session.work import Work

_NEEDED: Final = {
    "capsule.created": ("capsule_id", "checkpoint_id", "through_sequence", "byte_count", "content_digest", "expires_at"),
    "capsule.revoked": ("capsule_id",),
    "capsule.imported": ("capsule_id", "import_id", "through_sequence", "byte_count", "content_digest", "target_digest", "expires_at"),
    "capsule.decided": ("outcome", "request_digest"),
}


def _told(event_type: str) -> Callable[[Work, Draft], Draft | Rejected]:
    def rule(work: Work, draft: Draft) -> Draft | Rejected:
        attributes = read(draft, CapsuleAttributes)
        missing = next((name for name in _NEEDED[event_type] if getattr(attributes, name) is None), None)
        if missing is not None:
            return refusals.invalid(work.index, f"attributes.{missing}")
        if (draft.run_id, draft.attempt_generation, draft.native_task_id) != (None, None, None):
            return refusals.invalid(work.index, "run_id")
        if event_type == "capsule.created" and work.command.expected_sequence is None:
            return refusals.invalid(work.index, "expected_sequence: the position at which the session was seen to be idle")
        return draft

    return rule


RULES: Final = {event_type: _told(event_type) for event_type in _NEEDED}
