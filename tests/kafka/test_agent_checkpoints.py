"""The wire contract of agent checkpoints on a broker: what routes and tools promise with everything behind them real."""

import hashlib
import http.client
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.custody.keyring import SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.log.reader import end_offsets
from streams.log.topics import Topics
from tests.conftest import Broker
from tests.support.agent_requests import Told, ask, is_enveloped
from tests.support.roles import WORKSPACE, Roles, installation
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka

ABSENT = (404, "NOT_FOUND", "Resource was not found.")
SEED_STATE = {"step": 3, "of": 7, "pending": ["rollback smoke"]}
SEED_HASH = "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"


@pytest.fixture(scope="module")
def roles(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("agents"), agents=True) as made:
        yield made


@pytest.fixture(scope="module")
def secret(roles: Roles) -> str:
    return roles.key("agent-checkpoints:read", "agent-checkpoints:write", "mcp:call")


def save(roles: Roles, secret: str, subject_id: str, state: Any, headers: dict[str, str] | None = None, **more: Any) -> Told:
    body = {"subject_id": subject_id, "kind": "task_state", "state": state, "ttl_seconds": 3600, **more}
    return ask(roles, "POST", "/v1/checkpoints", secret, json.dumps(body).encode(), **(headers or {}))


def find(roles: Roles, secret: str, subject_id: str) -> Told:
    return ask(roles, "GET", f"/v1/checkpoints?subject_id={subject_id}&kind=task_state", secret)


def test_the_path_of_the_seed(roles: Roles, secret: str) -> None:
    first, second = (save(roles, secret, "user_rama", SEED_STATE) for _ in range(2))
    assert (first.status, second.status) == (201, 200)
    assert first.data["checkpoint_id"] == second.data["checkpoint_id"]
    assert (first.data["updated"], second.data["updated"], first.data["state_hash"]) == (False, True, SEED_HASH)
    found = find(roles, secret, "user_rama")
    assert (found.status, found.data["state"], found.data["expires_at"]) == (200, SEED_STATE, second.data["expires_at"])
    assert ask(roles, "GET", f"/v1/checkpoints/{first.data['checkpoint_id']}", secret).data == found.data
    gone = ask(roles, "DELETE", f"/v1/checkpoints/{first.data['checkpoint_id']}", secret)
    assert gone.data == {"checkpoint_id": first.data["checkpoint_id"], "deleted": True}
    for told in (find(roles, secret, "user_rama"), ask(roles, "DELETE", f"/v1/checkpoints/{first.data['checkpoint_id']}", secret)):
        assert told.error == ABSENT
        assert is_enveloped(told)
    later = save(roles, secret, "user_rama", SEED_STATE)
    assert later.status == 201
    assert later.data["checkpoint_id"] != first.data["checkpoint_id"]


def test_24_saves_at_once_make_one_checkpoint(roles: Roles, secret: str) -> None:
    with ThreadPoolExecutor(24) as pool:
        told = list(pool.map(lambda number: save(roles, secret, "many", {"number": number}), range(24)))
    assert sorted(each.status for each in told) == [200] * 23 + [201]
    assert len({each.data["checkpoint_id"] for each in told}) == 1
    found = find(roles, secret, "many").data
    assert found["state_hash"] in {each.data["state_hash"] for each in told}
    assert found["state_hash"] == hashlib.sha256(json.dumps(found["state"], separators=(",", ":")).encode()).hexdigest()
    history = ask(roles, "GET", f"/v1/checkpoints/{found['checkpoint_id']}/history", secret).data["versions"]
    assert history[0]["version"] == 24
    assert history[0]["state"] == found["state"]
    assert [each["version"] for each in history] == list(range(24, 24 - len(history), -1))


def test_a_read_sees_what_was_answered_before_it_began(roles: Roles, secret: str) -> None:
    def alternate(agent: int) -> list[tuple[int, Any]]:
        seen = []
        for number in range(30):
            assert save(roles, secret, f"reader-{agent}", {"number": number}).status in (200, 201)
            seen.append((number, find(roles, secret, f"reader-{agent}").data["state"]["number"]))
        return seen

    with ThreadPoolExecutor(4) as pool:
        for seen in pool.map(alternate, range(4)):
            assert [read for _, read in seen] == [written for written, _ in seen]


def test_of_many_who_expect_the_same_state_one_wins(roles: Roles, secret: str) -> None:
    first = save(roles, secret, "guarded", {"n": 0}).data["state_hash"]
    with ThreadPoolExecutor(12) as pool:
        told = list(pool.map(lambda number: save(roles, secret, "guarded", {"n": number}, {"if_match": f'"{first}"'}), range(1, 13)))
    assert sorted(each.status for each in told) == [200] + [409] * 11
    winner = next(each.data["state_hash"] for each in told if each.status == 200)
    lost = [each for each in told if each.status == 409]
    assert {each.body["meta"]["actual_state_hash"] for each in lost} == {winner}
    assert {each.error for each in lost} == {(409, "CONFLICT", "Write conflicted with an existing record.")}


def test_keys_of_one_agent_share_and_others_learn_nothing(roles: Roles, secret: str) -> None:
    agent_id = "agent_" + "9" * 32
    one, two = (roles.key(agent_id=agent_id) for _ in range(2))
    saved = save(roles, one, "shared", {"by": "one"}).data
    assert find(roles, two, "shared").data["checkpoint_id"] == saved["checkpoint_id"]
    for stranger in (secret, roles.key(workspace_id="ws_" + "b" * 32)):
        for method, path in (("GET", ""), ("GET", "/history"), ("DELETE", "")):
            assert ask(roles, method, f"/v1/checkpoints/{saved['checkpoint_id']}{path}", stranger).error == ABSENT
        assert find(roles, stranger, "shared").error == ABSENT
        assert save(roles, stranger, "shared", {}, agent_id=agent_id).error == ABSENT
    assert find(roles, one, "shared").data["state"] == {"by": "one"}


def test_a_read_of_an_unknown_subject_makes_no_pseudonym(roles: Roles, secret: str) -> None:
    assert find(roles, secret, "never_written").error == ABSENT
    keyring = open_local_keyring(roles.settings.data_dir / "keyring")
    try:
        assert keyring.pseudonym(WORKSPACE, "subject", "never_written", create=False) is None
        save(roles, secret, "now_written", {})
        assert keyring.pseudonym(WORKSPACE, "subject", "now_written", create=False) is not None
    finally:
        keyring.close()


def test_a_key_of_one_subject_touches_no_other(roles: Roles) -> None:
    agent_id = "agent_" + "8" * 32
    free = roles.key(agent_id=agent_id)
    mine, other = (save(roles, free, name, {}).data["checkpoint_id"] for name in ("subject_mine", "subject_other"))
    keyring = open_local_keyring(roles.settings.data_dir / "keyring")
    pseudonym = keyring.pseudonym(WORKSPACE, "subject", "subject_mine", create=False)
    keyring.close()
    restricted = roles.key(agent_id=agent_id, subject_id=pseudonym)
    assert find(roles, restricted, "subject_mine").data["checkpoint_id"] == mine
    assert save(roles, restricted, "subject_mine", {"n": 1}).status == 200
    for told in (
        find(roles, restricted, "subject_other"),
        save(roles, restricted, "subject_other", {}),
        save(roles, restricted, "subject_unknown", {}),
        ask(roles, "GET", f"/v1/checkpoints/{other}", restricted),
        ask(roles, "GET", f"/v1/checkpoints/{other}/history", restricted),
        ask(roles, "DELETE", f"/v1/checkpoints/{other}", restricted),
    ):
        assert told.error == ABSENT


def test_an_erased_subject_is_not_found_and_who_returns_begins_anew(roles: Roles, secret: str) -> None:
    saved = save(roles, secret, "to_be_erased", {"said": "once"}).data["checkpoint_id"]
    keyring = open_local_keyring(roles.settings.data_dir / "keyring")
    try:
        pseudonym = keyring.pseudonym(WORKSPACE, "subject", "to_be_erased", create=False)
        assert pseudonym is not None
        keyring.destroy([SecretRef("subject", WORKSPACE, pseudonym)])
    finally:
        keyring.close()
    # What is at hand in a process, names and secrets each by themselves, lives for a lease.
    within_s = roles.settings.lease_s * 2 + 5
    eventually(lambda: find(roles, secret, "to_be_erased").status == 404, timeout_s=within_s)
    for path in ("", "/history"):
        eventually(lambda path=path: ask(roles, "GET", f"/v1/checkpoints/{saved}{path}", secret).status == 404, timeout_s=within_s)
        assert ask(roles, "GET", f"/v1/checkpoints/{saved}{path}", secret).error == ABSENT
    again = save(roles, secret, "to_be_erased", {"said": "again"})
    assert again.status == 201
    assert again.data["checkpoint_id"] != saved
    assert find(roles, secret, "to_be_erased").data["state"] == {"said": "again"}


def test_two_gateways_serve_one_table(roles: Roles, secret: str) -> None:
    with roles.another_gateway() as url:
        other = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        body = json.dumps({"subject_id": "both", "kind": "cursor", "state": 1, "ttl_seconds": 60})
        for gateway in ("this", "other", "this"):
            if gateway == "other":
                other.request("POST", "/v1/checkpoints", body, {"authorization": f"Bearer {secret}"})
                assert other.getresponse().status == 200
            else:
                assert ask(roles, "POST", "/v1/checkpoints", secret, body.encode()).status in (200, 201)
        other.close()


def test_the_position_of_a_save_is_that_of_its_command(roles: Roles, secret: str) -> None:
    topic = Topics(roles.settings.topic_prefix).agent_commands
    told = save(roles, secret, "positioned", {}, {"session_streams_position": "*"})
    found = re.fullmatch(rf"{re.escape(topic)}:([0-9]+):([0-9]+)", told.headers["session-streams-position"])
    assert found is not None
    partition = (topic, int(found[1]))
    assert int(found[2]) < end_offsets(roles.settings, [partition], committed=False)[partition]
