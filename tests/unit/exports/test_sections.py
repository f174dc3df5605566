"""The sections of a bundle are what docs/bundle.md says of the events, whatever the events are."""

import json
from contextlib import suppress
from typing import Any
from unittest import mock

import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from session_streams.export import Entry, Refuted, read
from streams.custody.signing import SigningKey
from streams.exports import scratch, sections
from streams.exports.lines import missing_line
from streams.session.events import (
    FAMILIES,
    ApprovalAttributes,
    ArtifactAttributes,
    CapsuleAttributes,
    CheckpointAttributes,
    Link,
    RunAttributes,
    SessionAttributes,
    ToolAttributes,
)
from tests.support.bundle_sections import expected
from tests.support.bundles import MANIFEST, bundle_of, history, parts_of, payload_of
from tests.support.examples import made_up_id
from tests.support.exports import History, changed

KEY = SigningKey.generate()
IN_EVENTS_ONLY = {"session", "message", "source", "tool"}


def entries_of(lines: list[bytes]) -> list[Entry]:
    """As far as they verify: that one is missing is said behind all."""
    found: list[Entry] = []
    with suppress(Refuted):
        found.extend(read(lines))
    assert len(found) == len(lines) - 2
    return found


def assert_as_expected(lines: list[bytes]) -> None:
    file = bundle_of(lines, KEY)
    items, gaps = expected(entries_of(lines))
    parts, told = parts_of(file), json.loads(payload_of(file))
    for name, wanted in items.items():
        assert parts[name] == b"".join(rfc8785.dumps(item) + b"\n" for item in wanted), name
    assert {section["name"]: section["gaps"] for section in told["sections"]} == gaps
    assert {section["name"]: section["items"] for section in told["sections"]} == {
        "events": len(lines) - 2, **{name: len(wanted) for name, wanted in items.items()},
    }  # fmt: skip
    assert parts["events"] == b"".join(lines)
    assert parts[MANIFEST].startswith(b'{"payload":')


def gaps_of(lines: list[bytes], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(each for each in json.loads(payload_of(bundle_of(lines, KEY)))["sections"] if each["name"] == name)[
        "gaps"
    ]
    return found


def test_a_session_with_something_in_every_section() -> None:
    assert_as_expected(history(messages=3).lines())


def test_a_fork_names_where_its_beginning_is() -> None:
    source = SessionAttributes(source_session_id=made_up_id("sess", "x"), through_sequence=7, source_hash="ab" * 32, depth=1)
    assert_as_expected(History().tell("session.created", source).tell(text='"on"').lines())


def test_a_fork_of_a_position_that_not_every_reader_of_json_takes_for_the_same() -> None:
    source = SessionAttributes(source_session_id=made_up_id("sess", "x"), through_sequence=2**53, source_hash="ab" * 32, depth=1)
    lines = History().tell("session.created", source).lines()
    assert_as_expected(lines)
    found = {"reason": "in_source_session", "session_id": made_up_id("sess", "x"), "source_hash": "ab" * 32}
    assert gaps_of(lines, "events") == [found]


def test_nothing_was_recorded_only_where_everything_is_here() -> None:
    source = SessionAttributes(source_session_id=made_up_id("sess", "x"), through_sequence=7, source_hash="ab" * 32, depth=1)
    whole, fork = History().tell(text='"x"').tell().lines(), History().tell("session.created", source).lines()
    lacking = [*whole[:2], missing_line(2, "record.malformed"), changed(whole[3], "last_hash", to=None)]
    said = [[gap["reason"] for gap in gaps_of(lines, "work")] for lines in (whole, fork, lacking)]
    assert said == [["none_recorded"], ["in_source_session", "none_found"], ["missing", "none_found"]]


def test_a_capsules_private_bytes_are_in_the_events_and_sealed() -> None:
    assert {"reason": "private_material_sealed", "count": 1} in gaps_of(history().lines(), "continuation-capsules")


def test_a_position_that_cannot_be_read_is_missing_in_every_section() -> None:
    lines = history().lines()
    assert_as_expected([missing_line(number, "record.malformed") if number in (4, 9) else line for number, line in enumerate(lines)])


def test_nothing_but_a_position_that_cannot_be_read() -> None:
    lines = History().tell(text='"x"').lines()
    assert_as_expected([lines[0], missing_line(1, "record.malformed"), changed(lines[2], "last_hash", to=None)])


RUNS = [made_up_id("run", mark) for mark in "ab"]


@st.composite
def told(draw: st.DrawFn) -> dict[str, Any]:
    """One event: few ids, so that the same object is told of again."""
    run = draw(st.sampled_from([*RUNS, None]))
    mark = draw(st.sampled_from(["a", "b", None]))

    def named(prefix: str) -> str | None:
        return None if mark is None else made_up_id(prefix, mark)

    kind, attributes = draw(
        st.sampled_from([
            ("run.started", RunAttributes(lane="a", reward=0.5)),
            ("run.completed", RunAttributes(outcome="done")),
            ("attempt.started", None),
            ("approval.requested", ApprovalAttributes(approval_id=named("appr"))),
            ("checkpoint.created", CheckpointAttributes(checkpoint_id=named("ckpt"), through_sequence=2**53)),
            ("artifact.recorded", ArtifactAttributes(artifact_id=named("art"), byte_count=2**60)),
            ("capsule.imported", CapsuleAttributes(capsule_id=named("cap"), import_id=named("cimp"))),
            ("capsule.created", CapsuleAttributes(capsule_id=named("cap"))),
            ("tool.called", ToolAttributes(name="t")),
        ])
    )  # fmt: skip
    links = draw(st.sampled_from([(), (Link("artifact", made_up_id("art")),)]))
    gone = draw(st.sampled_from(["omitted", "erased", "expired", None, None]))
    return {
        "event": kind, "attributes": attributes, "run_id": run, "attempt_generation": draw(st.sampled_from([None, 1, 2])), "links": links,
        "text": None if gone is None or gone == "omitted" else '"x"', "gone": gone,
    }  # fmt: skip


@settings(max_examples=40)
@given(st.lists(told(), min_size=1, max_size=12), st.sampled_from([1, 3000, 10**6]), st.sampled_from([1, 10**6]))
def test_any_session(events: list[dict[str, Any]], held: int, piece: int) -> None:
    history = History()
    for each in events:
        history.tell(each.pop("event"), each.pop("attributes"), **each)
    with mock.patch.object(scratch, "_HELD_BYTES", held), mock.patch.object(scratch, "_READ_BYTES", piece):
        assert_as_expected(history.lines())


def test_each_family_of_events_is_in_a_section_or_among_those_that_the_page_names() -> None:
    in_sections = {family for families in sections.FAMILIES.values() for family in families}
    assert in_sections.isdisjoint(IN_EVENTS_ONLY)
    assert in_sections | IN_EVENTS_ONLY == FAMILIES.keys()
