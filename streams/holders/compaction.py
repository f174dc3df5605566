"""How long what a tombstone stands for may lie in the files of live replicas (design 09, "Bound to promise")."""

from typing import Final

from streams.settings import Settings

NUDGE_S: Final = 1.0
"""Between two records that let a quiet partition begin a new segment: the active one is never cleaned."""


def compaction_bound_s(settings: Settings) -> float:
    """From the tombstone to the end of the old value's file, in seconds:

      transaction.timeout                             a transaction that was open keeps the cleaner away
    + min(segment.ms, max.compaction.lag.ms)          until the segment is closed and due
    + nudge
    + margin                                          the abort scan (10 s), the cleaner's back-off (15 s) and its work (a minute)
    + file.delete.delay.ms                            until the removed segment's file goes
    """
    return (
        settings.transaction_timeout_s
        + min(settings.compacted_segment_s, settings.compaction_lag_s)
        + NUDGE_S
        + settings.compaction_margin_s
        + settings.file_delete_delay_s
    )
