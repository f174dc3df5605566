"""The codec: exact writes, whole reads, old and new versions, and nothing shared between records."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest

from schemas import codec
from schemas.catalog import FileRegistry, Published, UnknownSchema
from schemas.codec import Codec, Undecodable, Unencodable
from schemas.upcasts import UPCASTS, Upcast

SUFFIX = {"sequence": 1, "command_offset": 2, "command_last": True, "accepted_at": 3, "previous_hash": b"p", "hash": b"h"}


def record_of(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """A schema of fields given as (name, type) or (name, type, default)."""
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields],
    }


class MadeUp:
    """A registry of the versions of one subject "thing", of which `current` is what the code knows."""

    def __init__(self, *versions: dict[str, Any], current: int | None = None) -> None:
        self.versions = versions
        self.current = current or len(versions)
        self.lookups = 0

    def schema_by_id(self, schema_id: int) -> Published:
        self.lookups += 1
        if not 0 < schema_id <= len(self.versions):
            raise UnknownSchema(str(schema_id))
        return Published(schema_id, "thing", schema_id, self.versions[schema_id - 1])

    def id_of(self, subject: str, version: int) -> int:
        return version

    def current_version(self, subject: str) -> int:
        return self.current


def written_by(version: int, versions: tuple[dict[str, Any], ...], record: Mapping[str, object]) -> bytes:
    return Codec(MadeUp(*versions, current=version)).encode("thing", record)


V1 = record_of("Thing", ("count", "int"))
V2 = record_of("Thing", ("count", "long"), ("tags", {"type": "array", "items": "string"}, []))
V3 = record_of("Thing", ("count", "long"), ("tags", {"type": "array", "items": "string"}, []), ("double", "long", 0))
VERSIONS = (V1, V2, V3)


def test_a_value_starts_with_magic_and_the_schemas_number() -> None:
    value = codec.encode("suffix", SUFFIX)
    assert value[:5] == b"\x00" + FileRegistry().id_of("suffix", 1).to_bytes(4, "big") == codec.header("suffix")
    assert value[5:] == codec.encode_body("suffix", SUFFIX)
    assert codec.decode(value) == ("suffix", 1, SUFFIX)
    assert codec.decode_body("suffix", value[5:]) == codec.decode_as("suffix", value) == SUFFIX


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "wire.short"),
        (b"\x00\x00\x00\x00", "wire.short"),
        (b"\x01" + bytes(20), "wire.magic"),
        (b"\xff" + bytes(20), "wire.magic"),
        (b"\x00\xff\xff\xff\xff" + bytes(20), "wire.schema_id"),
        (codec.encode("suffix", SUFFIX)[:-1], "wire.body"),
        (codec.header("suffix"), "wire.body"),
        (codec.header("event") + b"\x06\xff\xfe\xfd", "wire.body"),
        (codec.encode("suffix", SUFFIX) + b"\x00", "wire.trailing"),
    ],
)
def test_what_is_no_value_is_refused_with_its_reason(value: bytes, reason: str) -> None:
    with pytest.raises(Undecodable) as refused:
        codec.decode(value)
    assert refused.value.reason == reason


def test_another_subject_is_refused() -> None:
    with pytest.raises(Undecodable) as refused:
        codec.decode_as("event", codec.encode("suffix", SUFFIX))
    assert refused.value.reason == "wire.subject"


@pytest.mark.parametrize(
    "record",
    [
        {key: value for key, value in SUFFIX.items() if key != "hash"},
        {**SUFFIX, "extra": 1},
        {**SUFFIX, "sequence": "1"},
        {**SUFFIX, "sequence": None},
        {**SUFFIX, "sequence": 2**63},
        {**SUFFIX, "hash": "text"},
        {**SUFFIX, "accepted_at": datetime(2026, 1, 1)},
    ],
    ids=["missing", "extra", "text", "null", "too large", "text for bytes", "naive datetime"],
)
def test_a_record_that_does_not_fit_its_schema_is_not_written(record: dict[str, object]) -> None:
    with pytest.raises(Unencodable):
        codec.encode("suffix", record)


def test_a_missing_field_is_not_written_as_null() -> None:
    """A nullable field left out is a mistake of the writer, not an absent value."""
    with pytest.raises(Unencodable):
        codec.encode("attributes/turn", {})


def test_a_refusal_names_the_field_and_never_the_value() -> None:
    with pytest.raises(Unencodable) as refused:
        codec.encode("attributes/turn", {"outcome": ["mia_li_3668"]})
    assert "TurnAttributes.outcome" in str(refused.value)
    assert "mia" not in str(refused.value)


def test_lone_surrogates_are_not_written() -> None:
    with pytest.raises(Unencodable):
        codec.encode("attributes/turn", {"outcome": "\ud800"})


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def time_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_times_are_the_same_microseconds_in_every_time_zone(time_zone: str) -> None:
    body = codec.encode_body("suffix", {**SUFFIX, "accepted_at": 1_767_225_600_123_457})
    assert body.hex() == "020401" + "828991e288d2a306" + "02700268"
    assert codec.decode_body("suffix", body)["accepted_at"] == 1_767_225_600_123_457


def test_an_older_version_is_read_into_the_current_one() -> None:
    old = written_by(1, VERSIONS, {"count": 7})
    decoded = Codec(MadeUp(*VERSIONS)).decode(old)
    assert decoded == ("thing", 1, {"count": 7, "tags": [], "double": 0})


def test_a_newer_version_is_read_into_the_one_that_the_code_knows() -> None:
    new = written_by(3, VERSIONS, {"count": 7, "tags": ["a"], "double": 14})
    assert Codec(MadeUp(*VERSIONS, current=2)).decode(new) == ("thing", 3, {"count": 7, "tags": ["a"]})


def test_defaults_are_not_shared_between_records() -> None:
    """fastavro hands out one default list to every record; a reader that appends to it must not change the next one."""
    old, reader = written_by(1, VERSIONS, {"count": 7}), Codec(MadeUp(*VERSIONS))
    reader.decode(old).record["tags"].append("mine")
    assert reader.decode(old).record["tags"] == []
    assert reader.decode_body("thing", old[5:], version=1)["tags"] == []


def test_an_upcast_says_better_than_a_default_what_an_old_record_meant() -> None:
    """v1 -> v2 by Avro's resolution, v2 -> v3 by a step."""
    upcasts: dict[tuple[str, int], Upcast] = {("thing", 2): lambda record: {**record, "double": 2 * record["count"]}}
    reader = Codec(MadeUp(*VERSIONS), upcasts)
    assert reader.decode(written_by(1, VERSIONS, {"count": 7})).record == {"count": 7, "tags": [], "double": 14}
    assert reader.decode(written_by(2, VERSIONS, {"count": 7, "tags": ["a"]})).record == {"count": 7, "tags": ["a"], "double": 14}


def test_after_the_first_upcast_of_a_subject_each_version_has_one() -> None:
    registry = FileRegistry()
    for subject, version in UPCASTS:
        assert all((subject, later) in UPCASTS for later in range(version, registry.current_version(subject)))


def test_a_schema_is_looked_up_and_parsed_once() -> None:
    """Parsing a schema costs a thousand reads."""
    registry = MadeUp(*VERSIONS)
    reader = Codec(registry)
    for _ in range(100):
        reader.decode(reader.encode("thing", {"count": 1, "tags": [], "double": 2}))
    assert registry.lookups <= 2


def test_a_times_logical_type_is_a_plain_number_here() -> None:
    schema = {"type": "map", "values": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}
    assert codec.without_logical_types(schema) == {"type": "map", "values": ["null", "long"]}
