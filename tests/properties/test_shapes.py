"""The short way through `streams.log.shapes` writes and reads exactly what the codec and the vocabulary do, or nothing.

Ordinary values must take it, so that it cannot quietly answer nothing; damaged ones may, as long as the result is the same.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from schemas import codec, primitives
from streams.authority import encoding
from streams.errors import Invalid, RecordUnreadable, StoreUnusable
from streams.log import record
from streams.log.attributes import shape_of, usual_attributes
from streams.log.outcomes import told
from streams.log.shapes.commands import read_command
from streams.log.shapes.drafts import read_draft, write_draft
from streams.log.shapes.events import read_event
from streams.session import chain
from streams.session.commands import Command
from streams.session.events import Draft, MessageAttributes
from streams.session.items import SessionState, from_record, to_record
from streams.session.outcomes import Outcome
from tests.properties.test_codec import attributes, commands, digests, drafts, ids, longs, outcomes
from tests.support import examples

modest = settings(max_examples=50, deadline=None)
many = settings(max_examples=75, deadline=None)
ordinary_longs = st.integers(-(2**62), 2**62 - 1)
HEADER = codec.HEADER_BYTES


def draft_record(draft: Draft) -> dict[str, Any]:
    written = {name: getattr(draft, name) for name in Draft.__struct_fields__}
    written["links"] = [{"relation": link.relation, "id": link.id} for link in draft.links]
    written["attributes"] = None if draft.attributes is None else attributes_value(draft)
    written["content"] = msgspec.to_builtins(draft.content, builtin_types=(bytes,))
    return written


def attributes_value(draft: Draft) -> bytes:
    return codec.encode(f"attributes/{draft.type.partition('.')[0]}", msgspec.structs.asdict(draft.attributes))


def event_value(draft: Draft) -> bytes:
    body = record.encode_draft(draft)
    return record.encode_event(
        body, sequence=7, command_offset=70_000, command_last=True, accepted_at=examples.NOON, previous_hash=bytes(32), hash=bytes(32)
    )


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    written = msgspec.structs.asdict(outcome)
    written["grant"] = None if outcome.grant is None else msgspec.structs.asdict(outcome.grant)
    return written


@st.composite
def damaged(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that differ from good ones in a few places, or in length."""
    value = bytearray(draw(values))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value) - 1))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            value[at] = draw(st.integers(0, 255))
        elif kind == 1:
            value.insert(at, draw(st.sampled_from([0, 1, 2, 0x48, 0x4A, 0x80, 0xFF])))
        elif kind == 2 and len(value) > 1:
            del value[at]
        else:
            value[at:at] = value[max(0, at - draw(st.integers(1, 40))) : at]
    return bytes(value)


def long_way(read: Callable[[], Any]) -> Any:
    """None where it refuses."""
    try:
        return read()
    except (codec.Undecodable, RecordUnreadable):
        return None


@given(longs)
@example(0)
@example(63)
@example(64)
@example(-(2**63))
@example(2**62)
def test_a_long_is_written_and_read_as_fastavro_does(value: int) -> None:
    body = codec.encode_body("suffix", {"sequence": value, "command_offset": 0, "command_last": False, "accepted_at": 0,
                                        "previous_hash": b"", "hash": b""})  # fmt: skip
    written = primitives.long_bytes(value)
    assert body == written + bytes(5)
    assert primitives.long_text(value).encode("latin-1") == written
    if len(written) <= 9:
        assert primitives.long_at(written, 0) == (value, len(written))
        assert primitives.long_of(written.decode("latin-1")) == value
    else:
        with pytest.raises(IndexError):
            primitives.long_at(written, 0)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        primitives.long_bytes(value)


@modest
@given(drafts())
def test_a_draft_is_written_as_the_codec_does(draft: Draft) -> None:
    expected = codec.encode_body("draft", draft_record(draft))
    assert record.encode_draft(draft) == expected
    raw = None if draft.attributes is None else attributes_value(draft)
    assert write_draft(draft, raw) in (expected, None)
    assert record.encode_attributes(draft.type, draft.attributes) == raw


@modest
@given(commands)
def test_a_command_is_written_and_read_as_the_codec_does(command: Command) -> None:
    written = {name: getattr(command, name) for name in Command.__struct_fields__}
    written["kind"] = command.kind.value
    written["report"] = None if command.report is None else msgspec.structs.asdict(command.report)
    written["drafts"] = [codec.encode_body("draft", draft_record(draft)) for draft in command.drafts]
    value = codec.encode("command", written)
    assert record.encode_command(command) == value
    assert record.decode_command_parts(value) == record._command(value)


@modest
@given(drafts(), longs, longs, st.booleans(), longs, digests, digests)
def test_an_event_is_written_and_read_as_the_codec_does(
    draft: Draft, sequence: int, offset: int, last: bool, accepted_at: int, previous: bytes, hash: bytes
) -> None:
    added = {"sequence": sequence, "command_offset": offset, "command_last": last, "accepted_at": accepted_at,
             "previous_hash": previous, "hash": hash}  # fmt: skip
    value = record.encode_event(record.encode_draft(draft), **added)  # type: ignore[arg-type]
    assert value == codec.encode("event", {**draft_record(draft), **added})
    assert record.decode_event_raw(value) == record._event(value)


@modest
@given(st.text(max_size=20), st.lists(outcomes, max_size=3))
def test_outcomes_are_written_as_the_codec_does(reply_to: str, batch: list[Outcome]) -> None:
    expected = codec.encode("outcomes", {"reply_to": reply_to, "outcomes": [outcome_record(outcome) for outcome in batch]})
    assert record.encode_outcomes(reply_to, batch) == expected
    for outcome in batch:
        recorded = {k: v for k, v in outcome_record(outcome).items() if k not in ("command_id", "correlation", "repeated")}
        assert encoding.encode_recorded(told(outcome)) == codec.encode("state/recorded-outcome", recorded)


words = st.sampled_from(["open", "closed", "live", "imported", "standard", "zdr"])
headers = st.builds(
    SessionState, session_id=ids("sess"), workspace_id=ids("ws"), subject_id=st.none() | ids("subj"), status=words, origin=words,
    policy_mode=words, content_window_days=longs, created_at=longs, sequence=longs, last_hash=digests | st.just(b""),
    last_accepted_at=longs, last_command_offset=longs,
)  # fmt: skip


@modest
@given(headers)
def test_a_sessions_header_is_written_as_the_codec_does(header: SessionState) -> None:
    assert encoding.encode_state("session", header) == codec.encode("state/session", to_record(header))


chunks = st.builds(
    encoding.encode_chunk, longs, st.lists(st.tuples(st.binary(min_size=16, max_size=16), digests, st.binary(max_size=200)), max_size=5)
)


@many
@given(st.one_of(chunks, damaged(chunks)))
def test_a_chunk_is_read_as_the_codec_reads_it_or_refused_as_it_refuses(value: bytes) -> None:
    try:
        read = codec.decode_as("state/outcome-chunk", value)
    except codec.Undecodable:
        with pytest.raises(StoreUnusable):
            encoding.decode_chunk(value)
        return
    rows = [(row["command_id"], row["request_digest"], row["outcome"]) for row in read["entries"]]
    assert encoding.decode_chunk(value) == (read["decided_at"], rows)


@modest
@given(longs, st.lists(st.tuples(st.binary(min_size=16, max_size=16), digests, st.binary(max_size=200)), max_size=5))
def test_a_chunk_of_outcomes_is_written_as_the_codec_does(decided_at: int, entries: list[encoding.Entry]) -> None:
    rows = [{"command_id": command_id, "request_digest": digest, "outcome": outcome} for command_id, digest, outcome in entries]
    assert encoding.encode_chunk(decided_at, entries) == codec.encode("state/outcome-chunk", {"decided_at": decided_at, "entries": rows})


@many
@given(damaged(drafts().map(record.encode_draft)))
def test_a_damaged_draft_is_read_as_the_codec_reads_it_or_left_to_it(body: bytes) -> None:
    read = read_draft(body, body.decode("latin-1"), 0, usual_attributes)
    if read is not None and read.end == len(body):
        assert long_way(lambda: record._draft(codec.decode_body("draft", body))) == (read.draft, read.attributes)


@many
@given(damaged(commands.map(record.encode_command)))
def test_a_damaged_command_is_read_as_the_codec_reads_it_or_left_to_it(value: bytes) -> None:
    read = read_command(value, HEADER, usual_attributes)
    if value.startswith(codec.header("command")) and read is not None:
        assert long_way(lambda: record._command(value)) is not None
        assert record.decode_command_parts(value) == record._command(value)


@many
@given(damaged(drafts().map(event_value)))
def test_a_damaged_event_is_read_as_the_codec_reads_it_or_left_to_it(value: bytes) -> None:
    read = read_event(value, HEADER, usual_attributes)
    if value.startswith(codec.header("event")) and read is not None:
        assert long_way(lambda: record._event(value)) == read


@many
@given(st.data())
def test_damaged_attributes_are_read_as_the_codec_reads_them_or_left_to_it(data: st.DataObject) -> None:
    draft = data.draw(drafts().filter(lambda draft: draft.attributes is not None))
    family = draft.type.partition(".")[0]
    header, shape = shape_of(family)
    body = data.draw(damaged(st.just(attributes_value(draft)[HEADER:])))
    read = shape.read(body.decode("latin-1"))
    if read is not None:
        assert long_way(lambda: record._attributes(header + body)) == read


ORDINARY = [examples.message(index) for index in range(3)]


@pytest.mark.parametrize("draft", ORDINARY)
def test_ordinary_values_take_the_short_way(draft: Draft) -> None:
    raw = record.encode_attributes(draft.type, draft.attributes)
    body = write_draft(draft, raw)
    assert body is not None
    read = read_draft(body, body.decode("latin-1"), 0, usual_attributes)
    assert read is not None
    assert read.draft == draft
    value = record.encode_command(examples.command(draft))
    assert read_command(value, HEADER, usual_attributes) is not None
    assert read_event(event_value(draft), HEADER, usual_attributes) is not None


@modest
@given(st.data())
def test_all_attributes_of_ordinary_numbers_take_the_short_way(data: st.DataObject) -> None:
    """Of every family; only a double is written the long way, and numbers beyond 63 bits."""
    draft = data.draw(drafts())
    written = data.draw(attributes(draft.type))
    numbers = {} if written is None else {k: v % 2**40 for k, v in msgspec.structs.asdict(written).items() if type(v) is int}
    floats = {} if written is None else {k: None for k, v in msgspec.structs.asdict(written).items() if type(v) is float}
    if written is not None:
        written = msgspec.structs.replace(written, **numbers, **floats)
        _, shape = shape_of(draft.type.partition(".")[0])
        body = shape.write(written)
        assert body is not None
        assert shape.read(body) == written


def test_the_family_of_another_schema_is_not_taken_for_this_one() -> None:
    """A newer version has another number in front, and is left to the codec's resolution."""
    draft = examples.message()
    raw = record.encode_attributes(draft.type, draft.attributes)
    assert raw is not None
    assert usual_attributes(draft.type, raw) == draft.attributes
    other = raw[:1] + (int.from_bytes(raw[1:HEADER], "big") + 1).to_bytes(4, "big") + raw[HEADER:]
    assert usual_attributes(draft.type, other) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"issued_at": 2**63}, {"not_after": -(2**63) - 1}, {"correlation": 2**64}, {"expected_sequence": 2**63}, {"lease_ms": 2**63},
        {"issued_at": "now"}, {"reply_to": None}, {"reply_to": "\ud800"}, {"request_digest": "x" * 32},
    ],
)  # fmt: skip
def test_a_command_that_does_not_fit_is_invalid_and_nothing_else(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        record.encode_command(examples.command(examples.message(), **changes))


@pytest.mark.parametrize("changes", [{"input_tokens": [1]}, {"input_tokens": 2**63}, {"role": 5}, {"role": "sänger"}, {"model": "x" * 129}])
def test_attributes_that_do_not_fit_are_invalid_and_nothing_else(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        record.encode_attributes("message.appended", MessageAttributes(**changes))


def test_what_was_written_before_does_not_change_what_is_refused() -> None:
    """Equal values of different types are different attributes: True is 1, but no number of tokens."""
    cold = _outcome_of(MessageAttributes(input_tokens=True, output_tokens=91))
    record.encode_attributes("message.appended", MessageAttributes(input_tokens=1, output_tokens=91))
    assert _outcome_of(MessageAttributes(input_tokens=True, output_tokens=91)) == cold


def _outcome_of(attributes: MessageAttributes) -> bytes | str | None:
    try:
        return record.encode_attributes("message.appended", attributes)
    except Invalid as error:
        return str(error)


def test_a_surrogate_in_an_outcome_is_invalid() -> None:
    outcome = Outcome(
        command_id=examples.COMMAND, correlation=0, session_id=examples.SESSION, status="rejected", detail="\ud800", decided_at=0
    )
    with pytest.raises(Invalid):
        record.encode_outcomes("gateway", [outcome])


@given(st.text(max_size=300), st.text(max_size=300))
@example("x" * 300, "é" * 200)
@modest
def test_texts_of_any_length_and_alphabet_are_hashed_with_their_lengths(event_type: str, workspace_id: str) -> None:
    assume(not any(0xD800 <= ord(character) <= 0xDFFF for character in event_type + workspace_id))
    expected = b"".join(
        len(text.encode()).to_bytes(4, "big") + text.encode() for text in (examples.COMMAND, examples.SESSION, event_type, workspace_id)
    )
    assert chain._texts(examples.COMMAND, examples.SESSION, event_type, workspace_id) == expected


@modest
@given(headers)
def test_a_sessions_header_is_read_as_the_codec_does(header: SessionState) -> None:
    value = encoding.encode_state("session", header)
    assert encoding.decode_state("session", value) == header


@many
@given(damaged(headers.map(lambda header: encoding.encode_state("session", header))))
def test_a_damaged_header_is_read_as_the_codec_reads_it_or_left_to_it(value: bytes) -> None:
    read = encoding._read_header(value)
    if read is not None:
        assert from_record("session", codec.decode_as("state/session", value)) == read


def test_an_ordinary_header_takes_the_short_way() -> None:
    header = SessionState(
        session_id=examples.SESSION, workspace_id=examples.WORKSPACE, status="open", origin="live", policy_mode="standard",
        content_window_days=365, created_at=examples.NOON, sequence=7, last_hash=bytes(32), last_accepted_at=examples.NOON,
        last_command_offset=7,
    )  # fmt: skip
    assert encoding._read_header(encoding.encode_state("session", header)) == header


def test_another_version_of_a_schema_takes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the first version must not be written in front of another version's number, nor read as it."""
    monkeypatch.setattr(record, "_shaped", lambda: False)
    for name in ("read_draft", "write_draft", "read_command", "write_command", "read_event"):
        monkeypatch.setattr(record, name, lambda *_: pytest.fail("took the short way"))
    draft = examples.message()
    value = record.encode_command(examples.command(draft))
    assert record.decode_command(value).drafts == (draft,)
    body = record.encode_draft(draft)
    assert record.decode_draft(body) == draft
    assert record.decode_event(event_value(draft)).event_id == draft.event_id
