"""Attributes: flat records whose every field may be null."""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.primitives import long_of, long_text, text
from streams.log.shapes.patterns import A_LONG, LENGTH, is_usual, optional
from streams.session.events import Attributes
from streams.session.vocabulary import Check, pattern_of

_DOUBLE: Final = struct.Struct("<d")
_FIELDS: Final = {"long": A_LONG, "boolean": r"([\x00\x01])", "double": "(.{8})"}


class Family:
    """The shape of one family's attributes, without their header."""

    def __init__(self, kind: type[Attributes], checks: Mapping[str, Check], fields: Sequence[tuple[str, str]]) -> None:
        """`fields`: name and Avro type (string, long, boolean, double) in the order of the schema; `checks`: of its strings."""
        names = [name for name, _ in fields]
        if names != list(kind.__struct_fields__):
            raise ValueError(f"{kind.__name__} has not the fields of its schema: {names}")
        self._kind = kind
        self._fields = tuple(fields)
        # No text holds the bytes that say whether the next field is null, so it ends where its pattern does.
        parts = [optional(f"{LENGTH}({pattern_of(checks[name])})" if avro == "string" else _FIELDS[avro]) for name, avro in fields]
        self._match = re.compile("".join(parts), re.DOTALL).fullmatch

    def read(self, body: str) -> Attributes | None:
        """The record of a body (in Latin-1), if it has this shape."""
        match = self._match(body)
        if match is None:
            return None
        values: list[object] = []
        groups = iter(match.groups())
        for (_, avro), group in zip(self._fields, groups, strict=False):
            if avro == "string":
                value = next(groups)
                if value is not None and group is not None and long_of(group) != len(value):
                    return None
                values.append(value)
            elif group is None:
                values.append(None)
            elif avro == "long":
                values.append(long_of(group))
            elif avro == "boolean":
                values.append(group == "\x01")
            else:
                values.append(_DOUBLE.unpack(group.encode("latin-1"))[0])
        return self._kind(*values)

    def write(self, attributes: Attributes) -> str | None:
        """The body, if the record is well-formed and nothing of it is unusual."""
        parts = []
        for name, avro in self._fields:
            value = getattr(attributes, name)
            if value is None:
                parts.append("\x00")
            elif avro == "string" and type(value) is str and value.isascii():
                parts.append(f"\x02{text(value)}")
            elif avro == "long" and is_usual(value):
                parts.append(f"\x02{long_text(value)}")
            elif avro == "boolean" and type(value) is bool:
                parts.append("\x02\x01" if value else "\x02\x00")
            else:
                return None
        body = "".join(parts)
        # Only what reads back as the same is well-formed: text may hold anything, a field's ends among it.
        return body if self.read(body) == attributes else None
