"""Records and their bytes: what is written is read back, what may not be in the log is refused at both ends."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import catalog, codec
from schemas.catalog import FileRegistry
from streams.errors import Invalid, RecordUnreadable
from streams.log import record
from streams.session.commands import Kind, Report
from streams.session.dead_letters import DeadLetter
from streams.session.events import (
    NO_CONTENT,
    OMITTED,
    SEALED,
    Content,
    Draft,
    EffectAttributes,
    KeyReference,
    Link,
    MessageAttributes,
    RunAttributes,
    ToolAttributes,
)
from streams.session.outcomes import REJECTED, Grant, Outcome
from tests.support import examples
from tests.support.examples import SESSION, SUBJECT, made_up_id

ADDED = {"sequence": 7, "command_offset": 90, "command_last": False, "accepted_at": 1, "previous_hash": b"p" * 32, "hash": b"h" * 32}


def raw_draft(**changes: object) -> bytes:
    """A draft's bytes with fields that `encode_draft` would refuse."""
    fields = codec.decode_body("draft", record.encode_draft(examples.message()))
    return codec.encode_body("draft", {**fields, **changes})


def raw_command(**changes: object) -> bytes:
    fields = codec.decode_as("command", record.encode_command(examples.command(examples.message())))
    return codec.encode("command", {**fields, **changes})


@pytest.mark.parametrize("draft", [examples.message(), *examples.of_every_type()], ids=lambda draft: draft.type)
def test_a_draft_is_read_back(draft: Draft) -> None:
    body = record.encode_draft(draft)
    assert record.decode_draft(body) == draft
    assert record.decode_draft_raw(body) == (draft, record.encode_attributes(draft.type, draft.attributes))


def test_absent_zero_and_empty_are_kept_apart() -> None:
    draft = examples.message(attempt_generation=0, occurred_at=0, links=(), attributes=MessageAttributes(input_tokens=0))
    assert record.decode_draft(record.encode_draft(draft)) == draft


def test_a_command_is_read_back() -> None:
    command = examples.command(
        examples.message(0),
        examples.bare("turn.started"),
        kind=Kind.CLAIM,
        expected_sequence=0,
        report=Report(made_up_id("run"), 1, made_up_id("task"), 0),
        lease_ms=30_000,
        importing=True,
    )
    assert record.decode_command(record.encode_command(command)) == command
    assert record.decode_command(record.encode_command(examples.command())) == examples.command()


def test_bodies_at_hand_are_put_into_a_command_as_they_are() -> None:
    drafts = [examples.message(index) for index in range(3)]
    bodies = [record.encode_draft(draft) for draft in drafts]
    value = record.encode_command(examples.command(), bodies)
    assert value == record.encode_command(examples.command(*drafts))
    command, parts = record.decode_command_parts(value)
    assert [part.body for part in parts] == bodies
    assert [part.attributes for part in parts] == [record.encode_attributes(draft.type, draft.attributes) for draft in drafts]
    assert command.drafts == tuple(drafts)


def test_attributes_that_no_rule_looks_at_may_stay_bytes() -> None:
    """Those of runs, effects ... are decoded all the same."""
    effect = examples.bare("effect.dispatched", EffectAttributes(effect_id=made_up_id("eff")))
    value = record.encode_command(examples.command(examples.message(), effect))
    command, parts = record.decode_command_parts(value, attributes=False)
    assert command.drafts[0] == msgspec.structs.replace(examples.message(), attributes=None)
    assert command.drafts[1] == effect
    assert record.decode_attributes(parts[0].attributes) == examples.message().attributes


def test_attributes_of_another_family_are_refused_even_where_they_stay_bytes() -> None:
    run = record.encode_attributes("run.accepted", RunAttributes())
    for attributes in (True, False):
        with pytest.raises(RecordUnreadable, match="not of the type's family"):
            record.decode_draft(raw_draft(attributes=run), attributes=attributes)
    with pytest.raises(Invalid, match=r"attributes of message\.appended"):
        record.encode_attributes("message.appended", RunAttributes())


def test_an_event_is_read_back() -> None:
    draft = examples.message()
    event = record.decode_event(record.encode_event(record.encode_draft(draft), **ADDED))  # type: ignore[arg-type]
    assert {name: getattr(event, name) for name in Draft.__struct_fields__} == msgspec.structs.asdict(draft)
    assert {name: getattr(event, name) for name in ADDED} == ADDED


def test_outcomes_are_read_back_in_order() -> None:
    first = Outcome(command_id=examples.COMMAND, correlation=1, session_id=SESSION, status="accepted", first_sequence=1, last_sequence=3,
                    position_offset=12, decided_at=5, grant=Grant(made_up_id("run"), 1, made_up_id("task"), 9, 3))  # fmt: skip
    second = Outcome(command_id=made_up_id("cmd", 2), correlation=2, session_id=SESSION, status=REJECTED, code="runtime.attempt_fenced",
                     detail="generation 2", decided_at=6, repeated=True, actual_run_sequence=8)  # fmt: skip
    assert record.decode_outcomes(record.encode_outcomes("gateway", [first, second])) == ("gateway", (first, second))


def test_a_dead_letter_is_read_back() -> None:
    letter = DeadLetter(origin="sessions.commands", partition=0, offset=0, reason="wire.magic", detail="0x01", recorded_at=1,
                        key_day="2026-01-01", ciphertext=b"c", digest=b"d")  # fmt: skip
    assert record.decode_dead_letter(record.encode_dead_letter(letter)) == letter


MISPLACED: list[tuple[str, Any]] = [
    ("event_id", made_up_id("cmd")),
    ("session_id", "sess_"),
    ("session_id", SESSION.upper()),
    ("session_id", SESSION + "\n"),
    ("workspace_id", "acme"),
    ("thread_id", ""),
    ("turn_id", made_up_id("run")),
    ("run_id", "None"),
    ("native_task_id", "pid 4711"),
    ("actor_id", "mia_li_3668"),
    ("subject_id", "subj_" + "g" * 32),
    ("command_id", made_up_id("cmd") + "0"),
    ("type", "message.deleted"),
    ("type", "mia_li_3668"),
]


@pytest.mark.parametrize(("field", "value"), MISPLACED)
def test_text_in_an_identifiers_place_is_refused_when_written_and_when_read(field: str, value: str) -> None:
    with pytest.raises(Invalid, match=field):
        record.encode_draft(examples.message(attributes=None, **{field: value}))
    with pytest.raises(RecordUnreadable, match=f"field.misplaced: {field}"):
        record.decode_draft(raw_draft(attributes=None, **{field: value}))


@pytest.mark.parametrize("link", [Link("friend", made_up_id("evt")), Link("cause", "mia_li_3668"), Link("cause", "")])
def test_a_link_is_a_known_relation_to_an_identifier(link: Link) -> None:
    with pytest.raises(Invalid, match="links"):
        record.encode_draft(examples.message(links=(link,)))
    with pytest.raises(RecordUnreadable, match="links"):
        record.decode_draft(raw_draft(links=[msgspec.structs.asdict(link)]))


KEY = KeyReference(SUBJECT, SESSION, "2027-01-02")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (Content("plain"), "content.state"),
        (Content(SEALED), "content.key_reference"),
        (Content(SEALED, KEY, None, bytes(32)), "content.ciphertext"),
        (Content(SEALED, KEY, bytes(45), bytes(32)), "content.ciphertext"),
        (Content(SEALED, KEY, bytes(64), None), "content.digest"),
        (Content(SEALED, KEY, bytes(64), bytes(31)), "content.digest"),
        (Content(SEALED, KeyReference("mia_li_3668", SESSION, "2027-01-02"), bytes(64), bytes(32)), "content.key_reference"),
        (Content(SEALED, KeyReference(SUBJECT, made_up_id("sess", 2), "2027-01-02"), bytes(64), bytes(32)), "content.key_reference"),
        (Content(SEALED, KeyReference(SUBJECT, SESSION, "tomorrow"), bytes(64), bytes(32)), "content.key_reference"),
        (Content(OMITTED, None, bytes(64), None), "content"),
        (Content("none", KEY), "content"),
    ],
)
def test_content_is_sealed_whole_or_not_there(content: Content, place: str) -> None:
    with pytest.raises(Invalid, match=place):
        record.encode_draft(examples.message(content=content))
    with pytest.raises(RecordUnreadable, match=place):
        record.decode_draft(raw_draft(content=msgspec.to_builtins(content, builtin_types=(bytes,))))


@pytest.mark.parametrize(
    "content", [NO_CONTENT, Content(OMITTED), Content(SEALED, KeyReference(None, SESSION, "2027-01-02"), bytes(46), bytes(32))]
)
def test_content_may_be_absent_omitted_or_of_no_subject(content: Content) -> None:
    draft = examples.message(content=content)
    assert record.decode_draft(record.encode_draft(draft)).content == content


@pytest.mark.parametrize(
    ("event_type", "attributes", "place"),
    [
        ("message.appended", MessageAttributes(role="person"), "role"),
        ("message.appended", MessageAttributes(source_digest="mia_li_3668"), "source_digest"),
        ("message.appended", MessageAttributes(model="x" * 201), "model"),
        ("tool.called", ToolAttributes(name="rm\nrf"), "name"),
        ("tool.called", ToolAttributes(call_id="toolu_01AbC"), "call_id"),
        ("run.failed", RunAttributes(reason="Mia's card was declined"), "reason"),
        ("effect.reconciled", EffectAttributes(outcome="perhaps"), "outcome"),
    ],
)
def test_an_attribute_holds_no_text_of_a_person(event_type: str, attributes: Any, place: str) -> None:
    with pytest.raises(Invalid, match=f"attributes.{place} of {event_type}"):
        record.encode_attributes(event_type, attributes)
    family = event_type.partition(".")[0]
    value = codec.encode(f"attributes/{family}", msgspec.structs.asdict(attributes))
    with pytest.raises(RecordUnreadable, match=f"attributes.{place}"):
        record.decode_draft(raw_draft(type=event_type, attributes=value))


def test_what_does_not_fit_64_bits_is_the_callers_mistake() -> None:
    with pytest.raises(Invalid) as refused:
        record.encode_attributes("message.appended", MessageAttributes(input_tokens=2**63))
    assert refused.value.code == "request.invalid"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command_id", made_up_id("evt")),
        ("session_id", "s"),
        ("workspace_id", ""),
        ("principal_id", "mia_li_3668"),
        ("request_digest", b"short"),
        ("kind", "delete"),
        ("report", {"run_id": "r", "generation": 1, "native_task_id": None, "expected_run_sequence": None}),
        ("report", {"run_id": made_up_id("run"), "generation": 1, "native_task_id": "pid", "expected_run_sequence": None}),
    ],
)
def test_a_command_that_breaks_a_pattern_is_unreadable(field: str, value: object) -> None:
    with pytest.raises(RecordUnreadable) as refused:
        record.decode_command(raw_command(**{field: value}))
    assert refused.value.code == "field.misplaced"
    assert refused.value.detail.startswith(f"field.misplaced: {field}")


def test_a_command_that_breaks_a_pattern_is_not_written() -> None:
    with pytest.raises(Invalid, match="principal_id"):
        record.encode_command(examples.command(principal_id="mia_li_3668"))


def test_a_command_with_one_broken_draft_is_unreadable_as_a_whole() -> None:
    good = record.encode_draft(examples.message())
    for broken in (b"", good[:-1], good + b"\x00", b"\x00" + good):
        with pytest.raises(RecordUnreadable) as refused:
            record.decode_command(raw_command(drafts=[good, broken]))
        assert refused.value.code.startswith("wire.")


def test_a_reason_stands_in_front_of_what_is_unreadable() -> None:
    with pytest.raises(RecordUnreadable) as refused:
        record.decode_command(b"\x01" + bytes(40))
    assert (refused.value.code, refused.value.detail) == ("wire.magic", "wire.magic: 0x01")


def test_a_value_of_another_subject_is_unreadable() -> None:
    command, outcomes = record.encode_command(examples.command()), record.encode_outcomes("gateway", [])
    for decode, value in ((record.decode_event, command), (record.decode_outcomes, command), (record.decode_command, outcomes)):
        with pytest.raises(RecordUnreadable, match=r"wire\.subject"):
            decode(value)
    with pytest.raises(RecordUnreadable, match="not a family"):
        record.decode_attributes(command)


def test_words_newer_than_the_reader_are_read_in_accepted_events() -> None:
    """The authority that accepted them knew them; only identifiers are looked at again."""
    body = raw_draft(links=[{"relation": "checkpoint", "id": made_up_id("ckpt")}])
    value = codec.header("event") + body + codec.encode_body("suffix", ADDED)
    assert record.decode_event(value).links == (Link("checkpoint", made_up_id("ckpt")),)
    with pytest.raises(RecordUnreadable, match="subject_id"):
        record.decode_event(codec.header("event") + raw_draft(subject_id="mia_li_3668") + codec.encode_body("suffix", ADDED))


def test_drafts_of_an_older_version_become_bytes_of_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event is written in the current version, so its draft's bytes must be of it too."""
    folder = Path(shutil.copytree(catalog.FOLDER, tmp_path / "schemas", ignore=shutil.ignore_patterns("*.py*", "registry.json")))
    for subject in ("command", "draft", "suffix", "event"):
        today = folder / f"{subject}.v1.avsc"
        shutil.copy(today, folder / f"{subject}.v2.avsc")
        schema = json.loads(today.read_text())
        schema["fields"] = [field for field in schema["fields"] if field["name"] != "native_task_id"]
        today.write_text(json.dumps(schema))
    catalog.publish(folder)
    draft = examples.message(native_task_id=None, attributes=None)
    fields = codec.decode_body("draft", record.encode_draft(draft))
    del fields["native_task_id"]
    registry = FileRegistry(folder)
    monkeypatch.setattr(registry, "current_version", lambda subject: 1)
    old = codec.Codec(registry)
    envelope = codec.decode_as("command", record.encode_command(examples.command()))
    value = old.encode("command", {**envelope, "drafts": [old.encode_body("draft", fields)]})

    new = codec.Codec(FileRegistry(folder))
    for name in ("decode", "decode_body", "encode_body", "is_current"):
        monkeypatch.setattr(codec, name, getattr(new, name))
    command, parts = record.decode_command_parts(value)
    assert command.drafts == (draft,)
    assert parts == (record.RawDraft(record.encode_draft(draft), None),)
