"""Attributes and their bytes, the short way: by the shape of their family, and by what was read or written lately.

Many events have the same attributes, so a record and its bytes are kept beside each other, a bounded number of them.
"""

from functools import cache, lru_cache
from typing import Final

import msgspec

from schemas import codec
from streams.log.shapes.families import Family
from streams.session import vocabulary
from streams.session.events import FAMILIES, TYPES, Attributes, family_of

SUBJECTS: Final = {family: f"attributes/{family}" for family in FAMILIES}
"""Of each family."""
_FAMILY_OF: Final = {event_type: family_of(event_type) for event_type in TYPES}
_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256
"""Bytes: longer ones are read each time. Those that are written are bounded by the vocabulary."""


def usual_attributes(event_type: str, value: bytes) -> Attributes | None:
    """Well-formed attributes of the type's family, in the version that is written now; None: the codec says what they are."""
    family = _FAMILY_OF[event_type]
    return _same(family, value) if len(value) <= _LONGEST_REMEMBERED else _shaped(family, value)


def written_attributes(event_type: str, attributes: Attributes) -> bytes | None:
    """A whole value of the family's schema; None: the codec says whether there is one."""
    family = family_of(event_type)
    if type(attributes) is not FAMILIES.get(family):
        return None
    try:
        # True and 1 are equal, and not the same attribute.
        return _written(family, attributes, tuple(map(type, msgspec.structs.astuple(attributes))))
    except (_Unusual, TypeError):
        return None  # of no shape, or nothing that can be remembered


@cache
def shape_of(family: str) -> tuple[bytes, Family]:
    """The header of a family's attributes, and their shape behind it."""
    kind, subject = FAMILIES[family], SUBJECTS[family]
    return codec.header(subject), Family(kind, dict(vocabulary.ATTRIBUTES[kind]), codec.flat_fields(subject))


def _shaped(family: str, value: bytes) -> Attributes | None:
    header, shape = shape_of(family)
    return shape.read(value[len(header) :].decode("latin-1")) if value.startswith(header) else None


_same = lru_cache(_REMEMBERED)(_shaped)


class _Unusual(Exception):
    """Attributes that have no shape. Raised, so that they, which may be of any size, are not remembered."""


@lru_cache(_REMEMBERED)
def _written(family: str, attributes: Attributes, types: tuple[type, ...]) -> bytes:
    """`types`: those of the values, in their order."""
    header, shape = shape_of(family)
    written = shape.write(attributes)
    if written is None:
        raise _Unusual
    return header + written.encode("latin-1")
