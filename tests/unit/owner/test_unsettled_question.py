"""What of a session is not settled, asked of its owner over a real socket, without a broker."""

from collections.abc import Iterator

import pytest

from connectors.owner.projector_owners import ProjectorOwners
from streams.errors import BrokerUnavailable, Invalid, NotFound, ProjectionBehind, StreamsError
from streams.projections.unsettled import Unsettled
from streams.session.events import ApprovalAttributes, EffectAttributes, WaitAttributes
from tests.support.event_log import WORKSPACE, EventLog, in_partition
from tests.support.examples import made_up_id
from tests.support.owners import Owner, finder_of, run

RUN, WAIT, EFFECT, APPROVAL = (made_up_id(kind) for kind in ("run", "wait", "eff", "appr"))


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.server.stop()


@pytest.fixture
def log() -> EventLog:
    return EventLog(0)


@pytest.fixture
def session(log: EventLog) -> str:
    session = log.create(in_partition(0, 2))
    log.command(session, [("wait.opened", WaitAttributes(wait_id=WAIT))])
    log.command(session, [("approval.requested", ApprovalAttributes(approval_id=APPROVAL, expires_at=7))])
    log.command(session, [("effect.dispatched", EffectAttributes(effect_id=EFFECT, approval_id=APPROVAL))], run_id=RUN)
    return session


def test_a_page_comes_whole_with_the_session_that_it_is_of(owner: Owner, log: EventLog, session: str) -> None:
    owner.take(log)

    async def story(client: ProjectorOwners) -> None:
        page = await client.unsettled(WORKSPACE, session)
        assert page.items == (Unsettled("wait", WAIT), Unsettled("effect", EFFECT, approval=Unsettled("approval", APPROVAL, 7)))
        assert (page.session.session_id, page.session.sequence, page.truncated, page.gaps) == (session, 4, False, False)
        assert (await client.unsettled(WORKSPACE, session, limit=1)).truncated
        with pytest.raises(NotFound):
            await client.unsettled(WORKSPACE, session, subject_id=made_up_id("subj"))
        with pytest.raises(NotFound):
            await client.unsettled(made_up_id("ws", "other"), session)
        with pytest.raises(Invalid):
            await client.unsettled(WORKSPACE, session, limit=0)

    run(finder_of(owner), story)


@pytest.mark.parametrize("failure", [BrokerUnavailable("away"), ProjectionBehind("not there yet")])
def test_nothing_is_said_to_be_settled_where_the_logs_end_is_not_known(
    owner: Owner, log: EventLog, session: str, failure: StreamsError
) -> None:
    owner.take(log)
    owner.ends.failure = failure

    async def story(client: ProjectorOwners) -> None:
        with pytest.raises(type(failure)):
            await client.unsettled(WORKSPACE, session, wait_s=0.2)

    run(finder_of(owner), story)
