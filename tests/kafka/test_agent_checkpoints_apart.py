"""Agent checkpoints on the log: their topics grow, and those of sessions do not, whatever a state looks like."""

import json
from collections.abc import Iterator

import httpx
import pytest

from streams.log.reader import end_offsets
from streams.log.topics import Topics
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.gateway import message, new_session
from tests.support.roles import Roles, installation

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def roles(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("agents"), agents=True) as made:
        yield made


def ends(settings: Settings, *names: str) -> dict[str, int]:
    """Where each topic ends, over all its partitions."""
    return {
        name: sum(end_offsets(settings, [(name, partition) for partition in range(settings.partitions)], committed=False).values())
        for name in names
    }


def test_no_state_reaches_a_topic_of_sessions(roles: Roles) -> None:
    topics = Topics(roles.settings.topic_prefix)
    of_sessions = (topics.commands, topics.events, topics.outcomes, topics.state, topics.checkpoints)
    of_agents = (topics.agent_commands, topics.agent_outcomes, topics.agent_checkpoints)
    with httpx.Client(base_url=roles.url, headers={"authorization": f"Bearer {roles.key()}"}, timeout=20) as client:
        session_id = new_session(client)
        before, agents_before = ends(roles.settings, *of_sessions), ends(roles.settings, *of_agents)
        for number, kind in enumerate(("task_state", "conversation", "workflow", "cursor")):
            body = {"subject_id": session_id, "kind": kind, "state": message("never said", session_id=session_id), "ttl_seconds": 60}
            assert client.post("/v1/checkpoints", json=body).status_code == 201
            call = {"name": "titen_checkpoint_save", "arguments": body}
            told = client.post("/mcp", json={"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}).json()
            assert json.loads(told["result"]["content"][0]["text"])["data"]["updated"] is True
            read = client.get("/v1/checkpoints", params={"subject_id": session_id, "kind": kind}).json()["data"]
            assert read["state"] == body["state"]
        assert client.delete(f"/v1/checkpoints/{read['checkpoint_id']}").status_code == 200
        assert client.get(f"/v1/sessions/{session_id}").json()["sequence"] == 1
    assert ends(roles.settings, *of_sessions) == before
    assert all(end > agents_before[name] for name, end in ends(roles.settings, *of_agents).items())
