"""A workspace's policy at the gateway: pinned to a session at its creation, and to no other one."""

from typing import Any

import httpx
import pytest

from streams.session.events import OMITTED, SEALED
from tests.support.commands import new_id
from tests.support.gateway import WORKSPACE, World, message, new_session, post

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
