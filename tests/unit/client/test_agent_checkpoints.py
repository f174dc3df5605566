"""Agent checkpoints through both clients: what is sent, what comes back, and what is sent again."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from session_streams import AsyncClient, Client, Conflict, ConnectionFailed, Invalid, NotFound, RateLimited, Retries, Unavailable
from tests.support.gateway import World, world

HASH = "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"
ID = "ckpt_713be19162544650a85b76b5ef6d7543"
STATE = {"step": 3, "of": 7, "pending": ["rollback smoke"]}
SAVED = {
    "checkpoint_id": ID, "subject_id": "user_rama", "agent_id": "agent_1", "kind": "task_state", "state_hash": HASH,
    "expires_at": "2026-07-30T11:48:04.652Z", "updated": True,
}  # fmt: skip
Step = httpx.Response | Exception


def told(data: dict[str, Any], status: int = 200) -> httpx.Response:
    return httpx.Response(status, json={"data": data, "meta": {"request_id": "req_1"}})


def refused(status: int, code: str, message: str = "m", **headers: str) -> httpx.Response:
    body = {"error": {"code": code, "message": message}, "meta": {"request_id": "req_1"}}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


class Service:
    """Answers the steps in turn, the last one for ever."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, headers=step.headers, content=step.content)

    def client(self, **more: Any) -> Client:
        return Client("http://gateway", "sks_x", transport=httpx.MockTransport(self), sleep=lambda _: None, **more)


def both(service: Service, ask: Callable[[Any], Any], **more: Any) -> list[Any]:
    """What either client answers, the synchronous one first."""

    async def asynchronously() -> Any:
        async def rest(_: float) -> None: ...

        async with AsyncClient("http://gateway", "sks_x", transport=httpx.MockTransport(service), sleep=rest, **more) as client:
            return await ask(client)

    with service.client(**more) as client:
        return [ask(client), asyncio.run(asynchronously())]


def test_a_save_sends_the_fields_of_the_wire_and_leaves_out_what_is_not_given() -> None:
    service = Service(told(SAVED))
    for saved in both(service, lambda client: client.save_checkpoint("user_rama", "task_state", STATE, ttl_seconds=3600)):
        assert (saved.checkpoint_id, saved.state_hash, saved.updated, saved.raw) == (ID, HASH, True, SAVED)
    for request in service.requests:
        assert (request.method, request.url.path) == ("POST", "/v1/checkpoints")
        assert json.loads(request.content) == {"subject_id": "user_rama", "kind": "task_state", "state": STATE, "ttl_seconds": 3600}
        assert "idempotency-key" not in request.headers


def test_a_read_names_its_scope_in_the_query_and_an_id_in_the_path() -> None:
    whole = {
        **SAVED, "run_id": None, "state": STATE, "ttl_seconds": 3600, "created_at": "2026-07-30T10:48:04.652Z",
        "updated_at": "2026-07-30T10:48:04.652Z",
    }  # fmt: skip
    service = Service(told(whole))
    for read in both(service, lambda client: client.get_checkpoint("user/rama", "task_state")):
        assert (read.state, read.ttl_seconds, read.run_id, read.state_hash) == (STATE, 3600, None, HASH)
    both(service, lambda client: client.get_checkpoint("user/rama", "cursor", agent_id="agent_2"))
    both(service, lambda client: client.get_checkpoint_by_id("ckpt_/x"))
    assert [dict(request.url.params) for request in service.requests[::2]] == [
        {"subject_id": "user/rama", "kind": "task_state"},
        {"subject_id": "user/rama", "kind": "cursor", "agent_id": "agent_2"},
        {},
    ]
    assert service.requests[-1].url.raw_path == b"/v1/checkpoints/ckpt_%2Fx"


def test_a_history_is_read_page_by_page() -> None:
    pages = [told({"checkpoint_id": ID, "versions": [{"version": 3}, {"version": 2}], "next_before": 2}),
             told({"checkpoint_id": ID, "versions": [{"version": 1}], "next_before": None})]  # fmt: skip
    service = Service(*pages)
    with service.client() as client:
        assert [each["version"] for each in client.checkpoint_history(ID, page_size=2)] == [3, 2, 1]
    assert [dict(request.url.params) for request in service.requests] == [{"limit": "2"}, {"limit": "2", "before": "2"}]

    async def asynchronously() -> list[int]:
        async with AsyncClient("http://gateway", "sks_x", transport=httpx.MockTransport(Service(*pages))) as client:
            return [each["version"] async for each in client.checkpoint_history(ID, page_size=2)]

    assert asyncio.run(asynchronously()) == [3, 2, 1]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(404, "NOT_FOUND", "Resource was not found."), NotFound),
        (refused(400, "VALIDATION_ERROR", 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'), Invalid),
    ],
)
def test_their_envelope_is_told_as_code_and_detail(answer: httpx.Response, kind: type[NotFound]) -> None:
    with Service(answer).client() as client, pytest.raises(kind) as caught:
        client.get_checkpoint("user_rama", "task_state")
    error = json.loads(answer.content)["error"]
    assert (caught.value.code, caught.value.detail) == (error["code"], error["message"])


@pytest.mark.parametrize(
    "failure",
    [
        refused(503, "UNAVAILABLE", retry_after="1"),
        refused(429, "RATE_LIMITED", retry_after="1"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
    ],
    ids=str,
)
def test_a_save_that_wins_over_whatever_is_there_is_sent_again(failure: Step) -> None:
    service = Service(failure, told(SAVED), failure, told(SAVED))
    both(service, lambda client: client.save_checkpoint("user_rama", "task_state", STATE, ttl_seconds=60))
    assert len({(request.method, request.url, request.content) for request in service.requests}) == 1
    assert len(service.requests) == 4


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.ReadTimeout("slow"), ConnectionFailed),
        (httpx.WriteError("reset"), ConnectionFailed),
        (httpx.RemoteProtocolError("cut off"), ConnectionFailed),
        (refused(503, "UNAVAILABLE", retry_after="1"), Unavailable),
    ],
    ids=str,
)
def test_a_save_that_names_what_it_expects_is_not_refused_because_of_itself(failure: Step, kind: type[Exception]) -> None:
    service = Service(failure, refused(409, "CONFLICT"))
    with service.client() as client, pytest.raises(kind):
        client.save_checkpoint("user_rama", "task_state", STATE, ttl_seconds=60, expected_state_hash=HASH)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), refused(429, "RATE_LIMITED", retry_after="1")], ids=str
)
def test_a_save_that_names_what_it_expects_is_sent_again_where_nothing_can_have_come_of_it(failure: Step) -> None:
    service = Service(failure, told(SAVED), failure, told(SAVED))
    both(service, lambda client: client.save_checkpoint("user_rama", "cursor", 1, ttl_seconds=60, expected_state_hash=HASH))
    assert [json.loads(request.content)["expected_state_hash"] for request in service.requests] == [HASH] * 4


def test_a_conflict_tells_what_is_there_instead() -> None:
    body = {"error": {"code": "CONFLICT", "message": "m"}, "meta": {"request_id": "req_1", "actual_state_hash": HASH}}
    with Service(httpx.Response(409, json=body)).client() as client, pytest.raises(Conflict) as caught:
        client.save_checkpoint("user_rama", "cursor", 1, ttl_seconds=60, expected_state_hash="0" * 64)
    assert caught.value.actual_state_hash == HASH


def test_too_many_attempts_end_with_what_the_last_one_met() -> None:
    service = Service(refused(429, "RATE_LIMITED", retry_after="1"))
    with service.client(retries=Retries(total_s=0)) as client, pytest.raises(RateLimited):
        client.delete_checkpoint(ID)
    assert [(request.method, request.url.path) for request in service.requests] == [("DELETE", f"/v1/checkpoints/{ID}")]


def test_a_delete_whose_answer_was_lost_finds_nothing_the_second_time() -> None:
    service = Service(httpx.ReadTimeout("slow"), refused(404, "NOT_FOUND"))
    with service.client() as client, pytest.raises(NotFound):
        client.delete_checkpoint(ID)
    assert len(service.requests) == 2


# -- against a gateway ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway")) as each:
        yield each


def test_an_agent_goes_on_from_what_it_saved(made: World) -> None:
    with Client(made.url, made.secret("agent-checkpoints:read", "agent-checkpoints:write")) as client:
        saved = client.save_checkpoint("user_rama", "task_state", STATE, ttl_seconds=3600, run_id="run-1")
        assert (saved.updated, saved.state_hash) == (False, HASH)
        read = client.get_checkpoint("user_rama", "task_state")
        assert (read.state, read.run_id, read.checkpoint_id) == (STATE, "run-1", saved.checkpoint_id)
        again = client.save_checkpoint("user_rama", "task_state", {"step": 4}, ttl_seconds=3600, expected_state_hash=saved.state_hash)
        assert (again.updated, again.checkpoint_id) == (True, saved.checkpoint_id)
        with pytest.raises(Conflict) as lost:
            client.save_checkpoint("user_rama", "task_state", {"step": 5}, ttl_seconds=3600, expected_state_hash=saved.state_hash)
        assert lost.value.actual_state_hash == again.state_hash
        history = list(client.checkpoint_history(saved.checkpoint_id, page_size=1))
        assert [(version["version"], version["state"]) for version in history] == [(2, {"step": 4}), (1, STATE)]
        assert client.get_checkpoint_by_id(saved.checkpoint_id).state == {"step": 4}
        client.delete_checkpoint(saved.checkpoint_id)
        with pytest.raises(NotFound) as gone:
            client.get_checkpoint("user_rama", "task_state")
        assert (gone.value.code, gone.value.detail) == ("NOT_FOUND", "Resource was not found.")


def test_the_twin_does_the_same(made: World) -> None:
    async def run() -> None:
        async with AsyncClient(made.url, made.secret()) as client:
            saved = await client.save_checkpoint("user/rama ☕", "cursor", ["a\ud800", 1.5], ttl_seconds=60)
            read = await client.get_checkpoint("user/rama ☕", "cursor", agent_id=saved.raw["agent_id"])
            assert (read.subject_id, read.state) == ("user/rama ☕", ["a\ud800", 1.5])
            assert (await client.get_checkpoint_by_id(saved.checkpoint_id)).state_hash == saved.state_hash
            assert [version["version"] async for version in client.checkpoint_history(saved.checkpoint_id)] == [1]
            await client.delete_checkpoint(saved.checkpoint_id)
            with pytest.raises(NotFound):
                await client.get_checkpoint_by_id(saved.checkpoint_id)

    asyncio.run(run())


def test_what_is_wrong_with_a_save_is_told(made: World) -> None:
    with Client(made.url, made.secret()) as client:
        with pytest.raises(Invalid) as refused:
            client.save_checkpoint("user_rama", "notes", 1, ttl_seconds=60)  # type: ignore[arg-type]
        assert refused.value.detail == 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'
