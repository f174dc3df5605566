"""Full compatibility, transitive: any published version reads any other. Shown over made-up pairs that must and must not."""

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.catalog import FileRegistry, Published
from schemas.codec import Codec, Undecodable
from schemas.compatibility import incompatible, problems
from tests.unit.schemas.test_codec import MadeUp, record_of, written_by

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
BASE = record_of("Thing", ("id", "string"), ("count", "long"))


def enum(*symbols: str, **more: str) -> dict[str, Any]:
    return {"type": "enum", "name": "Word", "symbols": list(symbols), **more}


def inner(*fields: tuple[Any, ...], name: str = "Inner") -> dict[str, Any]:
    return record_of("Thing", ("inner", record_of(name, *fields)))


def test_every_published_pair_reads_each_other() -> None:
    assert incompatible(FileRegistry().published()) == []


@pytest.mark.parametrize(
    "other",
    [
        BASE,
        record_of("Thing", ("id", "string"), ("count", "long"), ("more", ["null", "string"], None)),
        record_of("Thing", ("count", "long"), ("id", "string")),
        record_of("Thing", ("id", "string"), ("count", "long"), ("inner", record_of("Inner", ("x", "int")), {"x": 1})),
    ],
    ids=["same", "added with default", "reordered", "added record with default"],
)
def test_changes_that_read_both_ways(other: dict[str, Any]) -> None:
    assert problems(reader=other, writer=BASE) == problems(reader=BASE, writer=other) == []


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (BASE, record_of("Thing", ("id", "string"), ("count", "long"), ("more", "string")), "more"),
        (BASE, record_of("Thing", ("id", "string")), "count"),
        (BASE, record_of("Thing", ("id", "string"), ("amount", "long")), "amount"),
        (BASE, record_of("Other", ("id", "string"), ("count", "long")), "value"),
        (BASE, {**BASE, "namespace": "elsewhere"}, "value"),
        (BASE, record_of("Thing", ("id", "bytes"), ("count", "long")), "id"),
        (BASE, record_of("Thing", ("id", "string"), ("count", "int")), "count"),
        (BASE, record_of("Thing", ("id", "string"), ("count", "double")), "count"),
        (BASE, record_of("Thing", ("id", "string"), ("count", MICROS)), "count"),
        (BASE, record_of("Thing", ("id", "string"), ("count", ["null", "long"])), "count"),
        (inner(("x", "int")), inner(("x", "int"), ("y", "int")), "inner.y"),
        (inner(("x", "int")), inner(("x", "int"), name="Renamed"), "inner"),
        (record_of("Thing", ("word", enum("a", "b"))), record_of("Thing", ("word", enum("a", "b", "c"))), "word"),
        (record_of("Thing", ("word", enum("a", "b"))), record_of("Thing", ("word", enum("a"))), "word"),
        (
            record_of("Thing", ("list", {"type": "array", "items": "int"})),
            record_of("Thing", ("list", {"type": "array", "items": "string"})),
            "list[]",
        ),
        (
            record_of("Thing", ("map", {"type": "map", "values": "int"})),
            record_of("Thing", ("map", {"type": "map", "values": "string"})),
            "map{}",
        ),
        (
            record_of("Thing", ("fixed", {"type": "fixed", "name": "F", "size": 16})),
            record_of("Thing", ("fixed", {"type": "fixed", "name": "F", "size": 32})),
            "fixed",
        ),
        (record_of("Thing", ("u", ["null", "string"])), record_of("Thing", ("u", ["null", "string", "long"])), "u"),
    ],
)
def test_changes_that_do_not_read_both_ways(old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    found = problems(reader=new, writer=old) + problems(reader=old, writer=new)
    assert any(problem.startswith(f"{place}:") for problem in found)


def test_a_promotion_reads_one_way_only() -> None:
    wide = record_of("Thing", ("id", "string"), ("count", "double"))
    assert problems(reader=wide, writer=BASE) == []
    assert problems(reader=BASE, writer=wide) == ["count: double is not long"]


def test_an_enum_with_a_default_reads_words_that_it_does_not_know() -> None:
    assert problems(reader=enum("a", default="a"), writer=enum("a", "b")) == []


def test_a_schema_that_refers_to_itself_is_compared_to_its_end() -> None:
    def tree(label: str) -> dict[str, Any]:
        return record_of("Tree", ("label", label), ("children", {"type": "array", "items": "Tree"}))

    assert problems(reader=tree("string"), writer=tree("string")) == []
    assert problems(reader=tree("string"), writer=tree("int")) == ["label: int is not string"]


def test_a_branch_given_up_half_way_hides_nothing_later() -> None:
    """The first branch of the union fails inside `Inner`; the same pair of records stands in the next field too."""
    written, wanted = record_of("Inner", ("x", "string")), record_of("Inner", ("x", "long"))
    reader = record_of("Thing", ("a", ["null", wanted]), ("b", "Inner"))
    writer = record_of("Thing", ("a", written), ("b", "Inner"))
    assert problems(reader=reader, writer=writer) == ["a: no branch reads record", "b.x: string is not long"]


def test_compatibility_is_transitive() -> None:
    """v2 has a default for what it adds, and v3 drops the default: each step alone looks harmless from one side."""
    versions = (
        BASE,
        record_of("Thing", ("id", "string"), ("count", "long"), ("more", "string", "")),
        record_of("Thing", ("id", "string"), ("count", "long"), ("more", "string")),
    )
    published = tuple(Published(number, "thing", number, schema) for number, schema in enumerate(versions, 1))
    assert incompatible(published[:2]) == incompatible(published[1:]) == []
    assert incompatible(published) == ["thing v1 as v3: more: not written, and has no default"]


@pytest.mark.parametrize(
    ("reader", "writer", "record"),
    [
        (BASE, record_of("Thing", ("id", "string")), {"id": "a"}),
        (record_of("Other", ("id", "string"), ("count", "long")), BASE, {"id": "a", "count": 1}),
        (record_of("Thing", ("id", "string"), ("count", "int")), BASE, {"id": "a", "count": 1}),
        (record_of("Thing", ("id", "string"), ("count", ["null", "long"])), BASE, {"id": "a", "count": 1}),
        (BASE, record_of("Thing", ("id", "string"), ("count", "long"), ("more", "long")), {"id": "a", "count": 1, "more": 2}),
        (record_of("Thing", ("word", enum("a"))), record_of("Thing", ("word", enum("a", "b"))), {"word": "b"}),
        (record_of("Thing", ("word", enum("a", default="a"))), record_of("Thing", ("word", enum("a", "b"))), {"word": "b"}),
        (inner(("x", "int"), name="Renamed"), inner(("x", "int")), {"inner": {"x": 1}}),
    ],
)
def test_the_library_that_reads_agrees_with_the_verdict(
    reader: dict[str, Any], writer: dict[str, Any], record: Mapping[str, object]
) -> None:
    value = written_by(1, (writer, reader), record)
    codec = Codec(MadeUp(writer, reader))
    if problems(reader=reader, writer=writer):
        with pytest.raises(Undecodable):
            codec.decode(value)
    else:
        assert codec.decode(value).version == 1
