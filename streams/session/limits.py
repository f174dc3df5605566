"""What a session may hold at most, and for how long: decided by the authority, told by whoever takes requests."""

from typing import Final

LONGEST_WINDOW_DAYS: Final = 36_500
"""Of content."""
LONGEST_CHECKPOINT_WINDOW_S: Final = 30 * 24 * 3600
"""A policy may shorten it, never lengthen (seed *Checkpoints*, "They expire after 30 days")."""
NATIVE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a harness's own material, as it is uploaded (design 02, "Resource")."""
ANCESTORS_MAX: Final = 16

DEFAULT_LEASE_MS: Final = 30_000
SHORTEST_LEASE_MS: Final = 1_000
LONGEST_LEASE_MS: Final = 3_600_000

OLDEST_VERIFICATION_US: Final = 30 * 24 * 3600 * 1_000_000
"""How long ago a lane may have been seen to replace attempts and still count as verified now."""
