"""Where content lies: told day by day, and yet what a list of every position would say."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.session import history, words
from streams.session.events import OMITTED, SEALED, Content, Draft
from streams.session.items import LineageState
from streams.session.outcomes import Unavailable
from tests.support.examples import made_up_id
from tests.support.recovering import DAY, erase
from tests.support.recovering import history as history_of
from tests.support.story import NOON, SECOND, SESSION, Story, part, sealed

KINDS = ["none", "today", "tomorrow", "omitted"]
"""Of content: at midnight two gateways may name two days."""


def content(kind: str, now: int) -> Content:
    if kind in ("none", "omitted"):
        return Content(kind)
    return sealed(now, days_on=0 if kind == "today" else 1)


def draft(kind: str, now: int, number: int, *, plain: bool) -> Draft:
    if plain:
        return part("message.appended", content=content(kind, now))
    return part("thread.opened", thread_id=made_up_id("sthr", number), content=content(kind, now))


@dataclass
class Positions:
    """Every position, with what became of it."""

    places: dict[int, str] = field(default_factory=dict)
    erased_through: int = 0

    def reasons(self, now: int, after: int = 0, through: int | None = None) -> dict[int, str]:
        """Position -> why it cannot be read; not those that can."""
        found = {}
        for position, place in self.places.items():
            if after < position and (through is None or position <= through):
                if position <= self.erased_through:
                    found[position] = words.CONTENT_ERASED
                elif place == OMITTED:
                    found[position] = words.CONTENT_OMITTED
                elif datetime.fromtimestamp(now / SECOND, UTC) >= datetime.fromisoformat(place + "T00:00:00Z") + timedelta(days=1):
                    found[position] = words.CONTENT_EXPIRED
        return found


batches = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 1, 3]), st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=5), st.integers(0, 9)
    ),
    min_size=1,
    max_size=6,
)
"""Days that pass, contents (and whether their events change more than the counters), and seldom an erasure."""


def told(plan: list[tuple[int, list[tuple[str, bool]], int]]) -> tuple[Story, Positions]:
    """`Story` compares what was decided, a batch at a time, with what its events fold to, one by one."""
    story, known = Story().created(), Positions()
    for days, contents, luck in plan:
        story.now += days * DAY
        drafts = [
            draft(kind, story.now, len(story.events) * 10 + index, plain=plain) for index, (kind, plain) in enumerate(contents)
        ]  # fmt: skip
        if drafts:
            story.tell(*drafts)
        if luck == 0:
            erase(story)
            known.erased_through = story.header.sequence
    for event in story.events:
        if event.content.state == SEALED and event.content.key_reference is not None:
            known.places[event.sequence] = event.content.key_reference.expiry_day
        elif event.content.state == OMITTED:
            known.places[event.sequence] = OMITTED
    return story, known


later = st.integers(0, 40).map(lambda days: days * DAY)


@settings(max_examples=120, deadline=None)
@given(plan=batches, later=later, through=st.integers(1, 30))
def test_a_prefix_is_unreadable_exactly_where_a_position_of_it_is_and_the_first_is_named(
    plan: list[tuple[int, list[tuple[str, bool]], int]], later: int, through: int
) -> None:
    story, known = told(plan)
    now = story.now + later
    found = history.unreadable(story.header, history_of(story), now, through=through)
    reasons = known.reasons(now, through=through)
    assert bool(found) == bool(reasons)
    if reasons:
        assert found[0].first == min(reasons)
        assert all(each.first <= each.last <= through for each in found)
    assert_covered(found, reasons)


@settings(max_examples=120, deadline=None)
@given(plan=batches, later=later)
def test_nothing_erased_the_ranges_are_those_of_each_day_and_of_what_was_omitted(
    plan: list[tuple[int, list[tuple[str, bool]], int]], later: int
) -> None:
    story, known = told([(days, contents, 1) for days, contents, _ in plan])
    now = story.now + later
    unreadable = known.reasons(now)
    expected = []
    for place in sorted(set(known.places.values())):
        positions = [position for position, at in known.places.items() if at == place]
        if positions[0] in unreadable:
            expected.append(Unavailable(min(positions), max(positions), unreadable[positions[0]]))
    assert history.unreadable(story.header, history_of(story), now) == sorted(expected, key=lambda each: (each.first, each.last))


@settings(max_examples=120, deadline=None)
@given(plan=batches, later=later, boundary=st.integers(0, 30))
def test_behind_a_boundary_nothing_unreadable_is_left_out(
    plan: list[tuple[int, list[tuple[str, bool]], int]], later: int, boundary: int
) -> None:
    story, known = told(plan)
    now = story.now + later
    found = history.unreadable(story.header, history_of(story), now, after=boundary)
    reasons = known.reasons(now, after=boundary)
    assert all(each.first > boundary for each in found)
    assert_covered(found, reasons)
    if boundary >= known.erased_through:
        assert bool(found) == bool(reasons)


@settings(max_examples=120, deadline=None)
@given(plan=batches, later=later, through=st.integers(1, 30))
def test_a_fork_judges_of_its_prefix_what_its_source_would(
    plan: list[tuple[int, list[tuple[str, bool]], int]], later: int, through: int
) -> None:
    story, known = told(plan)
    now = story.now + later
    inherited = history.inherited_by_fork(story.header, history_of(story), None, through)
    found = history.unreadable_ancestors(lineage(inherited), now)
    reasons = known.reasons(now, through=through)
    assert bool(found) == bool(reasons)
    assert_covered(found, reasons)
    assert {each.session_id for each in found} <= {SESSION}
    if reasons:
        assert found[0].first == min(reasons)
    erased = history.unreadable_ancestors(lineage(inherited, erased=True), now)
    assert bool(erased) == any(position <= through for position in known.places)
    assert {each.reason for each in erased} <= {words.CONTENT_ERASED}


def assert_covered(found: list[Unavailable], reasons: dict[int, str]) -> None:
    for position, reason in reasons.items():
        assert any(each.first <= position <= each.last and each.reason == reason for each in found), (position, reason, found)


def lineage(inherited: str, *, erased: bool = False) -> LineageState:
    return LineageState(
        source_session_id=SESSION, fork_id=made_up_id("fork"), through_sequence=1, through_event_id="", source_hash="", inherited=inherited,
        depth=1, erased=erased,
    )  # fmt: skip


class TestADay:
    def test_of_content_lasts_to_its_last_moment(self) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=sealed()))
        midnight = int(datetime(2026, 2, 2, tzinfo=UTC).timestamp()) * SECOND
        assert story.header.content_day == "2026-02-01"
        assert history.unreadable(story.header, history_of(story), midnight - 1) == []
        assert history.unreadable(story.header, history_of(story), midnight) == [Unavailable(2, 2, "content.expired")]

    @pytest.mark.parametrize("now", [-(10**30), 0, 10**30])
    def test_is_told_at_any_time(self, now: int) -> None:
        story = Story().created()
        story.tell(part("message.appended", content=sealed()))
        found = history.unreadable(story.header, history_of(story), now)
        assert bool(found) == (now > NOON)

    def test_that_is_over_moves_to_the_history_and_its_event_costs_the_header_alone_till_then(self) -> None:
        story = Story().created()
        for _ in range(2):
            decision = story.tell(part("message.appended", content=sealed(story.now)))
            assert set(decision.changed) == {("session", "")}
        story.now += DAY
        decision = story.tell(part("message.appended", content=sealed(story.now)))
        assert set(decision.changed) == {("session", ""), ("history", "")}
        assert history_of(story).days == ("2026-02-01:2-3",)
        assert (story.header.content_day, story.header.content_first, story.header.content_last) == ("2026-02-02", 4, 4)


def test_content_that_an_event_of_its_own_weight_brings_counts_among_the_rest() -> None:
    """A batch is one look at its contents: those of plain drafts stand on both sides of one that changes more."""
    story = Story().created()
    story.tell(*[draft("today", story.now, 1, plain=plain) for plain in (True, False, True)])
    story.tell(*[draft("today", story.now, 2, plain=plain) for plain in (True, False)])
    assert (story.header.content_first, story.header.content_last) == (2, 6)


def test_a_session_without_content_has_nothing_unreadable_even_when_erased() -> None:
    story = Story().created()
    erase(story)
    story.tell(part("message.appended", content=sealed(story.now)))
    assert history.unreadable(story.header, history_of(story), story.now) == []
    assert history.inherited_by_fork(story.header, history_of(story), None, 2) == f"{SESSION}=2026-02-01:2-2"


def test_ranges_are_worded_with_the_ancestor_whose_positions_they_are() -> None:
    ranges = [Unavailable(3, 7, "content.expired"), Unavailable(1, 2, "content.erased", SESSION)]
    assert history.worded(ranges) == ("3-7 content.expired", f"{SESSION} 1-2 content.erased")
