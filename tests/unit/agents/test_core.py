"""Every rule of an agent's checkpoint, as design 06 (1.7) has them, and against a model that knows nothing of how they are written."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from streams.agents.core import (
    ABSENT,
    CONFLICT,
    LATE,
    VERSIONS_KEPT,
    AgentScope,
    Delete,
    Deleted,
    Head,
    Refused,
    Save,
    Saved,
    Sealed,
    decide,
)

SCOPE = AgentScope("ws_" + "a" * 32, "subj_" + "b" * 32, "actr_" + "c" * 32, "cursor")
NOW = 1_800_000_000_000_000
FIRST = "ckpt_" + "1" * 32
OTHER = "ckpt_" + "2" * 32
SECOND = 1_000_000


def state(number: int) -> str:
    return f"{number:064x}"


def save(number: int = 1, *, ttl: int = 60, expected: str | None = None, checkpoint_id: str = FIRST, not_after: int = 2**62) -> Save:
    sealed = Sealed(b"sealed %d" % number, bytes(32), "2027-01-16", f"cmd_{number:032x}")
    return Save(
        scope=SCOPE, checkpoint_id=checkpoint_id, state_hash=state(number), ttl_seconds=ttl, sealed=sealed, expected_state_hash=expected,
        not_after=not_after,
    )  # fmt: skip


def saved(head: Head | None, command: Save, now: int = NOW) -> Head:
    decision = decide(head, command, now)
    assert isinstance(decision, Saved)
    return decision.head


def test_a_first_save_makes_the_row_under_the_proposed_id() -> None:
    decision = decide(None, save(), NOW + 999)
    assert isinstance(decision, Saved)
    assert decision.superseded is None
    head = decision.head
    assert (head.checkpoint_id, head.version, head.created_at, head.updated_at) == (FIRST, 1, NOW, NOW)
    assert head.expires_at == NOW + 60 * SECOND


def test_a_save_over_a_row_keeps_its_id_and_creation_and_begins_its_time_anew() -> None:
    first = saved(None, save(1))
    second = saved(first, save(2, ttl=120, checkpoint_id=OTHER), NOW + 30 * SECOND)
    assert (second.checkpoint_id, second.created_at, second.version) == (FIRST, NOW, 2)
    assert (second.updated_at, second.expires_at) == (NOW + 30 * SECOND, NOW + 150 * SECOND)
    assert (second.state_hash, second.sealed) == (state(2), save(2).sealed)


def test_a_save_over_an_expired_row_keeps_its_id_too() -> None:
    first = saved(None, save(1))
    again = saved(first, save(2, checkpoint_id=OTHER), NOW + 10**15)
    assert (again.checkpoint_id, again.created_at, again.version) == (FIRST, NOW, 2)


def test_equal_is_expired() -> None:
    head = saved(None, save())
    assert head.visible(head.expires_at - 1)
    assert not head.visible(head.expires_at)


@pytest.mark.parametrize(
    ("expected", "later_us", "actual"),
    [(state(1), 0, "saved"), (state(2), 0, state(1)), (state(1), 60 * SECOND, None), (state(1), 59 * SECOND, "saved")],
)
def test_an_expected_state_must_be_the_visible_one(expected: str, later_us: int, actual: str | None) -> None:
    decision = decide(saved(None, save(1)), save(3, expected=expected), NOW + later_us)
    if actual == "saved":
        assert isinstance(decision, Saved)
    else:
        assert decision == Refused(CONFLICT, actual)


def test_an_expected_state_of_a_row_that_is_not_there_is_a_conflict() -> None:
    assert decide(None, save(expected=state(1)), NOW) == Refused(CONFLICT, None)


def test_a_deletion_takes_the_row_that_has_the_id_expired_or_not_and_no_other() -> None:
    head = saved(saved(None, save(1)), save(2))
    assert decide(None, Delete(scope=SCOPE, checkpoint_id=FIRST, not_after=2**62), NOW) == Refused(ABSENT)
    assert decide(head, Delete(scope=SCOPE, checkpoint_id=OTHER, not_after=2**62), NOW) == Refused(ABSENT)
    for now in (NOW, NOW + 10**15):
        assert decide(head, Delete(scope=SCOPE, checkpoint_id=FIRST, not_after=2**62), now) == Deleted(head, range(1, 2))


def test_what_nobody_waits_for_any_more_has_no_effect() -> None:
    head = saved(None, save(1))
    assert isinstance(decide(head, save(2, not_after=NOW), NOW), Saved)
    assert decide(head, save(2, not_after=NOW - 1), NOW) == Refused(LATE)
    assert decide(head, Delete(scope=SCOPE, checkpoint_id=FIRST, not_after=NOW - 1), NOW) == Refused(LATE)


def test_a_clock_that_stands_behind_makes_no_version_older_than_the_one_before() -> None:
    first = saved(None, save(1))
    second = saved(first, save(2), NOW - 10 * SECOND)
    assert second.updated_at == first.updated_at


def test_no_more_than_the_bound_of_versions_is_kept() -> None:
    head = saved(None, save(1))
    kept: set[int] = set()
    for number in range(2, 3 * VERSIONS_KEPT):
        decision = decide(head, save(number), NOW + number * SECOND)
        assert isinstance(decision, Saved)
        assert decision.superseded is not None
        kept = (kept | {decision.superseded.version}) - set(decision.dropped)
        head = decision.head
        assert kept == set(range(head.oldest_version, head.version))
        assert len(kept) == min(VERSIONS_KEPT, number - 1)


@dataclass
class Model:
    """A row as a client thinks of it."""

    rows: list[tuple[int, str, int]] = field(default_factory=list)
    """Version, state and when it expires; the last one is the row's."""
    checkpoint_id: str = ""


ACTIONS = st.one_of(
    st.tuples(st.just("save"), st.integers(1, 4), st.sampled_from([60, 61, 2_592_000]), st.none() | st.integers(1, 4)),
    st.tuples(st.just("delete"), st.booleans(), st.just(0), st.none()),
    st.tuples(st.just("wait"), st.integers(0, 90 * SECOND), st.just(0), st.none()),
)


@given(st.lists(ACTIONS, max_size=40))
def test_a_row_is_what_a_client_thinks_it_is_after_any_history(actions: list[tuple[str, int, int, int | None]]) -> None:
    head: Head | None = None
    model, now, made = Model(), NOW, 0
    for action, value, ttl, expected in actions:
        if action == "wait":
            now += value
            continue
        made += 1
        visible = model.rows[-1][1] if model.rows and model.rows[-1][2] > now // 1000 * 1000 else None
        if action == "delete":
            checkpoint_id = model.checkpoint_id if value and model.checkpoint_id else OTHER
            decision = decide(head, Delete(scope=SCOPE, checkpoint_id=checkpoint_id, not_after=2**62), now)
            if checkpoint_id == OTHER:
                assert decision == Refused(ABSENT)
            else:
                assert isinstance(decision, Deleted)
                head, model = None, Model()
            continue
        command = save(value, ttl=ttl, expected=None if expected is None else state(expected), checkpoint_id=f"ckpt_{made:032x}")
        decision = decide(head, command, now)
        if expected is not None and visible != state(expected):
            assert decision == Refused(CONFLICT, visible)
            continue
        assert isinstance(decision, Saved)
        model.checkpoint_id = model.checkpoint_id or command.checkpoint_id
        model.rows.append((len(model.rows) + 1, state(value), now // 1000 * 1000 + ttl * SECOND))
        assert (decision.superseded is None) == (len(model.rows) == 1)
        head = decision.head
        assert (head.version, head.state_hash, head.expires_at, head.checkpoint_id) == (*model.rows[-1], model.checkpoint_id)
        if decision.superseded is not None:
            assert structs.replace(head, checkpoint_id=head.checkpoint_id).created_at == decision.superseded.created_at
