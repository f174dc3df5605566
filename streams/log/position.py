"""A position: where a command stands in its topic. Every event carries its command's offset; a read waits for it."""

import re
from typing import Final

from msgspec import Struct

from streams.errors import Invalid

_PATTERN: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,18})")


class Position(Struct, frozen=True):
    """`topic:partition:offset` of a command (not of an event: that offset is unknown inside its transaction)."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Raises `Invalid` (request.malformed)."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise Invalid("position: expected topic:partition:offset", code="request.malformed")
        return cls(match[1], int(match[2]), int(match[3]))
