"""The envelope: an event is a draft and a suffix, records and schemas name the same fields, and anyone can read them.

What is read here "plainly" is read with fastavro and the schema files alone.
"""

import io
import json
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import fastavro
import msgspec
import pytest

from schemas import catalog
from schemas.catalog import FileRegistry
from streams.log import record
from streams.session.commands import Command, Report
from streams.session.dead_letters import DeadLetter
from streams.session.events import FAMILIES, Content, Draft, Event, KeyReference, Link
from streams.session.outcomes import ACCEPTED, Grant, Inputs, OpenEffect, Outcome, Recovery, Unavailable
from tests.support import examples

ADDED = {
    "sequence": 7,
    "command_offset": 90,
    "command_last": True,
    "accepted_at": examples.NOON,
    "previous_hash": b"p" * 32,
    "hash": b"h" * 32,
}


def schema(name: str) -> Any:
    return fastavro.parse_schema(json.loads((catalog.FOLDER / f"{name}.avsc").read_text()))


def plainly(value: bytes) -> dict[str, Any]:
    """A value read as docs/wire-format.md tells a stranger to."""
    assert value[0] == 0
    registry = json.loads((catalog.FOLDER / "registry.json").read_text())
    (entry,) = [entry for entry in registry if entry["id"] == int.from_bytes(value[1:5], "big")]
    return read(f"{entry['subject']}.v{entry['version']}", value[5:])


def read(name: str, body: bytes) -> dict[str, Any]:
    stream = io.BytesIO(body)
    found: dict[str, Any] = fastavro.schemaless_reader(stream, schema(name), None)  # type: ignore[assignment]
    assert stream.read() == b""
    return found


def written(name: str, fields: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema(name), fields, strict=True)
    return stream.getvalue()


def fields_of(name: str) -> list[str]:
    return [field["name"] for field in current(name)["fields"]]


def current(name: str) -> dict[str, Any]:
    """The schema that is written now."""
    found: dict[str, Any] = json.loads((catalog.FOLDER / catalog.file_name(name, FileRegistry().current_version(name))).read_text())
    return found


def nested(name: str, *path: str) -> list[str]:
    """Field names of a record inside a schema."""
    found = current(name)
    for step in path:
        found = next(field["type"] for field in found["fields"] if field["name"] == step)
        if isinstance(found, list):
            found = found[1]
        found = found.get("items", found)
    return [field["name"] for field in found["fields"]]


def test_an_events_fields_are_a_drafts_and_then_a_suffixs() -> None:
    """In every version: that is what lets the authority pass a draft's bytes through."""
    for published in FileRegistry().published():
        if published.subject == "event":
            parts = [json.loads((catalog.FOLDER / f"{part}.v{published.version}.avsc").read_text()) for part in ("draft", "suffix")]
            assert [field for part in parts for field in part["fields"]] == published.schema["fields"]


def test_commands_drafts_suffixes_and_events_have_the_same_versions() -> None:
    """A draft within a command has no number of its own, so the command's version says which it is."""
    versions: dict[str, set[int]] = {}
    for published in FileRegistry().published():
        versions.setdefault(published.subject, set()).add(published.version)
    assert versions["command"] == versions["draft"] == versions["suffix"] == versions["event"]


@pytest.mark.parametrize(
    ("struct", "fields"),
    [
        (Draft, fields_of("draft")),
        (Event, fields_of("event")),
        (Command, fields_of("command")),
        (DeadLetter, fields_of("dead-letter")),
        (Link, nested("draft", "links")),
        (Content, nested("draft", "content")),
        (KeyReference, nested("draft", "content", "key_reference")),
        (Report, nested("command", "report")),
        (Outcome, nested("outcomes", "outcomes")),
        (Grant, nested("outcomes", "outcomes", "grant")),
        (Recovery, nested("outcomes", "outcomes", "grant", "recovery")),
        (Inputs, nested("outcomes", "outcomes", "grant", "recovery", "inputs")),
        (Unavailable, nested("outcomes", "outcomes", "grant", "recovery", "unavailable")),
        (OpenEffect, nested("outcomes", "outcomes", "grant", "recovery", "open_effects")),
        *((family, fields_of(f"attributes/{name}")) for name, family in FAMILIES.items()),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else "",
)
def test_records_and_schemas_name_the_same_fields_in_the_same_order(struct: type[msgspec.Struct], fields: list[str]) -> None:
    assert list(struct.__struct_fields__) == fields


def test_every_attribute_may_be_absent() -> None:
    """So that a family can grow."""
    for name, family in FAMILIES.items():
        assert all(type(None) in get_args(hint) for hint in get_type_hints(family).values()), name


@pytest.mark.parametrize("draft", [examples.message(), *examples.of_every_type()], ids=lambda draft: draft.type)
def test_an_events_bytes_are_the_drafts_bytes_and_a_suffix(draft: Draft) -> None:
    """Equal, to the byte, to what plain fastavro writes for the whole record."""
    body = record.encode_draft(draft)
    value = record.encode_event(body, **ADDED)  # type: ignore[arg-type]
    assert value[5:].startswith(body)
    whole = {**read("draft.v1", body), **ADDED}
    assert value[5:] == written("event.v1", whole)


def test_a_stranger_reads_an_event_with_its_attributes() -> None:
    draft = examples.message()
    event = plainly(record.encode_event(record.encode_draft(draft), **ADDED))  # type: ignore[arg-type]
    assert event["event_id"] == draft.event_id
    assert event["accepted_at"].isoformat() == "2026-01-01T12:00:00+00:00"
    assert event["links"] == [{"relation": link.relation, "id": link.id} for link in draft.links]
    assert event["content"]["key_reference"] == {"subject_id": examples.SUBJECT, "session_id": examples.SESSION, "expiry_day": "2027-01-02"}
    assert event["content"]["ciphertext"] == examples.SEALED_CONTENT.ciphertext
    assert plainly(event["attributes"]) == msgspec.structs.asdict(draft.attributes)  # type: ignore[arg-type]


def test_a_stranger_reads_attributes_of_every_family() -> None:
    for draft in examples.of_every_type():
        value = record.encode_attributes(draft.type, draft.attributes)
        assert value is not None
        assert set(plainly(value).values()) == {None}


def test_a_stranger_reads_a_command_with_its_drafts() -> None:
    command = examples.command(examples.message(0), examples.message(1), report=Report(examples.made_up_id("run"), 2))
    found = plainly(record.encode_command(command))
    assert (found["command_id"], found["kind"], found["report"]["generation"]) == (command.command_id, "append", 2)
    assert [read("draft.v1", body)["event_id"] for body in found["drafts"]] == [draft.event_id for draft in command.drafts]


def outcomes() -> Sequence[Outcome]:
    grant = Grant(examples.made_up_id("run"), 3, examples.made_up_id("task"), examples.NOON, 12)
    return [
        Outcome(command_id=examples.COMMAND, correlation=index, session_id=examples.SESSION, status=ACCEPTED, decided_at=1, grant=given)
        for index, given in enumerate((None, grant))
    ]


def test_a_stranger_reads_outcomes() -> None:
    found = plainly(record.encode_outcomes("gateway-0.1", outcomes()))
    assert found["reply_to"] == "gateway-0.1"
    assert [outcome["correlation"] for outcome in found["outcomes"]] == [0, 1]
    assert [outcome["grant"] and outcome["grant"]["run_sequence"] for outcome in found["outcomes"]] == [None, 12]
