"""Both clients ask for erasures, wait for them, and set policies, against a gateway whose custodian is in memory."""

import asyncio
from collections.abc import Iterator

import pytest

from session_streams import AsyncClient, Client, Conflict, Erasure, ErasureTakesLonger, NotFound, Retries
from streams.log.retention import COMPLETE, DESTROYED, ENFORCED
from tests.support.commands import new_id
from tests.support.gateway import World, message, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway"), request_timeout_s=0.5) as each:
        yield each


@pytest.fixture
def client(made: World) -> Iterator[Client]:
    with Client(made.url, made.secret(), retries=Retries(total_s=20), sleep=lambda seconds: None) as each:
        yield each


def person(client: Client, outside: str | None = None) -> tuple[str, str]:
    session = client.create_session(subject=outside or new_id("customer"))
    client.append(session.session_id, message())
    return session.session_id, str(session.subject_id)


@pytest.mark.parametrize("outside", ["..", ".", "a/../b", "jo@example.com", "Zoë 東", "a?b#c%2F", "x/erasures"])
def test_a_person_is_erased_by_any_outside_id(client: Client, outside: str) -> None:
    _, subject = person(client, outside)
    asked = client.erase_subject(outside)
    assert (asked.status, asked.scope, asked.scope_id) == ("accepted", "subject", subject)
    assert client.erase_subject(subject).erasure_id == asked.erasure_id


def test_a_session_is_erased(client: Client, made: World) -> None:
    session, _ = person(client)
    asked = client.erase_session(session)
    made.custodian.goes_on(asked.erasure_id, DESTROYED)
    assert client.erase_session(session).status == "destroyed"
    assert [event.gap and event.gap.reason for event in client.events(session)] == [None, "erased"]
    with pytest.raises(Conflict, match=r"content\.erased"):
        client.append(session, message())


def test_waiting_tells_each_look_and_ends_at_the_step_that_was_named(client: Client, made: World) -> None:
    erasure = client.erase_subject(person(client)[1]).erasure_id
    steps, seen = iter((DESTROYED, ENFORCED, ENFORCED, COMPLETE)), list[Erasure]()

    def look(now: Erasure) -> None:
        seen.append(now)
        made.custodian.goes_on(erasure, next(steps))

    done = client.wait_for_erasure(erasure, until="enforced", on_progress=look)
    assert [each.status for each in seen] == ["accepted", "destroyed", "enforced"]
    assert (done.status, len(done.receipts)) == ("enforced", 2)
    assert seen[0].awaited[0].holder == "custodian/0"
    made.custodian.goes_on(erasure)
    assert client.wait_for_erasure(erasure).status == "complete"


def test_who_waits_no_longer_is_told_who_is_awaited(client: Client) -> None:
    erasure = client.erase_subject(person(client)[1]).erasure_id
    with pytest.raises(ErasureTakesLonger) as longer:
        client.wait_for_erasure(erasure, timeout_s=0)
    assert (longer.value.erasure_id, longer.value.status, longer.value.awaited) == (erasure, "accepted", ("custodian/0",))


def test_a_lost_outcome_is_found_out_by_the_client_itself_though_the_id_leads_nowhere_by_then(made: World) -> None:
    def pause(_: float) -> None:
        made.custodian.goes_on(next(reversed(made.custodian.rows)))

    with Client(made.url, made.secret(), sleep=pause) as client:
        outside = new_id("customer")
        _, subject = person(client, outside)
        made.custodian.withhold = 1
        asked = client.erase_subject(outside)
        assert (asked.scope_id, asked.status) == (subject, "complete")


def test_who_is_not_there_is_not_found(client: Client) -> None:
    for ask in (lambda: client.erase_subject("nobody"), lambda: client.erasure("ers_" + "0" * 32)):
        with pytest.raises(NotFound):
            ask()


def test_a_policy_is_replaced(made: World) -> None:
    with Client(made.url, made.secret(workspace_id=new_id("ws"))) as client:
        assert client.policy().source == "installation"
        policy = client.set_policy(mode="zdr", content_window_days=2, checkpoint_window_s=60)
        assert (policy.mode, policy.source, client.policy()) == ("zdr", "workspace", policy)


def test_the_asynchronous_client_does_the_same(made: World) -> None:
    async def work() -> None:
        async with AsyncClient(made.url, made.secret(workspace_id=new_id("ws"))) as client:
            assert (await client.set_policy(mode="zdr", content_window_days=2, checkpoint_window_s=60)) == await client.policy()
            session = await client.create_session(subject="noah")
            await client.append(session.session_id, message())
            one, other = await client.erase_subject("noah"), await client.erase_session(session.session_id)
            made.custodian.goes_on(one.erasure_id)
            assert (await client.wait_for_erasure(one.erasure_id)).status == "complete"
            assert (await client.erasure(other.erasure_id)).scope == "session"
            with pytest.raises(ErasureTakesLonger):
                await client.wait_for_erasure(other.erasure_id, timeout_s=0.2)

    asyncio.run(work())
