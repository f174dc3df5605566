"""The two clocks: what time it is, and how long something took.

Durations are counted in `boottime_s`, which counts suspension too: a process that was stopped wakes up knowing that its
leases and caches are old.
"""

import time


def now_us() -> int:
    """Microseconds since the epoch, UTC. May be set, so it measures nothing."""
    return time.time_ns() // 1000


def boottime_s() -> float:
    """Seconds since boot, never backward, suspension included where the system tells (Linux)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
