"""Items, their published schemas, the tables of transitions, and `evolve`."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from schemas import codec
from schemas.catalog import FileRegistry
from streams.session import lifecycles
from streams.session.events import (
    TYPES,
    ApprovalAttributes,
    ChildAttributes,
    ContextAttributes,
    EffectAttributes,
    Event,
    WaitAttributes,
)
from streams.session.items import KINDS, CheckpointState, DictItems, ForkState, HistoryState, Item, LineageState
from streams.session.state import evolve, from_record, to_record
from tests.support.examples import made_up_id
from tests.support.story import SESSION, WORKER, Story, part

FOLDER = Path(codec.__file__).parent / "state"
DIGEST = "sha256:" + "1" * 64


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_item_has_exactly_the_fields_that_are_published(kind: str) -> None:
    current = FileRegistry().current_version(f"state/{kind}")
    published = json.loads((FOLDER / f"{kind}.v{current}.avsc").read_text())
    assert {field["name"] for field in published["fields"]} == {field.name for field in structs.fields(KINDS[kind])}


def items_of_every_kind() -> list[tuple[str, Item]]:
    story = Story()
    grant = story.working()
    asked = ApprovalAttributes(approval_id=made_up_id("appr"), action_digest=DIGEST)
    dispatched = EffectAttributes(
        effect_id=made_up_id("eff"), provider="mail", request_digest=DIGEST, action_digest=DIGEST, approval_id=made_up_id("appr")
    )
    story.tell(
        part("approval.requested", asked, run_id=grant.run_id),
        part("child.started", ChildAttributes(child_id=made_up_id("chld")), run_id=grant.run_id),
        part("context.pinned", ContextAttributes(pin_kind="memory", revision="7"), run_id=grant.run_id),
        part("wait.opened", WaitAttributes(wait_id=made_up_id("wait"), kind="human"), run_id=grant.run_id),
        by=WORKER,
        report=story.report(grant),
    )
    story.tell(part("approval.granted", asked))
    story.tell(part("effect.dispatched", dispatched, run_id=grant.run_id), by=WORKER, report=story.report(grant))
    story.tell(part("thread.opened", thread_id=made_up_id("sthr")), part("turn.started", turn_id=made_up_id("turn")))
    lineage = LineageState(
        source_session_id=made_up_id("sess"), fork_id=made_up_id("fork"), through_sequence=4, through_event_id=made_up_id("evt"),
        source_hash="1" * 64, checkpoint_id=made_up_id("ckpt"), inherited=f"{made_up_id('sess')}=omitted:1-4", depth=2, erased=True,
    )  # fmt: skip
    checkpoint = CheckpointState(
        checkpoint_id=made_up_id("ckpt"), run_id=grant.run_id, origin_session_id=SESSION, through_sequence=4,
        through_event_id=made_up_id("evt"), through_hash="1" * 64, harness_revision="7", continuation_kind="native",
        snapshot_kind="stored", expires_at=5, sequence=6,
    )  # fmt: skip
    forked = ForkState(fork_id=made_up_id("fork"), child_session_id=made_up_id("sess"), through_sequence=4, sequence=5)
    history = HistoryState(days=("2027-01-02:1-4",), erased_through=3, checkpoint_id=checkpoint.checkpoint_id)
    made: list[tuple[str, Item]] = [("lineage", lineage), ("checkpoint", checkpoint), ("history", history), ("fork", forked)]
    return made + [(kind, item) for (kind, _), item in story.items.items.items()]


def test_items_of_every_kind_survive_their_encoding() -> None:
    items = items_of_every_kind()
    assert {kind for kind, _ in items} == set(KINDS)
    for kind, item in items:
        value = codec.encode(f"state/{kind}", to_record(item))
        assert from_record(kind, codec.decode_as(f"state/{kind}", value)) == item


def test_a_record_of_another_kind_is_no_item() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_record("run", {"wait_id": made_up_id("wait")})


class TestLifecycles:
    def test_what_is_settled_has_no_way_out(self) -> None:
        for thing, table in lifecycles.TRANSITIONS.items():
            for moves in table.values():
                assert not lifecycles.FINAL[thing] & set(moves)

    def test_every_status_but_a_final_one_has_a_way_out(self) -> None:
        for thing, table in lifecycles.TRANSITIONS.items():
            reached = {after for moves in table.values() for after in moves.values()}
            left = {before for moves in table.values() for before in moves}
            assert reached - left == lifecycles.FINAL[thing]

    def test_tables_speak_of_types_that_exist(self) -> None:
        assert {event_type for table in lifecycles.TRANSITIONS.values() for event_type in table} <= TYPES


class TestEvolve:
    def events(self) -> list[Event]:
        story = Story()
        grant = story.working()
        story.tell(part("run.completed", run_id=grant.run_id), by=WORKER, report=story.report(grant))
        return story.events

    def test_a_story_is_rebuilt_from_its_events(self) -> None:
        items = DictItems()
        for event in self.events():
            items.put(evolve(items, event))
        assert {kind for kind, _ in items.items} == {"session", "run", "attempt"}

    def test_a_gap_is_no_history(self) -> None:
        events = self.events()
        items = DictItems()
        items.put(evolve(items, events[0]))
        with pytest.raises(RuntimeError, match="event 3 does not follow"):
            evolve(items, events[2])
        with pytest.raises(RuntimeError, match="event 1 does not follow"):
            evolve(items, events[0])

    @pytest.mark.parametrize("sequence", [2, 3])
    def test_an_event_of_something_unmade_is_no_history(self, sequence: int) -> None:
        events = self.events()
        items = DictItems()
        items.put(evolve(items, events[0]))
        stray = structs.replace(events[sequence], sequence=2)
        with pytest.raises(RuntimeError):
            evolve(items, stray)

    def test_an_event_that_no_table_allows_is_no_history(self) -> None:
        events = self.events()
        items = DictItems()
        for event in events:
            items.put(evolve(items, event))
        with pytest.raises(RuntimeError, match="where the status is completed"):
            evolve(items, structs.replace(events[-1], sequence=len(events) + 1))

    def test_a_type_of_a_later_release_is_no_history_for_this_one(self) -> None:
        event = structs.replace(self.events()[0], type="session.renamed")
        with pytest.raises(RuntimeError, match=r"session\.renamed"):
            evolve(DictItems(), event)

    def test_the_first_event_makes_the_session(self) -> None:
        event = structs.replace(self.events()[0], type="message.appended")
        with pytest.raises(RuntimeError, match=f"{SESSION}: its first event is message.appended"):
            evolve(DictItems(), event)
