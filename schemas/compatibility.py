"""May one version of a record be read as another? Every pair of published versions of a subject must, both ways.

The rules are those of Avro's schema resolution, as far as Avro implementations agree on them: no aliases, no reading
of bytes as text. One is ours: a logical type is part of a type, since a number does not become a time.

Used by the tests over the published schemas, and by whoever publishes one.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from schemas.catalog import Published

_PROMOTIONS: Final = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
}  # fmt: skip
"""(written as, readable as)."""
_NAMED: Final = frozenset({"record", "enum", "fixed"})


def problems(*, reader: Any, writer: Any) -> list[str]:
    """Why what was written by one schema cannot be read by another: a line a place; empty where it can."""
    return list(_Comparison(reader, writer).compare(reader, writer, ""))


def incompatible(published: tuple[Published, ...]) -> list[str]:
    """Every reason for which a published version of a subject cannot be read as another one of it."""
    found: list[str] = []
    for first, second in combinations(published, 2):
        if first.subject == second.subject:
            for reader, writer in ((first, second), (second, first)):
                label = f"{reader.subject} v{writer.version} as v{reader.version}"
                found += [f"{label}: {problem}" for problem in problems(reader=reader.schema, writer=writer.schema)]
    return found


class _Comparison:
    """One reader against one writer; remembers named types, and pairs under way, since a schema may refer to itself."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader_names = dict(_named_types(reader))
        self._writer_names = dict(_named_types(writer))
        self._under_way: set[tuple[str, str]] = set()

    def compare(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        reader, writer = self._reader_names.get(_key(reader), reader), self._writer_names.get(_key(writer), writer)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.compare(reader, branch, place)
        elif isinstance(reader, list):
            if not any(self._readable(branch, writer) for branch in reader):
                yield f"{place or 'value'}: no branch reads {_kind(writer)}"
        elif _logical(reader) != _logical(writer):
            yield f"{place or 'value'}: logical type {_logical(writer)} is not {_logical(reader)}"
        elif _kind(reader) != _kind(writer):
            if (_kind(writer), _kind(reader)) not in _PROMOTIONS:
                yield f"{place or 'value'}: {_kind(writer)} is not {_kind(reader)}"
        else:
            yield from self._same_kind(reader, writer, place)

    def _readable(self, reader: Any, writer: Any) -> bool:
        return next(self.compare(reader, writer, ""), None) is None

    def _same_kind(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        kind = _kind(reader)
        if kind in _NAMED and _name(reader) != _name(writer):
            yield f"{place or 'value'}: {kind} {_name(writer)} is not {_name(reader)}"
        elif kind == "record":
            yield from self._records(reader, writer, place)
        elif kind == "enum":
            lost = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if lost and "default" not in reader:
                yield f"{place or 'value'}: enum lacks {', '.join(lost)}"
        elif kind == "fixed" and reader["size"] != writer["size"]:
            yield f"{place or 'value'}: fixed {writer['size']} is not {reader['size']}"
        elif kind == "array":
            yield from self.compare(reader["items"], writer["items"], f"{place}[]")
        elif kind == "map":
            yield from self.compare(reader["values"], writer["values"], f"{place}{{}}")

    def _records(self, reader: Any, writer: Any, place: str) -> Iterator[str]:
        pair = reader["name"], writer["name"]
        if pair in self._under_way:
            return
        self._under_way.add(pair)
        try:
            written = {field["name"]: field["type"] for field in writer["fields"]}
            for field in reader["fields"]:
                here = f"{place}.{field['name']}" if place else field["name"]
                if field["name"] in written:
                    yield from self.compare(field["type"], written[field["name"]], here)
                elif "default" not in field:
                    yield f"{here}: not written, and has no default"
        finally:  # also where a branch of a union is given up half-way
            self._under_way.discard(pair)


def _kind(schema: Any) -> str:
    """The type of a schema that is no union."""
    return str(schema["type"]) if isinstance(schema, Mapping) else str(schema)


def _key(schema: Any) -> str:
    """What a reference to a named type says; an inline definition and a union refer to nothing."""
    return schema if isinstance(schema, str) else ""


def _name(schema: Mapping[str, Any]) -> str:
    return f"{schema['namespace']}.{schema['name']}" if "namespace" in schema else str(schema["name"])


def _logical(schema: Any) -> str | None:
    return schema.get("logicalType") if isinstance(schema, Mapping) else None


def _named_types(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _named_types(branch)
    elif isinstance(schema, Mapping):
        if schema["type"] in _NAMED:
            yield schema["name"], schema
        for field in schema.get("fields", ()):
            yield from _named_types(field["type"])
        for part in ("items", "values"):
            if part in schema:
                yield from _named_types(schema[part])
