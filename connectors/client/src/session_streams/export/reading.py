"""One pass over a file: line by line, each verified before the next is read. One line is in memory.

A file holds one export, or those of a lineage: a fork's behind its source's. What ties them is that a fork's first position, in
its own chain, names the source, the position that it was forked at, and that position's hash.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from . import evidence, form
from .verdict import Refuted, Verdict

Source = str | os.PathLike[str] | BinaryIO | Iterable[bytes]
"""A path, an open file, or lines with their line ends."""

ANCESTORS_MAX: Final = 16
_HEADER: Final = b'{"kind":"header",'
_PLACE: Final = re.compile(rb'\{"kind":"[a-z]{1,20}","sequence":([0-9]{1,19}),')


@dataclass(frozen=True)
class Entry:
    """One position of `session_id`. `unavailable` says why its content is not there; `fields` is the whole line.

    `text` is the JSON text of the content as it was sent; `content` is what Python makes of it.
    """

    line: int
    sequence: int
    fields: Mapping[str, Any] = field(repr=False)
    text: str | None = field(repr=False)
    unavailable: str | None
    session_id: str | None

    @property
    def type(self) -> str | None:
        """None for a position of which nothing could be exported."""
        return self.fields.get("type")

    @property
    def attributes(self) -> Mapping[str, Any]:
        given = self.fields.get("attributes")
        return {} if given is None else cast(Mapping[str, Any], given["decoded"])

    @property
    def content(self) -> Any:
        """Raises ValueError for a number of more digits, or for more brackets in each other, than Python takes: `text` has them."""
        try:
            return None if self.text is None else json.loads(self.text)
        except RecursionError:
            raise ValueError("brackets nested too deep") from None


def verify(source: Source, *, part: bool = False, last_hash: str | None = None, lineage: bool = False) -> Verdict:
    """The verdict on an export. Raises OSError where it cannot be read, and nothing else.

    Args:
        part: also a part that begins behind position 1 will do; how it is tied to what came before is then not shown.
        last_hash: the hash (hex) that the export has to end with, known from elsewhere.
        lineage: a fork without its ancestors will not do.
    """
    with _lines(source) as lines:
        reading = _Reading(lines, part, last_hash, lineage)
        try:
            for _ in reading.entries():
                pass
        except Refuted as refuted:
            reading.verdict.refute(refuted)
    return reading.verdict


def read(source: Source, *, part: bool = False) -> Iterator[Entry]:
    """The verified positions, in order. Raises `Refuted` at the first difference, at the latest at the end; and OSError."""
    with _lines(source) as lines:
        yield from _Reading(lines, part, None, False).entries()


@contextmanager
def _lines(source: Source) -> Iterator[Iterator[bytes]]:
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield _bounded(file)
    else:
        yield iter(source) if not hasattr(source, "readline") else _bounded(cast(BinaryIO, source))


def _bounded(file: BinaryIO) -> Iterator[bytes]:
    """Its lines; one that no export has comes in pieces, since a file without line ends must not come into memory whole."""
    while line := file.readline(form.LINE_BYTES_MAX + 1):
        yield line


class _Reading:
    """The pass. `verdict` grows with it."""

    def __init__(self, lines: Iterator[bytes], part: bool, last_hash: str | None, lineage: bool) -> None:
        self.verdict = Verdict()
        self._lines, self._part, self._expected, self._lineage = lines, part, last_hash, lineage
        self._number = 0
        self._previous: str | None = None
        """The hash that the next position has to name; None where it is not known."""
        self._missing: Refuted | None = None
        self._attributes = evidence.Attributes({})

    def entries(self) -> Iterator[Entry]:
        verdict = self.verdict
        size, value = self._next("empty")
        while True:
            self._header(value)
            verdict.good_bytes += size
            yield from self._section()
            following = next(self._lines, b"")
            if not following:
                break
            self._number += 1
            if not following.startswith(_HEADER):
                raise self._refuted("after_end", "something stands behind the trailer")
            if len(verdict.ancestors) == ANCESTORS_MAX:
                raise self._refuted("wrong_source", f"more than {ANCESTORS_MAX} ancestors")
            size, value = self._parsed(following)
            verdict.ancestors.append((verdict.session_id or "", verdict.end_sequence, verdict.last_hash))
        if self._expected is not None and self._expected.lower() != verdict.last_hash:
            raise self._refuted("other_history", f"it ends with the hash {verdict.last_hash}, not with the expected one")
        if self._missing is not None:
            raise self._missing

    def _section(self) -> Iterator[Entry]:
        """The positions behind a header, and the trailer."""
        verdict = self.verdict
        while True:
            size, value = self._next("the export breaks off: its trailer is missing")
            match value.get("kind"):
                case "event" | "unavailable" | "missing":
                    entry = self._position(value)
                    verdict.next_sequence += 1
                    verdict.good_bytes += size
                    yield entry
                case "trailer":
                    self._trailer(value)
                    verdict.good_bytes += size
                    break
                case "error":
                    self._fits(value, form.ERROR)
                    raise self._refuted("incomplete", f"the export says that it broke off: {value['code'][:60]!a}")
                case "header":
                    raise self._refuted("malformed_line", "a second header")
                case _:
                    raise self._refuted("malformed_line", "a line of no known kind")

    def _next(self, at_end: str) -> tuple[int, dict[str, Any]]:
        """Size and value of the next line."""
        line = next(self._lines, b"")
        if not line:
            raise self._refuted("incomplete", at_end)
        self._number += 1
        return self._parsed(line)

    def _parsed(self, line: bytes) -> tuple[int, dict[str, Any]]:
        if len(line) > form.LINE_BYTES_MAX:
            raise self._refuted("malformed_line", "longer than any line of an export")
        if not line.endswith(b"\n"):
            raise self._refuted("incomplete", "the export breaks off within this line")
        try:
            return len(line), form.parsed(line)
        except form.Malformed as malformed:
            raise self._refuted(malformed.code, malformed.detail) from None

    def _refuted(self, code: str, detail: str, sequence: int | None = None) -> Refuted:
        return Refuted(code, detail, line=self._number, sequence=sequence)

    def _fits(self, value: Mapping[str, Any], check: form.Check, sequence: int | None = None) -> None:
        wrong = check(value)
        if wrong is not None:
            raise self._refuted("malformed_line", wrong, sequence)

    # -- header and trailer

    def _header(self, value: Mapping[str, Any]) -> None:
        if value.get("kind") != "header":
            raise self._refuted("header_missing", "the first line is not a header")
        if [value.get(name) for name in ("format", "format_version", "chain")] != [form.FORMAT, form.VERSION, evidence.CHAIN]:
            raise self._refuted("unknown_format", f"known here: {form.FORMAT}, version {form.VERSION}, chain {evidence.CHAIN}")
        self._fits(value, form.HEADER)
        schemas = value["attribute_schemas"]
        for name, schema in schemas.items():
            if not evidence.is_published(name, schema):
                raise self._refuted("unknown_schema", f"{name[:60]!a}: not as it was published, or newer than this check")
        if value["genesis"] != evidence.genesis(value["session_id"]):
            raise self._refuted("wrong_genesis", "the header's genesis is not that of its session")
        verdict = self.verdict
        verdict.session_id, verdict.end_sequence = value["session_id"], value["end_sequence"]
        verdict.from_sequence = verdict.next_sequence = value["from_sequence"]
        if verdict.from_sequence > 1 and (verdict.ancestors or not self._part):
            raise self._refuted("not_whole", f"a part: it begins at position {verdict.from_sequence}")
        self._previous = value["genesis"] if verdict.from_sequence == 1 else None
        self._attributes = evidence.Attributes(schemas)

    def _trailer(self, value: Mapping[str, Any]) -> None:
        self._fits(value, form.TRAILER)
        verdict = self.verdict
        if verdict.next_sequence <= verdict.end_sequence:
            told = _range(verdict.next_sequence, verdict.end_sequence)
            raise self._refuted("gap", f"{told} missing before the trailer", verdict.next_sequence)
        if value["count"] != verdict.end_sequence:
            raise self._refuted("trailer_mismatch", f"count: {value['count']}, and the header names {verdict.end_sequence}")
        if verdict.positions and value["last_hash"] != self._previous:
            raise self._refuted("trailer_mismatch", "last_hash: not the hash of the last position")
        verdict.last_hash = value["last_hash"]

    # -- positions

    def _position(self, value: Mapping[str, Any]) -> Entry:
        sequence = value.get("sequence")
        if type(sequence) is not int:
            raise self._refuted("malformed_line", "sequence: not a position")
        self._in_order(sequence)
        if value["kind"] == "missing":
            self._fits(value, form.MISSING, sequence)
            self._missing = self._missing or self._refuted("missing_position", f"not exported: {value['reason'][:60]!a}", sequence)
            self._previous = None
            if sequence == 1 and self.verdict.ancestors:
                raise self._missing
            return Entry(self._number, sequence, value, None, value["reason"], self.verdict.session_id)
        text = self._event(value, sequence)
        if sequence == 1:
            self._begins(value)
        self._previous = value["hash"]
        reason = value.get("reason")
        if reason is not None:
            self.verdict.unavailable[reason] = self.verdict.unavailable.get(reason, 0) + 1
        self.verdict.opened += text is not None
        return Entry(self._number, sequence, value, text, reason, self.verdict.session_id)

    def _begins(self, value: Mapping[str, Any]) -> None:
        """That a session's first position, which is verified, names what stands before it in the file as its source."""
        told = {} if value["attributes"] is None else value["attributes"]["decoded"]
        source = told.get("source_session_id") if value["type"] == "session.created" else None
        if not self.verdict.ancestors:
            if self._lineage and source is not None:
                raise self._refuted("not_whole", f"forked from {source[:60]!a}, whose positions are not here", 1)
            return
        before = self.verdict.ancestors[-1]
        if before[2] is None and self._missing is not None:
            raise self._missing
        if (source, told.get("through_sequence"), told.get("source_hash")) != before:
            raise self._refuted("wrong_source", "it is not forked from the end of what stands before it", 1)

    def _event(self, value: Mapping[str, Any], sequence: int) -> str | None:
        """Verifies it; returns the text of its content. What has a name of its own is looked at before the hash of all."""
        content = value.get("content")
        opened = value["kind"] == "event" and isinstance(content, dict) and content.get("state") != "none"
        self._fits(value, form.UNAVAILABLE if value["kind"] == "unavailable" else form.OPENED if opened else form.WITHOUT_CONTENT, sequence)
        content = value["content"]
        if value["session_id"] != self.verdict.session_id:
            raise self._refuted("wrong_session", "it belongs to another session", sequence)
        if self._previous is not None and value["previous_hash"] != self._previous:
            if sequence == 1:
                raise self._refuted("wrong_genesis", "the first position does not begin the session's chain", sequence)
            raise self._refuted("previous_hash_mismatch", "it does not follow the position before it", sequence)
        if "reason" in value and (value["reason"] == "omitted") != (content["state"] == "omitted"):
            raise self._refuted("malformed_line", "reason: does not go with content.state", sequence)
        if opened and evidence.content_digest(content["salt"], content["text"]) != content["digest"]:
            raise self._refuted("content_mismatch", "salt and text of its content do not give its digest", sequence)
        attributes = value["attributes"]
        if attributes is not None:
            self._check_attributes(value["type"], attributes, sequence)
        if evidence.position_hash(value) != value["hash"]:
            raise self._refuted("hash_mismatch", "its hash is not that of its fields", sequence)
        return content["text"] if opened else None

    def _check_attributes(self, event_type: str, given: Mapping[str, Any], sequence: int) -> None:
        """That the attributes shown are those that the bytes hold; the bytes themselves are in the hash."""
        try:
            held = self._attributes.decoded(event_type, given["schema"], given["bytes"])
        except ValueError as error:
            raise self._refuted("attributes_mismatch", f"attributes.{error}", sequence) from None
        if form.encode(held) != form.encode(given["decoded"]):
            raise self._refuted("attributes_mismatch", "attributes.decoded: not what attributes.bytes hold", sequence)

    def _in_order(self, sequence: int) -> None:
        wanted, verdict = self.verdict.next_sequence, self.verdict
        if sequence > verdict.end_sequence:
            raise self._refuted("beyond_end", f"the header names {verdict.end_sequence} as the last position", sequence)
        if sequence == wanted:
            return
        if sequence < wanted:
            raise self._refuted("duplicate", f"position {wanted} is due; {sequence} was, before", sequence)
        line = self._line_of(wanted)
        if line is None:
            raise self._refuted("gap", f"{_range(wanted, sequence - 1)} missing before position {sequence}", wanted)
        raise self._refuted("out_of_order", f"position {wanted} is due; it stands on line {line}", sequence)

    def _line_of(self, wanted: int) -> int | None:
        """The line further down that says that it holds this position."""
        for number, line in enumerate(self._lines, self._number + 1):
            found = _PLACE.match(line)
            if found is not None and int(found[1]) == wanted:
                return number
        return None


def _range(first: int, last: int) -> str:
    return f"position {first} is" if first == last else f"positions {first} to {last} are"
