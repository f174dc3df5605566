"""The fold: per key {count, last hash}, the hash over the one before and the value.

Imported by engines in environments of their own: the standard library only.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

STATE_BYTES: Final = 40
"""Count (8 bytes, big-endian), then SHA-256 (32)."""
_NOTHING: Final = bytes(STATE_BYTES)


def advance(state: bytes | None, value: bytes) -> bytes:
    """The state behind one more value. An output record is this state with the value behind it, under the input's key."""
    before = state or _NOTHING
    return (int.from_bytes(before[:8], "big") + 1).to_bytes(8, "big") + sha256(before[8:] + value).digest()


def task() -> dict[str, Any]:
    """What a script was started for: the JSON file that its first argument names (`engines.Task`, with the engine's settings)."""
    given: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    return given
