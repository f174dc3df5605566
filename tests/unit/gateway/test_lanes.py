"""What the claims by lane of one gateway leave to each other."""

from typing import Any

from msgspec import structs

from connectors.gateway import lanes
from connectors.gateway.lanes import REMEMBERED_S, UNREADABLE_S, LaneClaims
from streams.projections.runs import RunRow
from streams.session.outcomes import REJECTED, Outcome
from tests.support.examples import made_up_id

A, B = "claim a", "claim b"
FIELDS: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__)
ROW = RunRow(**{**FIELDS, "run_id": made_up_id("run", 1), "generation": 0})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_one_claim_is_after_is_left_to_it_and_to_its_repeat() -> None:
    claims = LaneClaims()
    with claims.after(A, ROW):
        assert claims.is_left_for(A, ROW)
        assert claims.is_mine(A, ROW)
        assert not claims.is_left_for(B, ROW)
        with claims.after(A, ROW):
            pass
        assert not claims.is_left_for(B, ROW), "the first of the two is under way still"
    assert not claims.is_left_for(B, ROW), "until the tables tell what became of it"
    assert claims.is_mine(A, ROW)


def test_a_run_of_a_later_generation_is_another_one() -> None:
    claims = LaneClaims()
    with claims.after(A, ROW):
        assert claims.is_left_for(B, structs.replace(ROW, generation=1))


def test_it_is_forgotten_in_time_and_when_the_run_is_free_for_others() -> None:
    clock = Clock()
    claims = LaneClaims(clock)
    with claims.after(A, ROW):
        pass
    clock.now += REMEMBERED_S
    assert claims.is_left_for(B, ROW)
    assert not claims.is_mine(A, ROW)
    with claims.after(A, ROW):
        pass
    claims.free(ROW)
    assert claims.is_left_for(B, ROW)


def test_a_claim_that_failed_is_remembered_since_it_may_have_been_granted() -> None:
    claims = LaneClaims()
    try:
        with claims.after(A, ROW):
            raise TimeoutError
    except TimeoutError:
        pass
    assert not claims.is_left_for(B, ROW)
    assert claims.is_left_for(A, ROW)


def test_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    claims = LaneClaims(clock)
    for number in range(lanes.REMEMBERED_MAX + 10):
        with claims.after(A, structs.replace(ROW, generation=number)):
            pass
    assert len(claims._over) == lanes.REMEMBERED_MAX
    assert claims.is_left_for(B, ROW)
    clock.now += REMEMBERED_S
    with claims.after(A, ROW):
        pass
    assert len(claims._over) == 1
    assert not claims._under_way


def test_a_history_that_could_not_be_read_is_not_asked_for_again_for_a_while_by_a_worker_with_the_same_wishes() -> None:
    clock = Clock()
    claims = LaneClaims(clock)
    whole, copes = (False, None, None), (True, None, None)
    refused = Outcome(command_id=made_up_id("cmd"), correlation=1, session_id=made_up_id("sess"), status=REJECTED, decided_at=1)
    claims.is_unreadable(ROW, whole, refused)
    assert claims.unreadable(ROW, whole) is refused
    assert claims.unreadable(ROW, copes) is None
    assert claims.unreadable(structs.replace(ROW, generation=1), whole) is None
    clock.now += UNREADABLE_S
    assert claims.unreadable(ROW, whole) is None
