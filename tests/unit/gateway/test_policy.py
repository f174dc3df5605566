"""A workspace's policy at the gateway: pinned to a session at its creation, and to no other one."""

from typing import Any

import httpx
import pytest

from streams.session.events import OMITTED, SEALED
from tests.support.commands import new_id
from tests.support.gateway import WORKSPACE, World, key, message, new_session, post

PATH = "/v1/workspace/policy"
DAY_S = 86_400


@pytest.fixture
def workspace() -> str:
    """One of its own, so that tests do not meet each other's policies."""
    return new_id("ws")


def pinned(client: httpx.Client, session: str) -> dict[str, Any]:
    policy: dict[str, Any] = client.get(f"/v1/sessions/{session}").json()["policy"]
    return policy


def content_states(shared: World, session: str) -> list[str]:
    return [draft.content.state for command in shared.log.commands if command.session_id == session for draft in command.drafts]


def test_without_a_policy_the_settings_are_shown_and_pinned(client: httpx.Client) -> None:
    assert client.get(PATH).json() == {
        "workspace_id": WORKSPACE, "mode": "standard", "content_window_days": 30, "checkpoint_window_s": 30 * DAY_S,
        "source": "installation", "changed_at": None,
    }  # fmt: skip


def test_a_policy_is_pinned_to_sessions_created_after_it(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    before = new_session(client)
    shared.policies.set(workspace, mode="zdr", content_window_days=5, checkpoint_window_s=DAY_S)
    shown = client.get(PATH).json()
    assert (shown["mode"], shown["checkpoint_window_s"], shown["source"]) == ("zdr", DAY_S, "workspace")
    after = post(client, "/v1/sessions", {}, status=201)
    assert after["policy"] == {"mode": "zdr", "content_window_days": 5, "checkpoint_window_s": DAY_S}
    assert pinned(client, before) == {"mode": "standard", "content_window_days": 30, "checkpoint_window_s": 30 * DAY_S}
    assert pinned(client, after["session_id"]) == after["policy"]
    for session in (before, after["session_id"]):
        post(client, f"/v1/sessions/{session}/events", message())
    assert content_states(shared, before)[-1] == SEALED
    assert content_states(shared, after["session_id"])[-1] == OMITTED


def test_a_policy_of_another_workspace_is_nobody_elses(shared: World, client: httpx.Client, workspace: str) -> None:
    shared.policies.set(workspace, mode="zdr")
    assert client.get(PATH).json()["mode"] == "standard"
    assert pinned(client, new_session(client))["mode"] == "standard"


def test_asking_again_under_the_same_key_tells_what_was_pinned_then(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    headers = {"idempotency-key": "the-same"}
    first = client.post("/v1/sessions", json={}, headers=headers).json()
    shared.policies.set(workspace, mode="zdr", checkpoint_window_s=DAY_S)
    again = client.post("/v1/sessions", json={}, headers=headers)
    assert again.headers["session-streams-repeated"] == "true"
    assert again.json() == first


def test_a_gateway_that_may_lack_a_change_of_policy_creates_no_session(shared: World, client: httpx.Client) -> None:
    commands = len(shared.log.commands)
    shared.stale_keys = True
    try:
        problem = post(client, "/v1/sessions", {}, status=503)
        assert client.get(PATH).status_code == 503
    finally:
        shared.stale_keys = False
    assert problem["code"] == "service.not_ready"
    assert len(shared.log.commands) == commands


def test_a_policy_that_cannot_be_read_keeps_sessions_from_being_created(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    shared.rows = {**shared.rows, f"{workspace}/policy/current".encode(): b"garbage"}
    assert post(client, "/v1/sessions", {}, status=503)["code"] == "service.not_ready"


# -- replaced over HTTP -------------------------------------------------------------------------------------------------

ZERO = {"mode": "zdr", "content_window_days": 3, "checkpoint_window_s": 3600}


def put(client: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    given = {**key(), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.put(PATH, json=body, headers=given)


def test_a_policy_is_replaced_whole_and_holds_for_sessions_created_after_it(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    answer = put(client, ZERO)
    assert answer.status_code == 200
    assert answer.json() == client.get(PATH).json() == {
        **ZERO, "workspace_id": workspace, "source": "workspace", "changed_at": answer.json()["changed_at"],
    }  # fmt: skip
    assert pinned(client, new_session(client)) == ZERO


@pytest.mark.parametrize(
    "body",
    [
        {}, {**ZERO, "mode": "none"}, {**ZERO, "content_window_days": 0}, {**ZERO, "checkpoint_window_s": 31 * DAY_S}, {**ZERO, "more": 1},
        {"mode": "zdr", "content_window_days": 3},
    ],
)  # fmt: skip
def test_what_is_no_whole_policy_is_refused_and_changes_nothing(shared: World, workspace: str, body: Any) -> None:
    client = shared.client(workspace_id=workspace)
    answer = put(client, body)
    assert (answer.status_code, answer.json()["code"]) == (422, "request.invalid")
    assert client.get(PATH).json()["source"] == "installation"


def test_a_request_that_comes_again_late_does_not_undo_what_came_after_it(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    first = put(client, {**ZERO, "mode": "standard"}, idempotency_key="first")
    put(client, ZERO)
    again = put(client, {**ZERO, "mode": "standard"}, idempotency_key="first")
    assert (again.status_code, again.json(), again.headers["session-streams-repeated"]) == (200, first.json(), "true")
    assert client.get(PATH).json()["mode"] == "zdr"
    other = put(client, ZERO, idempotency_key="first")
    assert (other.status_code, other.json()["code"]) == (409, "request.idempotency_mismatch")


def test_requests_that_are_remembered_are_bounded(shared: World, workspace: str) -> None:
    client = shared.client(workspace_id=workspace)
    for days in range(1, 40):
        assert put(client, {**ZERO, "content_window_days": days}).status_code == 200
    assert len(shared.policies.show(workspace).requests) == 32


def test_a_policy_is_replaced_by_who_may_only(shared: World, workspace: str) -> None:
    refused = put(shared.client("sessions:write", "sessions:read", "erasure:write", workspace_id=workspace), ZERO)
    assert (refused.status_code, refused.json()["code"]) == (403, "auth.scope")
    assert put(shared.client("policy:write", workspace_id=workspace), ZERO).status_code == 200
