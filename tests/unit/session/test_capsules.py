"""Capsules in the core: facts of a session outside of all Runs, whole or not at all, at the position that was looked at."""

import pytest
from msgspec import structs

from streams.session.events import CapsuleAttributes, Draft
from tests.support.examples import made_up_id
from tests.support.story import Story, part

DIGEST = "sha256:" + "1" * 64
CREATED = CapsuleAttributes(
    capsule_id=made_up_id("cap"), checkpoint_id=made_up_id("ckpt"), through_sequence=1, byte_count=3, content_digest=DIGEST, expires_at=1
)  # fmt: skip
IMPORTED = CapsuleAttributes(
    capsule_id=made_up_id("cap"), import_id=made_up_id("cimp"), through_sequence=1, byte_count=3, content_digest=DIGEST,
    target_digest=DIGEST, expires_at=1,
)  # fmt: skip
DECIDED = CapsuleAttributes(outcome="refused", reason="capsule_absent", request_digest=DIGEST)
TOLD = {
    "capsule.created": CREATED, "capsule.revoked": CapsuleAttributes(capsule_id=made_up_id("cap")), "capsule.imported": IMPORTED,
    "capsule.decided": DECIDED,
}  # fmt: skip


def told(event_type: str, **fields: object) -> Draft:
    return part(event_type, TOLD[event_type], **fields)


@pytest.mark.parametrize("event_type", TOLD)
def test_they_change_nothing_but_the_counters(event_type: str) -> None:
    story = Story().created()
    before = dict(story.items.items)
    story.tell(told(event_type), expected_sequence=1)

    assert story.types[-1] == event_type
    assert {key for key, item in story.items.items.items() if before.get(key) != item} == {("session", "")}


def test_one_is_created_only_where_the_session_was_looked_at() -> None:
    story = Story().created()

    assert story.refusal(told("capsule.created")) == "request.invalid"
    story.with_run()
    assert story.refusal(told("capsule.created"), expected_sequence=1) == "runtime.sequence_conflict"
    story.tell(told("capsule.created"), expected_sequence=2)


@pytest.mark.parametrize(
    ("event_type", "name"),
    [(event_type, name) for event_type, given in TOLD.items() for name in structs.asdict(given) if getattr(given, name) is not None],
)
def test_nothing_that_they_have_to_tell_is_missing(event_type: str, name: str) -> None:
    if (event_type, name) == ("capsule.decided", "reason"):
        return
    changed = part(event_type, structs.replace(TOLD[event_type], **{name: None}))

    assert Story().created().refusal(changed, expected_sequence=1) == "request.invalid"


@pytest.mark.parametrize("event_type", TOLD)
def test_they_stand_in_no_run(event_type: str) -> None:
    story = Story().created().with_run()

    assert story.refusal(told(event_type, run_id=made_up_id("run")), expected_sequence=2) == "request.invalid"


def test_their_words_are_bounded() -> None:
    for name, value in (("capsule_id", "cap_1"), ("import_id", "somebody"), ("outcome", "launched"), ("reason", "Because of Mia")):
        changed = part("capsule.decided", structs.replace(DECIDED, **{name: value}))
        assert Story().created().refusal(changed, expected_sequence=1) == "request.invalid"
