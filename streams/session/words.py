"""Words of structural fields that rules, folds and readers of events go by. Which field may hold which one, `vocabulary.py` says."""

from typing import Final

LIVE: Final = "live"
IMPORTED: Final = "imported"

STANDARD: Final = "standard"
ZDR: Final = "zdr"
"""Zero data retention."""

RESTORE: Final = "checkpoint_restore"
REBUILD: Final = "event_log_rebuild"
"""From the event log: how an attempt goes on without a checkpoint, and what a checkpoint without native material asks for."""
NATIVE: Final = "native"

STORED: Final = "stored"
REFERENCED: Final = "referenced"
"""By a provider that keeps the snapshot."""
NO_SNAPSHOT: Final = "none"

CONTENT_ERASED: Final = "content.erased"
CONTENT_EXPIRED: Final = "content.expired"
CONTENT_OMITTED: Final = "content.omitted"
"""Why content cannot be read, as everybody is told: the code of an error, the reason of a gap."""
