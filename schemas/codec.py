"""Bytes <-> dicts: the only importer of fastavro.

Wire format of every value: 0x00, the schema's number as 4 bytes big-endian, the Avro body. Rules: times are integers
(microseconds since the epoch, UTC), never datetimes, so that no local time zone can slip in; a record is written with
exactly the fields of its schema; a body is read to its last byte; an older or newer version is read into the version
that this code knows; nothing that is handed out is shared, so it may be changed.

Called by `streams.log.record` and by the stores of state; anything further in holds typed records.
"""

import copy
import re
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException

from schemas.catalog import FileRegistry, Published, Registry, UnknownSchema
from schemas.upcasts import UPCASTS, Upcast

MAGIC: Final = 0
HEADER_BYTES: Final = 5
_HEADER: Final = struct.Struct(">bI")
_NESTING: Final = frozenset({"type", "fields", "items", "values"})
_FIELD: Final = re.compile(r"on field (\w+)$")

# What fastavro lets through from bytes that are not what the schema says, or from values that do not fit it.
_FOREIGN: Final = (
    EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, ArithmeticError,
    AssertionError, struct.error, fastavro.read.SchemaResolutionError, SchemaParseException,
)  # fmt: skip


class Undecodable(Exception):
    """The bytes are not a value of a published schema. `reason` is wire.short, wire.magic, wire.schema_id,
    wire.subject, wire.body or wire.trailing."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Unencodable(Exception):
    """The record does not fit its schema: a field missing or too many, a wrong type, a number beyond 64 bits, text
    that is not Unicode. (A fraction in place of a whole number is not noticed here: fastavro cuts it off.)"""


class Decoded(NamedTuple):
    """A value as this code knows it. `version` is the version that it was written in; `record` is in the current one."""

    subject: str
    version: int
    record: dict[str, Any]


class Codec:
    """Encodes and decodes by the schemas of a registry, each parsed once."""

    def __init__(self, registry: Registry, upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS) -> None:
        self._registry = registry
        self._upcasts = upcasts
        self._schemas: dict[tuple[str, int], Any] = {}
        self._writers: dict[str, tuple[bytes, Any]] = {}
        self._readers: dict[int, tuple[str, int, Any]] = {}

    def use(self, registry: Registry) -> None:
        """Another registry, before the first value: numbers that were read by one must not be written by another."""
        if self._schemas:
            raise RuntimeError("the registry is chosen before the first value is encoded or decoded")
        self._registry = registry

    def id_of(self, subject: str, version: int) -> int:
        """The number that stands in front of values of this version. Raises `UnknownSchema`."""
        return self._registry.id_of(subject, version)

    def header(self, subject: str) -> bytes:
        """The 5 bytes in front of a value of the subject's current version."""
        found = self._writers.get(subject)
        return self._writer(subject)[0] if found is None else found[0]

    def encode(self, subject: str, record: Mapping[str, object]) -> bytes:
        """A whole value. Raises `Unencodable`."""
        header, schema = self._writer(subject)
        return _write(schema, record, header)

    def encode_body(self, subject: str, record: Mapping[str, object]) -> bytes:
        """The Avro body alone. Raises `Unencodable`."""
        return _write(self._writer(subject)[1], record, b"")

    def decode(self, value: bytes) -> Decoded:
        """Raises `Undecodable`."""
        subject, version, schema = self._reader(value)
        stream = BytesIO(value)
        stream.seek(HEADER_BYTES)
        if schema is not None:
            return Decoded(subject, version, _read(stream, schema))
        return Decoded(subject, version, self._resolve(stream, subject, version))

    def decode_as_written(self, value: bytes) -> Decoded:
        """As `decode`, with the record as the schema that it was written with has it. Raises `Undecodable`."""
        subject, version, _ = self._reader(value)
        stream = BytesIO(value)
        stream.seek(HEADER_BYTES)
        return Decoded(subject, version, _read(stream, self._schema(subject, version)))

    def decode_as(self, subject: str, value: bytes) -> dict[str, Any]:
        """The record of a value that must be of `subject`. Raises `Undecodable`."""
        if self.subject_of(value) != subject:
            raise Undecodable("wire.subject", f"expected {subject}")
        return self.decode(value).record

    def decode_body(self, subject: str, body: bytes, *, version: int | None = None) -> dict[str, Any]:
        """The record of a bare body, written in `version` (the current one where not given). Raises `Undecodable`."""
        if version is None or version == self._registry.current_version(subject):
            return _read(BytesIO(body), self._writer(subject)[1])
        return self._resolve(BytesIO(body), subject, version)

    def subject_of(self, value: bytes) -> str:
        """The subject that a value's header names. Raises `Undecodable`."""
        return self._reader(value)[0]

    def flat_fields(self, subject: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each field of a subject whose every field is a nullable primitive, as now written."""
        _, schema = self._writer(subject)
        return tuple((field["name"], field["type"][1]) for field in schema["fields"])

    def is_current(self, subject: str, version: int) -> bool:
        return version == self._registry.current_version(subject)

    def _writer(self, subject: str) -> tuple[bytes, Any]:
        found = self._writers.get(subject)
        if found is None:
            version = self._registry.current_version(subject)
            found = _HEADER.pack(MAGIC, self._registry.id_of(subject, version)), self._schema(subject, version)
            self._writers[subject] = found
        return found

    def _reader(self, value: bytes) -> tuple[str, int, Any]:
        """Subject and version of a value, and its schema where that is the current one."""
        if len(value) < HEADER_BYTES:
            raise Undecodable("wire.short", f"{len(value)} bytes")
        magic, schema_id = _HEADER.unpack_from(value)
        if magic != MAGIC:
            raise Undecodable("wire.magic", f"{value[0]:#04x}")
        found = self._readers.get(schema_id)
        if found is None:
            try:
                published = self._registry.schema_by_id(schema_id)
                current = self.is_current(published.subject, published.version)
            except UnknownSchema as error:
                raise Undecodable("wire.schema_id", str(error)) from error
            schema = self._parse(published)
            found = published.subject, published.version, schema if current else None
            self._readers[schema_id] = found
        return found

    def _schema(self, subject: str, version: int) -> Any:
        found = self._schemas.get((subject, version))
        if found is None:
            found = self._parse(self._registry.schema_by_id(self._registry.id_of(subject, version)))
        return found

    def _parse(self, published: Published) -> Any:
        parsed = fastavro.parse_schema(without_logical_types(published.schema))
        self._schemas[published.subject, published.version] = parsed
        return parsed

    def _resolve(self, stream: BytesIO, subject: str, version: int) -> dict[str, Any]:
        """Reads another version into the current one: by Avro's resolution up to the first upcast, then by upcasts."""
        current = self._registry.current_version(subject)
        reached = next((step for step in range(version, current) if (subject, step) in self._upcasts), current)
        # The copy keeps callers apart: fastavro hands out the same default list to every record.
        record = copy.deepcopy(_read(stream, self._schema(subject, version), self._schema(subject, reached)))
        for step in range(reached, current):
            record = self._upcasts[subject, step](record)
        return record


def same_bytes(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two schemas write the same bytes (Avro's Parsing Canonical Form); docs, defaults and layout do not count."""
    try:
        forms = [fastavro.schema.to_parsing_canonical_form(dict(schema)) for schema in (first, second)]
    except _FOREIGN:
        return False  # one of them is no schema, or refers to what it does not hold
    return forms[0] == forms[1]


def without_logical_types(schema: Any) -> Any:
    """The same schema with times as plain numbers."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, Mapping):
        if "logicalType" in schema:
            return schema["type"]
        return {key: without_logical_types(part) if key in _NESTING else part for key, part in schema.items()}
    return schema


def _write(schema: Any, record: Mapping[str, object], header: bytes) -> bytes:
    stream = BytesIO()
    stream.write(header)
    try:
        fastavro.schemaless_writer(stream, schema, record, strict=True)
    except _FOREIGN as error:
        # The message names the value too, which may be personal; only the field's name goes on.
        field = _FIELD.search(str(error))
        raise Unencodable(f"{schema['name']}.{field[1] if field else '?'}: {type(error).__name__}") from error
    return stream.getvalue()


def _read(stream: BytesIO, writer: Any, reader: Any = None) -> dict[str, Any]:
    try:
        record: dict[str, Any] = fastavro.schemaless_reader(stream, writer, reader)  # type: ignore[assignment]
    except _FOREIGN as error:
        raise Undecodable("wire.body", f"{writer['name']}: {type(error).__name__}") from error
    if stream.read(1):
        raise Undecodable("wire.trailing", str(writer["name"]))
    return record


_codec: Final = Codec(FileRegistry())
use = _codec.use
id_of = _codec.id_of
header = _codec.header
encode = _codec.encode
encode_body = _codec.encode_body
decode = _codec.decode
decode_as = _codec.decode_as
decode_as_written = _codec.decode_as_written
decode_body = _codec.decode_body
subject_of = _codec.subject_of
flat_fields = _codec.flat_fields
is_current = _codec.is_current
