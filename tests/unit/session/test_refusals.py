"""How refusals are worded: for people, with times as they read them."""

import pytest

from streams.session.days import moment
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.story import OTHER, SECOND, WORKER, Story, part

RUN = made_up_id("run")


@pytest.mark.parametrize(
    ("moment_us", "written"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_769_860_800_000_000, "2026-01-31T12:00:00Z"),
        (1_769_860_800_000_001, "2026-01-31T12:00:00.000001Z"),
        (2**62, "4611686018427387904"),
        (-(2**62), "-4611686018427387904"),
    ],
)
def test_a_moment_is_written_as_rfc_3339_where_there_is_such_a_date(moment_us: int, written: str) -> None:
    assert moment(moment_us) == written


def reported(story: Story, grant: object, *, by: str = WORKER) -> str:
    command = story.command(part("message.appended", run_id=RUN), by=by, report=story.report(grant))  # type: ignore[arg-type]
    answer = story.decide(command)
    assert isinstance(answer, Rejected)
    assert answer.code == "runtime.attempt_fenced"
    return answer.detail


def test_an_attempt_that_ended_is_told_so_and_not_that_it_is_the_current_one() -> None:
    story = Story()
    grant = story.working()
    story.tell(part("attempt.failed", run_id=RUN), by=WORKER, report=story.report(grant))
    assert reported(story, grant) == f"{RUN}: generation 1 is over"


def test_a_lease_that_ended_ends_its_generation() -> None:
    story = Story()
    grant = story.working()
    story.now += 31 * SECOND
    assert reported(story, grant) == f"{RUN}: generation 1 is over"


def test_who_was_replaced_or_holds_nothing_is_told_the_current_generation() -> None:
    story = Story()
    grant = story.working()
    assert reported(story, grant, by=OTHER) == f"{RUN} is at generation 1"
    story.now += 31 * SECOND
    story.claim(by=OTHER, label="2")
    assert reported(story, grant) == f"{RUN} is at generation 2"
