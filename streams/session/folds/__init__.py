"""What each type of event means for the items of a session. A fold judges nothing; the tables of `lifecycles` bind it.

A fold gives the items that the event changes, as they are after it, but for the counters that every event moves (the
header's, its Run's): those are the caller's. An event that no legal history holds is RuntimeError.
"""

from typing import Final

from streams.session.folds import checkpoints, effects, interactions, runs, sessions
from streams.session.folds.common import Fold

FOLDS: Final[dict[str, Fold | None]] = {
    **sessions.FOLDS,
    **runs.FOLDS,
    **interactions.FOLDS,
    **effects.FOLDS,
    **checkpoints.FOLDS,
    "message.appended": None,
    "source.recorded": None,
    "tool.called": None,
    "tool.returned": None,
    "artifact.recorded": None,
    "capsule.created": None,
    "capsule.revoked": None,
    "capsule.imported": None,
    "capsule.decided": None,
}
"""What each type changes beside the counters; None: nothing."""
