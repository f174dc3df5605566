"""Any record that may be written is read back; any bytes whatever are read or refused, and nothing else happens."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.catalog import FileRegistry
from schemas.codec import Undecodable
from streams.errors import RecordUnreadable
from streams.log import record
from streams.session import chain
from streams.session.commands import Command, Kind, Report
from streams.session.events import FAMILIES, NONE, OMITTED, SEALED, TYPES, Attributes, Content, Draft, KeyReference, Link, family_of
from streams.session.outcomes import Grant, Outcome
from streams.session.vocabulary import ATTRIBUTES, RELATIONS

longs = st.integers(-(2**63), 2**63 - 1)
digests = st.binary(min_size=32, max_size=32)
words = st.sampled_from(["live", "standard", "main", "user", "human", "provider_lookup", "failed", "a_code", "a-model"])


def ids(prefix: str) -> st.SearchStrategy[str]:
    return st.integers(0, 2**128 - 1).map(lambda number: f"{prefix}_{number:032x}")


texts = st.one_of(words, *(ids(prefix) for prefix in ("call", "wait", "appr", "eff", "art", "chld", "run", "sthr", "key")),
                  digests.map(lambda digest: f"sha256:{digest.hex()}"))  # fmt: skip
session_ids, any_ids = ids("sess"), st.one_of(ids("evt"), ids("run"), ids("call"))


@st.composite
def attributes(draw: st.DrawFn, event_type: str) -> Attributes | None:
    """Attributes of the type's family, any of them absent."""
    family = FAMILIES[family_of(event_type)]
    if draw(st.booleans()):
        return None
    checks = dict(ATTRIBUTES[family])
    values: dict[str, Any] = {}
    for name, hint in family.__annotations__.items():
        kinds = {
            str: texts.filter(checks[name]) if name in checks else st.nothing(),
            int: longs,
            bool: st.booleans(),
            float: st.floats(allow_nan=False),
        }
        kind = next(kind for kind in (str, bool, int, float) if kind in hint.__args__)
        values[name] = draw(st.none() | kinds[kind])
    return family(**values)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    session_id, event_type = draw(session_ids), draw(st.sampled_from(sorted(TYPES)))
    references = st.builds(KeyReference, st.none() | ids("subj"), st.just(session_id), st.dates().map(str))
    content = draw(
        st.builds(Content, st.just(SEALED), references, st.binary(min_size=46, max_size=200), digests)
        | st.sampled_from([Content(NONE), Content(OMITTED)])
    )
    return Draft(
        event_id=draw(ids("evt")),
        session_id=session_id,
        type=event_type,
        workspace_id=draw(ids("ws")),
        thread_id=draw(st.none() | ids("sthr")),
        turn_id=draw(st.none() | ids("turn")),
        run_id=draw(st.none() | ids("run")),
        attempt_generation=draw(st.none() | longs),
        native_task_id=draw(st.none() | ids("task")),
        actor_id=draw(st.none() | ids("actr")),
        subject_id=draw(st.none() | ids("subj")),
        command_id=draw(ids("cmd")),
        occurred_at=draw(st.none() | longs),
        links=tuple(draw(st.lists(st.builds(Link, st.sampled_from(sorted(RELATIONS)), any_ids), max_size=4))),
        attributes=draw(attributes(event_type)),
        content=content,
    )


commands = st.builds(
    Command,
    command_id=ids("cmd"),
    session_id=session_ids,
    workspace_id=ids("ws"),
    kind=st.sampled_from(Kind),
    principal_id=ids("key"),
    request_digest=digests,
    issued_at=longs,
    not_after=longs,
    expected_sequence=st.none() | longs,
    report=st.none() | st.builds(Report, ids("run"), longs, st.none() | ids("task"), st.none() | longs),
    lease_ms=st.none() | longs,
    importing=st.booleans(),
    reply_to=st.text(max_size=20),
    correlation=longs,
    drafts=st.lists(drafts(), max_size=3).map(tuple),
)

outcomes = st.builds(
    Outcome,
    command_id=ids("cmd"),
    correlation=longs,
    session_id=session_ids,
    status=st.sampled_from(["accepted", "rejected"]),
    code=st.none() | words,
    detail=st.none() | st.text(max_size=20),
    first_sequence=longs,
    last_sequence=longs,
    position_offset=longs,
    decided_at=longs,
    repeated=st.booleans(),
    grant=st.none() | st.builds(Grant, ids("run"), longs, ids("task"), longs, longs),
    actual_run_sequence=st.none() | longs,
)


@given(drafts())
def test_any_draft_is_read_back(draft: Draft) -> None:
    body = record.encode_draft(draft)
    read, raw = record.decode_draft_raw(body)
    assert read == draft
    assert record.decode_attributes(raw) == draft.attributes
    assert record.encode_draft(read) == body


@given(commands)
def test_any_command_is_read_back(command: Command) -> None:
    value = record.encode_command(command)
    read, parts = record.decode_command_parts(value)
    assert read == command == record.decode_command(value)
    assert record.encode_command(read, [part.body for part in parts]) == value


@given(st.text(max_size=20), st.lists(outcomes, max_size=3).map(tuple))
def test_any_outcomes_are_read_back(reply_to: str, batch: tuple[Outcome, ...]) -> None:
    assert record.decode_outcomes(record.encode_outcomes(reply_to, batch)) == (reply_to, batch)


@given(drafts(), longs, longs, st.booleans(), longs, digests)
def test_any_event_is_its_drafts_bytes_and_verifies(
    draft: Draft, sequence: int, offset: int, last: bool, accepted_at: int, previous_hash: bytes
) -> None:
    body = record.encode_draft(draft)
    raw = record.encode_attributes(draft.type, draft.attributes)
    added = {
        "sequence": sequence,
        "command_offset": offset,
        "command_last": last,
        "accepted_at": accepted_at,
        "previous_hash": previous_hash,
    }
    value = record.encode_event(body, **added, hash=chain.event_hash(draft, raw, **added))  # type: ignore[arg-type]
    assert value == codec.encode("event", codec.decode(value).record)
    event, attributes_read = record.decode_event_raw(value)
    assert chain.verifies(event, attributes_read, previous_hash)
    assert {name: getattr(event, name) for name in Draft.__struct_fields__} == msgspec.structs.asdict(draft)


DECODERS = (record.decode_command, record.decode_event, record.decode_outcomes, record.decode_attributes, record.decode_draft)
SUBJECTS = sorted({published.subject for published in FileRegistry().published()})


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    for decode in DECODERS:
        with suppress(RecordUnreadable):
            decode(value)


@given(st.sampled_from(SUBJECTS), st.binary(max_size=300))
def test_any_bytes_behind_a_good_header_are_read_or_refused(subject: str, body: bytes) -> None:
    value = codec.header(subject) + body
    try:
        read = codec.decode(value)
    except Undecodable:
        read = None
    assert read is None or read.subject == subject
    for decode in DECODERS:
        with suppress(RecordUnreadable):
            decode(value)


@given(commands, st.data())
def test_a_command_with_a_flipped_bit_or_a_lost_end_is_read_or_refused(command: Command, data: st.DataObject) -> None:
    value = bytearray(record.encode_command(command))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(value), bytes(value[:place])):
        with suppress(RecordUnreadable):
            record.decode_command(damaged)


@given(commands, st.binary(min_size=1, max_size=3))
def test_bytes_after_the_end_are_refused(command: Command, more: bytes) -> None:
    with pytest.raises(RecordUnreadable, match=r"wire\.trailing"):
        record.decode_command(record.encode_command(command) + more)
