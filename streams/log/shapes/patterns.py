"""Patterns of fields, as they stand in Avro, and which numbers they hold."""

import re
from typing import Final

from schemas.primitives import LONG, long_text
from streams.session import vocabulary
from streams.session.vocabulary import Check, pattern_of

A_LONG: Final = f"({LONG})"
_WIDEST: Final = 1 << 62
"""What `A_LONG` holds, on either side of 0."""
LENGTH: Final = r"([\x00-\x7e]|[\x80-\xfe][\x01-\x7f])"
"""Of a string of at most 8,191 bytes: what captures it compares it with what follows."""
_ID: Final = re.compile(r"\(\?:([a-z]+)\)_\[0-9a-f\]\{32\}")


def is_usual(value: int | None) -> bool:
    """Whether it is a number that `A_LONG` holds, or none."""
    return value is None or (type(value) is int and -_WIDEST <= value < _WIDEST)


def optional(pattern: str) -> str:
    """A field that may be null."""
    return rf"(?:\x00|\x02{pattern})"


def an_id(check: Check) -> str:
    """An identifier of one kind, as a group: all of them have one length."""
    pattern = pattern_of(check)
    kind = _ID.fullmatch(pattern)
    if kind is None:
        raise ValueError(f"{pattern} is not of one length")
    return f"{re.escape(long_text(len(kind[1]) + 33))}({pattern})"


EVENT: Final = an_id(vocabulary.EVENT_ID)
SESSION: Final = an_id(vocabulary.SESSION_ID)
WORKSPACE: Final = an_id(vocabulary.WORKSPACE_ID)
COMMAND: Final = an_id(vocabulary.COMMAND_ID)
PRINCIPAL: Final = an_id(vocabulary.PRINCIPAL_ID)
THREAD: Final = an_id(vocabulary.THREAD_ID)
TURN: Final = an_id(vocabulary.TURN_ID)
RUN: Final = an_id(vocabulary.RUN_ID)
TASK: Final = an_id(vocabulary.TASK_ID)
ACTOR: Final = an_id(vocabulary.ACTOR_ID)
SUBJECT: Final = an_id(vocabulary.SUBJECT_ID)
