"""Both clients against a gateway whose log is in memory."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import session_streams
from connectors.gateway.limits import GatewayLimits
from session_streams import AsyncClient, Client, Conflict, NotFound, Retries, TooLarge
from streams.errors import NotOwner
from tests.support.gateway import World, message, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = GatewayLimits(threads=4, heartbeat_s=0.2, body_bytes_max=1_000_000)
    with world(tmp_path_factory.mktemp("gateway"), limits=limits, request_timeout_s=0.5) as each:
        yield each


@pytest.fixture
def client(made: World) -> Iterator[Client]:
    with Client(made.url, made.secret(), retries=Retries(total_s=20)) as each:
        yield each


def test_the_whole_of_a_session(client: Client) -> None:
    session = client.create_session(subject="mia", metadata={"a": 1})
    one = client.append(session.session_id, message("one"))
    many = client.append_many(session.session_id, [message(str(number)) for number in range(30)], expected_sequence=one.sequence)
    assert (one.sequence, many.first_sequence, many.last_sequence) == (2, 3, 32)
    assert len(many.event_ids) == 30
    events = list(client.events(session.session_id, after_sequence=2, page_size=7))
    assert [event.content["text"] for event in events] == [str(number) for number in range(30)]
    assert [event.event_id for event in events] == list(many.event_ids)
    read = client.session(session.session_id)
    assert (read.sequence, read.status, read.subject_id) == (32, "open", session.subject_id)
    assert session.session_id in {each.session_id for each in client.sessions(page_size=1)}


def test_a_creation_under_the_same_key_is_the_same_session(client: Client) -> None:
    assert client.create_session(key="once").session_id == client.create_session(key="once").session_id


def test_a_lost_outcome_is_found_out_by_the_client_itself(client: Client, made: World) -> None:
    session = client.create_session()
    made.log.withhold = 1
    appended = client.append(session.session_id, message())
    assert appended.repeated
    assert len(made.log.events[session.session_id]) == 2


def test_refusals_are_exceptions_with_their_facts(client: Client) -> None:
    session = client.create_session()
    with pytest.raises(Conflict) as refused:
        client.append(session.session_id, message(), expected_sequence=9)
    assert (refused.value.code, refused.value.actual_sequence) == ("runtime.sequence_conflict", 1)
    with pytest.raises(NotFound):
        client.session("sess_" + "0" * 32)
    with pytest.raises(TooLarge):
        client.append(session.session_id, message("x" * 1_000_000))


def test_a_follower_resumes_where_a_broken_stream_ended(client: Client, made: World) -> None:
    session = client.create_session()
    seen: list[int] = []
    started = threading.Event()

    def follow() -> None:
        for event in client.follow(session.session_id):
            seen.append(event.sequence)
            started.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(5)
    for _ in range(3):
        made.owners.failure = NotOwner("moved")
        client.append(session.session_id, message())
        made.owners.failure = None
        client.append(session.session_id, message())
    client.request("POST", f"/v1/sessions/{session.session_id}/close", {})
    thread.join(15)
    assert seen == list(range(1, 9))


def test_a_replay_ends(client: Client) -> None:
    session = client.create_session()
    client.append(session.session_id, message())
    assert [event.sequence for event in client.follow(session.session_id, replay_only=True)] == [1, 2]
    assert [event.sequence for event in client.follow(session.session_id, after_sequence=2, replay_only=True)] == []


def test_the_asynchronous_client_does_the_same(made: World) -> None:
    async def main() -> None:
        async with AsyncClient(made.url, made.secret(), retries=Retries(total_s=20)) as client:
            session = await client.create_session(subject="mia")
            appended = await client.append_many(session.session_id, [message(str(number)) for number in range(5)])
            assert [event.event_id async for event in client.events(session.session_id, after_sequence=1, page_size=2)] == list(
                appended.event_ids
            )
            assert (await client.session(session.session_id)).sequence == 6
            assert session.session_id in {each.session_id async for each in client.sessions()}

            async def follow() -> list[int]:
                return [event.sequence async for event in client.follow(session.session_id)]

            following = asyncio.create_task(follow())
            await client.append(session.session_id, message())
            answer = await client.request("POST", f"/v1/sessions/{session.session_id}/close", {})
            assert answer.status == 200
            assert await asyncio.wait_for(following, 10) == list(range(1, 9))
            with pytest.raises(Conflict):
                await client.append(session.session_id, message())
            assert [event.sequence async for event in client.follow(session.session_id, replay_only=True, after_sequence=6)] == [7, 8]

    asyncio.run(main())


def test_what_the_package_exports_is_there() -> None:
    assert all(hasattr(session_streams, name) for name in session_streams.__all__)
