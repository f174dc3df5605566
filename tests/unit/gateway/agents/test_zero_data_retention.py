"""A workspace that keeps no content keeps no state of agents: it is refused before anything is sealed or sent (design 04, "Policies")."""

from typing import Any

from tests.support.gateway import World

KEEPS_NOTHING = "ws_" + "e" * 32
BODY = {"subject_id": "mia", "kind": "cursor", "state": {"step": 1}, "ttl_seconds": 600}


def called(world: World, **arguments: Any) -> Any:
    client = world.client("mcp:call", workspace_id=KEEPS_NOTHING)
    params = {"name": "titen_checkpoint_save", "arguments": arguments}
    return client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).json()


def test_a_save_is_refused_by_either_door_and_nothing_comes_of_it(shared: World) -> None:
    shared.policies.set(KEEPS_NOTHING, mode="zdr")
    client = shared.client(workspace_id=KEEPS_NOTHING)
    saves = len(shared.agents._versions)
    answer = client.post("/v1/checkpoints", json=BODY)
    assert answer.status_code == 403
    assert answer.json()["error"] == {"code": "FORBIDDEN", "message": "This workspace keeps no content, so it keeps no state of agents."}
    assert "keeps no content" in str(called(shared, **BODY))
    assert len(shared.agents._versions) == saves
    assert client.get("/v1/checkpoints", params={"subject_id": "mia", "kind": "cursor"}).status_code == 404
    assert shared.keyring.pseudonym(KEEPS_NOTHING, "subject", "mia", create=False) is None


def test_what_was_kept_before_the_change_reads_until_it_ends(shared: World) -> None:
    workspace = "ws_" + "f" * 32
    client = shared.client(workspace_id=workspace)
    assert client.post("/v1/checkpoints", json=BODY).status_code == 201
    shared.policies.set(workspace, mode="zdr")
    assert client.post("/v1/checkpoints", json=BODY).status_code == 403
    read = client.get("/v1/checkpoints", params={"subject_id": "mia", "kind": "cursor"})
    assert read.json()["data"]["state"] == {"step": 1}


def test_a_gateway_that_lags_behind_the_policies_seals_nothing(shared: World) -> None:
    client = shared.client()
    saves = len(shared.agents._versions)
    shared.stale_keys = True
    try:
        answer = client.post("/v1/checkpoints", json=BODY)
    finally:
        shared.stale_keys = False
    assert answer.status_code == 503
    assert len(shared.agents._versions) == saves
