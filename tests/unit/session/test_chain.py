"""The chain: whatever is changed, dropped, moved or swapped in a session's history shows."""

import msgspec
import pytest

from streams.session import chain
from streams.session.events import NO_CONTENT, Content, Draft, Event, KeyReference, Link
from tests.support import examples
from tests.support.examples import SESSION, made_up_id

ATTRIBUTES = b"\x00\x00\x00\x00\x07attributes"


def event(draft: Draft, attributes: bytes | None, sequence: int, previous_hash: bytes) -> Event:
    added = {"sequence": sequence, "command_offset": 40 + sequence, "command_last": True, "accepted_at": examples.NOON + sequence,
             "previous_hash": previous_hash}  # fmt: skip
    accepted = chain.event_hash(draft, attributes, **added)  # type: ignore[arg-type]
    return Event(**msgspec.structs.asdict(draft), **added, hash=accepted)  # type: ignore[arg-type]


FIRST = event(examples.message(), ATTRIBUTES, 1, chain.genesis(SESSION))

CHANGES: list[dict[str, object]] = [
    {"event_id": made_up_id("evt", "other")},
    {"session_id": made_up_id("sess", "other")},
    {"type": "tool.called"},
    {"workspace_id": made_up_id("ws", "other")},
    {"thread_id": None},
    {"thread_id": ""},
    {"turn_id": None},
    {"run_id": None},
    {"attempt_generation": 3},
    {"attempt_generation": None},
    {"native_task_id": None},
    {"actor_id": None},
    {"subject_id": None},
    {"command_id": made_up_id("cmd", "other")},
    {"occurred_at": None},
    {"occurred_at": 0},
    {"links": ()},
    {"links": tuple(reversed(FIRST.links))},
    {"links": (Link("parent", "_event"),)},
    {"content": NO_CONTENT},
    {"content": Content("omitted", None, None, None)},
    {"content": msgspec.structs.replace(FIRST.content, digest=bytes(31) + b"\x01")},
    {"content": msgspec.structs.replace(FIRST.content, key_reference=KeyReference(None, SESSION, "2027-01-02"))},
    {"content": msgspec.structs.replace(FIRST.content, key_reference=KeyReference(examples.SUBJECT, SESSION, "2027-01-03"))},
    {"sequence": 2},
    {"command_offset": 0},
    {"command_last": False},
    {"accepted_at": 0},
    {"hash": bytes(32)},
    {"previous_hash": bytes(32)},
]


def test_an_accepted_event_verifies() -> None:
    assert chain.verifies(FIRST, ATTRIBUTES, chain.genesis(SESSION))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: ",".join(change))
def test_a_change_of_any_structural_field_shows(change: dict[str, object]) -> None:
    changed = msgspec.structs.replace(FIRST, **change)
    assert not chain.verifies(changed, ATTRIBUTES, chain.genesis(SESSION))


def test_every_structural_field_is_among_those_changes() -> None:
    assert {name for change in CHANGES for name in change} == set(Event.__struct_fields__) - {"attributes"}


@pytest.mark.parametrize("attributes", [None, b"", ATTRIBUTES + b"\x00", b"\x00\x00\x00\x00\x08attributes"])
def test_a_change_of_the_attributes_bytes_shows(attributes: bytes | None) -> None:
    assert not chain.verifies(FIRST, attributes, chain.genesis(SESSION))


def test_a_chain_verifies_after_content_is_gone() -> None:
    """Expiry and erasure take the ciphertext; the digest stays."""
    emptied = msgspec.structs.replace(FIRST, content=msgspec.structs.replace(FIRST.content, ciphertext=None))
    assert chain.verifies(emptied, ATTRIBUTES, chain.genesis(SESSION))


def test_an_event_moved_or_dropped_breaks_the_chain() -> None:
    second = event(examples.message(1), None, 2, FIRST.hash)
    third = event(examples.message(2), None, 3, second.hash)
    assert chain.verifies(second, None, FIRST.hash)
    assert chain.verifies(third, None, second.hash)
    assert not chain.verifies(third, None, FIRST.hash)
    assert not chain.verifies(second, None, chain.genesis(SESSION))


def test_two_sessions_start_from_different_hashes() -> None:
    assert chain.genesis(SESSION) != chain.genesis(made_up_id("sess", "other"))
