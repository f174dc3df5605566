"""Saving, reading, deleting and the history of agent checkpoints over HTTP: every quoted reply of the seed (003), and the tables of
page 06, 1.6 to 1.8, with what is better than theirs."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from streams.agents.core import KINDS
from tests.support.agent_requests import Told, ask, is_enveloped
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World
from tests.support.waiting import eventually

ABSENT = (404, "NOT_FOUND", "Resource was not found.")
SEED_STATE = {"step": 3, "of": 7, "pending": ["rollback smoke"]}
SEED_HASH = "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"
CKPT = re.compile(r"ckpt_[0-9a-f]{32}")
READ, WRITE = "agent-checkpoints:read", "agent-checkpoints:write"
_subjects = itertools.count()


class Agent:
    """Whoever holds one key."""

    def __init__(self, world: World, *scopes: str, **more: Any) -> None:
        self.world = world
        self.key, self.secret = world.keys.create(more.pop("workspace_id", WORKSPACE), scopes or (READ, WRITE), **more)
        self.id = self.key.agent_id or "agent_" + self.key.key_id.removeprefix("key_")

    def save(self, subject_id: str, state: Any = None, headers: dict[str, str] | None = None, **changed: Any) -> Told:
        body = {"subject_id": subject_id, "kind": "task_state", "state": state or {"step": 1}, "ttl_seconds": 3600, **changed}
        return ask(self.world, "POST", "/v1/checkpoints", self.secret, json.dumps(body).encode(), **(headers or {}))

    def find(self, subject_id: str, kind: str = "task_state", more: str = "") -> Told:
        return ask(self.world, "GET", f"/v1/checkpoints?subject_id={quote(subject_id, safe='')}&kind={kind}{more}", self.secret)

    def get(self, checkpoint_id: str, more: str = "") -> Told:
        return ask(self.world, "GET", f"/v1/checkpoints/{checkpoint_id}{more}", self.secret)

    def delete(self, checkpoint_id: str, body: bytes | None = None) -> Told:
        return ask(self.world, "DELETE", f"/v1/checkpoints/{checkpoint_id}", self.secret, body)


@pytest.fixture
def agent(shared: World) -> Iterator[Agent]:
    yield Agent(shared)
    shared.passed_us = 0


@pytest.fixture
def subject() -> str:
    return f"user_{next(_subjects)}"


def moment(text: str) -> datetime:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    return datetime.fromisoformat(text)


# -- the replies that the seed quotes -----------------------------------------------------------------------------------


def test_the_first_save_is_201_and_the_second_200_with_the_same_id(agent: Agent) -> None:
    """The seed: "the second write returns 200 with `updated: true` and the same `checkpoint_id`"."""
    first = agent.save("user_rama", SEED_STATE)
    second = agent.save("user_rama", SEED_STATE)
    assert (first.status, second.status) == (201, 200)
    assert CKPT.fullmatch(first.data["checkpoint_id"])
    assert first.data["checkpoint_id"] == second.data["checkpoint_id"]
    assert (first.data["updated"], second.data["updated"]) == (False, True)
    for told in (first, second):
        assert is_enveloped(told)
        expected = {
            "checkpoint_id": first.data["checkpoint_id"], "subject_id": "user_rama", "agent_id": agent.id, "kind": "task_state",
            "state_hash": SEED_HASH, "expires_at": told.data["expires_at"], "updated": told.status == 200,
        }  # fmt: skip
        assert list(told.data.items()) == list(expected.items()), "in the order of the seed, and nothing else"
        moment(told.data["expires_at"])
    assert re.fullmatch("agent_[0-9a-f]{32}", agent.id)


def test_a_bad_kind_is_told_to_the_letter(agent: Agent, subject: str) -> None:
    told = agent.save(subject, kind="other")
    assert told.status == 400
    seed = r"""{ "error": { "code": "VALIDATION_ERROR",
    "message": "Field \"kind\" must be one of: task_state, conversation, workflow, cursor." } }"""
    assert {"error": told.body["error"]} == json.loads(seed)
    assert agent.find(subject).error == ABSENT


@pytest.mark.parametrize(
    "wrong", [{"kind": "other"}, {"state": "x" * 64_000}, {"ttl_seconds": 59}, {"ttl_seconds": 2_592_001}], ids=range(4)
)
def test_kind_state_and_ttl_are_checked_before_the_write(agent: Agent, subject: str, wrong: dict[str, Any]) -> None:
    """The seed: "All three are checked before the write". What was there is as it was."""
    agent.save(subject, SEED_STATE)
    before = agent.find(subject).data
    assert agent.save(subject, **wrong).status == 400
    assert agent.find(subject).data == before


def test_what_is_missing_expired_or_anothers_is_told_to_the_letter_and_alike(shared: World, agent: Agent, subject: str) -> None:
    seed = '{ "error": { "code": "NOT_FOUND", "message": "Resource was not found." } }'
    saved = agent.save(subject, ttl_seconds=60).data
    other = Agent(shared)
    told = [agent.find("nobody"), other.find(subject), other.get(saved["checkpoint_id"]), other.find(subject, more=f"&agent_id={agent.id}")]
    shared.passed_us = 60_000_000
    told += [agent.find(subject), agent.get(saved["checkpoint_id"])]
    for each in told:
        assert each.status == 404
        assert {"error": each.body["error"]} == json.loads(seed)
        assert is_enveloped(each)
        assert each.headers.keys() == told[0].headers.keys()


def test_reading_back_gives_the_full_record_with_the_parsed_state(agent: Agent, subject: str) -> None:
    saved = agent.save(subject, SEED_STATE, run_id="run-7").data
    found = agent.find(subject)
    assert found.status == 200
    assert is_enveloped(found)
    assert list(found.data) == [
        "checkpoint_id", "subject_id", "agent_id", "run_id", "kind", "state", "state_hash", "ttl_seconds", "expires_at",
        "created_at", "updated_at",
    ]  # fmt: skip
    assert found.data["state"] == SEED_STATE
    assert (found.data["run_id"], found.data["ttl_seconds"], found.data["agent_id"]) == ("run-7", 3600, agent.id)
    assert {name: found.data[name] for name in ("checkpoint_id", "subject_id", "kind", "state_hash", "expires_at")} == {
        name: saved[name] for name in ("checkpoint_id", "subject_id", "kind", "state_hash", "expires_at")
    }
    created, updated, expires = (moment(found.data[name]) for name in ("created_at", "updated_at", "expires_at"))
    assert created == updated
    assert expires - updated == timedelta(seconds=3600)
    assert agent.get(saved["checkpoint_id"]).data == found.data


def test_a_deleted_checkpoint_is_told_so_and_is_gone(agent: Agent, subject: str) -> None:
    """The seed: `{ "checkpoint_id": "…", "deleted": true }`."""
    saved = agent.save(subject).data["checkpoint_id"]
    told = agent.delete(saved, b"not read")
    assert told.status == 200
    assert list(told.data.items()) == [("checkpoint_id", saved), ("deleted", True)]
    assert is_enveloped(told)
    for again in (agent.delete(saved), agent.get(saved), agent.find(subject)):
        assert again.error == ABSENT
    later = agent.save(subject)
    assert later.status == 201
    assert later.data["checkpoint_id"] != saved


# -- writing ------------------------------------------------------------------------------------------------------------


def test_24_saves_at_once_make_one_checkpoint(agent: Agent, subject: str) -> None:
    with ThreadPoolExecutor(24) as pool:
        told = list(pool.map(lambda number: agent.save(subject, {"number": number}), range(24)))
    assert sorted(each.status for each in told) == [200] * 23 + [201]
    assert len({each.data["checkpoint_id"] for each in told}) == 1
    assert [each.data["updated"] for each in told] == [each.status == 200 for each in told]
    hashes = {each.data["state_hash"]: number for number, each in enumerate(told)}
    found = agent.find(subject).data
    assert found["state"] == {"number": hashes[found["state_hash"]]}


def test_an_update_keeps_id_and_creation_and_replaces_the_rest(shared: World, agent: Agent, subject: str) -> None:
    agent.save(subject, {"a": 1}, run_id="run-1", ttl_seconds=600)
    before = agent.find(subject).data
    shared.passed_us = 10_000_000
    agent.save(subject, {"a": 2}, ttl_seconds=60)
    after = agent.find(subject).data
    assert (after["checkpoint_id"], after["created_at"]) == (before["checkpoint_id"], before["created_at"])
    assert (after["run_id"], after["ttl_seconds"], after["state"]) == (None, 60, {"a": 2})
    assert moment(after["updated_at"]) - moment(before["updated_at"]) >= timedelta(seconds=10)
    assert moment(after["expires_at"]) - moment(after["updated_at"]) == timedelta(seconds=60)


def test_a_save_over_an_expired_one_is_200_with_the_same_id_and_its_old_creation(shared: World, agent: Agent, subject: str) -> None:
    first = agent.save(subject, ttl_seconds=60).data
    created = agent.find(subject).data["created_at"]
    shared.passed_us = 61_000_000
    assert agent.find(subject).error == ABSENT
    again = agent.save(subject, {"again": True})
    assert (again.status, again.data["updated"], again.data["checkpoint_id"]) == (200, True, first["checkpoint_id"])
    assert agent.find(subject).data["created_at"] == created


def test_a_checkpoint_is_visible_before_its_expiry_and_not_at_it(shared: World, agent: Agent, subject: str) -> None:
    agent.save(subject, ttl_seconds=60)
    shared.passed_us = 59_000_000
    assert agent.find(subject).status == 200
    shared.passed_us = 60_000_000
    assert agent.find(subject).error == ABSENT


def test_an_expired_one_can_still_be_deleted(shared: World, agent: Agent, subject: str) -> None:
    saved = agent.save(subject, ttl_seconds=60).data["checkpoint_id"]
    shared.passed_us = 61_000_000
    assert agent.delete(saved).status == 200
    assert agent.delete(saved).error == ABSENT


def test_an_idempotency_key_is_ignored(agent: Agent, subject: str) -> None:
    told = [agent.save(subject, {"n": number}, {"idempotency_key": "one"}) for number in (1, 2)]
    assert [each.status for each in told] == [201, 200]
    assert agent.find(subject).data["state"] == {"n": 2}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"b":1, "a":2}', '{"b":1,"a":2}'),
        ('{"2":0,"b":1,"1":2}', '{"1":2,"2":0,"b":1}'),
        ("[1.0,1e2,9007199254740993,1e21,1e-7,0.000001,-0,1e400]", "[1,100,9007199254740992,1e+21,1e-7,0.000001,0,null]"),
        ("1e400", "null"),
        (r'"\u00e9\/\ud800\u0007"', r'"é/\ud800\u0007"'),
        ('"\u2028\x7f😀"', '"\u2028\x7f😀"'),
        ("false", "false"),
        ('""', '""'),
        ("0", "0"),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ],
)
def test_the_state_comes_back_in_its_canonical_text(agent: Agent, subject: str, given: str, kept: str) -> None:
    body = f'{{"subject_id":"{subject}","kind":"cursor","ttl_seconds":60,"state":{given}}}'
    told = ask(agent.world, "POST", "/v1/checkpoints", agent.secret, body.encode())
    assert told.data["state_hash"] == hashlib.sha256(kept.encode()).hexdigest()
    assert f'"state":{kept},"state_hash":"{told.data["state_hash"]}"'.encode() in agent.find(subject, "cursor").raw


def test_bytes_that_are_no_utf8_become_the_replacement_character_and_one_mark_is_dropped(agent: Agent, subject: str) -> None:
    body = b'\xef\xbb\xbf{"subject_id":"%s","kind":"cursor","ttl_seconds":60,"state":"\xff"}' % subject.encode()
    assert ask(agent.world, "POST", "/v1/checkpoints", agent.secret, body).status == 201
    assert agent.find(subject, "cursor").data["state"] == "\ufffd"


def test_a_large_body_is_looked_at_like_a_small_one(agent: Agent, subject: str) -> None:
    text = "é" * 31_999
    assert agent.save(subject, text, padding="x" * 100_000).status == 201
    assert agent.find(subject).data["state"] == text
    assert agent.save(subject, text + "é").error == (400, "VALIDATION_ERROR", "Checkpoint state exceeds 64000 bytes.")


@pytest.mark.parametrize("text", ["a/b", " spaces ", "😀", "tab\tline\n", "zero\u200bwidth", "a+b&c=d%20", "#?", "名前", "x" * 200])
def test_a_subject_is_echoed_and_found_as_it_was_given(agent: Agent, text: str) -> None:
    assert agent.save(text).data["subject_id"] == text
    assert agent.find(text).data["subject_id"] == text


# -- what is expected to be there ---------------------------------------------------------------------------------------


def test_a_save_that_expects_another_state_is_409_and_changes_nothing(agent: Agent, subject: str) -> None:
    first = agent.save(subject, {"n": 1}).data["state_hash"]
    second = agent.save(subject, {"n": 2}, expected_state_hash=first)
    assert second.status == 200
    for stale in (
        agent.save(subject, {"n": 3}, expected_state_hash=first),
        agent.save(subject, {"n": 3}, {"if_match": f'"{first}"'}),
        agent.save(subject, {"n": 3}, {"if_match": first}),
    ):
        assert stale.error == (409, "CONFLICT", "Write conflicted with an existing record.")
        assert stale.body["meta"]["actual_state_hash"] == second.data["state_hash"]
        assert is_enveloped(stale)
    assert agent.find(subject).data["state"] == {"n": 2}
    assert agent.save(subject, {"n": 3}, {"if_match": f'"{second.data["state_hash"]}"'}).status == 200


def test_where_nothing_is_visible_no_expectation_holds(shared: World, agent: Agent, subject: str) -> None:
    absent = agent.save(subject, expected_state_hash="0" * 64)
    assert (absent.status, absent.body["meta"]["actual_state_hash"]) == (409, None)
    saved = agent.save(subject, ttl_seconds=60).data["state_hash"]
    shared.passed_us = 61_000_000
    expired = agent.save(subject, expected_state_hash=saved)
    assert (expired.status, expired.body["meta"]["actual_state_hash"]) == (409, None)


def test_of_many_who_expect_the_same_state_one_wins(agent: Agent, subject: str) -> None:
    first = agent.save(subject, {"n": "first"}).data["state_hash"]
    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(lambda number: agent.save(subject, {"n": number}, expected_state_hash=first), range(16)))
    assert sorted(each.status for each in told) == [200] + [409] * 15


def test_the_position_of_a_save_is_told_to_whoever_asks(agent: Agent, subject: str) -> None:
    assert "session-streams-position" not in agent.save(subject).headers
    asked = agent.save(subject, headers={"session_streams_position": "*"})
    assert re.fullmatch(r"[A-Za-z0-9._-]+:[0-9]+:[0-9]+", asked.headers["session-streams-position"])


# -- reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("", "subject_id"), ("kind=cursor", "subject_id"), ("subject_id=&kind=cursor", "subject_id"), ("subject_id=a", "kind"),
        ("subject_id=a&kind=", "kind"), ("subject_id&kind=cursor", "subject_id"), ("Subject_id=a&kind=cursor", "subject_id"),
        ("subject_id=&subject_id=a&kind=cursor", "subject_id"), ("agent_id=owner", "subject_id"),
    ],
)  # fmt: skip
def test_a_lookup_needs_a_subject_and_then_a_kind(agent: Agent, query: str, missing: str) -> None:
    told = ask(agent.world, "GET", f"/v1/checkpoints?{query}", agent.secret)
    assert told.error == (400, "VALIDATION_ERROR", f'Query "{missing}" is required.')


@pytest.mark.parametrize(
    "query",
    ["subject_id={}&kind=bogus", "subject_id=" + "x" * 201 + "&kind=cursor", "subject_id=%00&kind=cursor",
     "subject_id={}&kind=task_state&agent_id=", "subject_id={}&kind=task_state&agent_id=owner",
     "subject_id=%ff&kind=cursor", "subject_id=%zz&kind=cursor", "subject_id=%20&kind=cursor",
     "subject_id=nobody&subject_id={}&kind=task_state", "subject_id={}&kind=Task_state", "subject_id={}&kind=task_state/../cursor"],
)  # fmt: skip
def test_other_values_are_not_looked_at_but_simply_not_found(agent: Agent, subject: str, query: str) -> None:
    agent.save(subject)
    assert ask(agent.world, "GET", f"/v1/checkpoints?{query.format(subject)}", agent.secret).error == ABSENT


def test_the_first_of_a_parameter_wins_unknown_ones_are_ignored_and_plus_is_a_space(agent: Agent) -> None:
    agent.save("two words")
    for query in (
        "subject_id=two+words&kind=task_state&limit=x&=&&other",
        "subject_id=two%20words&kind=task_state&kind=bogus&subject_id=nobody",
        f"kind=task_state&subject%5Fid=two+words&agent_id={agent.id}",
    ):
        assert ask(agent.world, "GET", f"/v1/checkpoints?{query}", agent.secret).data["subject_id"] == "two words"


def test_each_kind_is_a_checkpoint_of_its_own(agent: Agent, subject: str) -> None:
    ids = {kind: agent.save(subject, {"kind": kind}, kind=kind).data["checkpoint_id"] for kind in KINDS}
    assert len(set(ids.values())) == 4
    for kind, checkpoint_id in ids.items():
        assert agent.find(subject, kind).data["state"] == {"kind": kind}
        assert agent.get(checkpoint_id).data["kind"] == kind


# -- who sees what ------------------------------------------------------------------------------------------------------


def test_keys_of_one_agent_share_its_checkpoints(shared: World, subject: str) -> None:
    agent_id = "agent_" + "5" * 32
    one, other = Agent(shared, agent_id=agent_id), Agent(shared, READ, WRITE, agent_id=agent_id)
    saved = one.save(subject).data
    assert saved["agent_id"] == agent_id
    assert other.find(subject).data["checkpoint_id"] == saved["checkpoint_id"]
    assert other.save(subject, agent_id=agent_id).status == 200
    assert one.delete(saved["checkpoint_id"]).status == 200


@pytest.mark.parametrize("scopes", [(READ, WRITE), ("admin",)])
@pytest.mark.parametrize("workspace_id", [WORKSPACE, OTHER_WORKSPACE])
def test_nobody_else_learns_of_a_checkpoint(shared: World, agent: Agent, subject: str, workspace_id: str, scopes: tuple[str, ...]) -> None:
    saved = agent.save(subject, {"mine": True}).data
    other = Agent(shared, *scopes, workspace_id=workspace_id)
    for path in ("", "/history", "/history?limit=1"):
        assert other.get(saved["checkpoint_id"], path).error == ABSENT
    assert other.find(subject).error == ABSENT
    assert other.find(subject, more=f"&agent_id={agent.id}").error == ABSENT
    assert other.delete(saved["checkpoint_id"]).error == ABSENT
    assert other.save(subject, agent_id=agent.id).error == ABSENT
    own = other.save(subject, {"other": True})
    assert own.status == 201
    assert own.data["checkpoint_id"] != saved["checkpoint_id"]
    assert agent.find(subject).data["state"] == {"mine": True}


def test_an_agent_of_another_workspace_with_the_same_id_is_another(shared: World, subject: str) -> None:
    agent_id = "agent_" + "6" * 32
    one, other = Agent(shared, agent_id=agent_id), Agent(shared, agent_id=agent_id, workspace_id=OTHER_WORKSPACE)
    saved = one.save(subject).data["checkpoint_id"]
    assert other.find(subject).error == ABSENT
    assert other.get(saved).error == ABSENT
    assert other.delete(saved).error == ABSENT
    assert other.save(subject).status == 201


def test_a_key_of_one_subject_saves_reads_and_deletes_that_one_only(shared: World, subject: str) -> None:
    agent_id = "agent_" + "7" * 32
    pseudonym = shared.keyring.pseudonym(WORKSPACE, "subject", subject, create=True)
    free, restricted = Agent(shared, agent_id=agent_id), Agent(shared, agent_id=agent_id, subject_id=pseudonym)
    theirs = free.save("somebody else").data["checkpoint_id"]
    for told in (
        restricted.save("somebody else"),
        restricted.find("somebody else"),
        restricted.get(theirs),
        restricted.get(theirs, "/history"),
        restricted.delete(theirs),
        restricted.save("nobody known"),
    ):
        assert told.error == ABSENT
    saved = restricted.save(subject)
    assert saved.status == 201
    assert restricted.find(subject).status == 200
    assert free.get(saved.data["checkpoint_id"]).status == 200
    assert restricted.delete(saved.data["checkpoint_id"]).status == 200


def test_an_erased_subject_is_not_found(shared: World, agent: Agent, subject: str) -> None:
    saved = agent.save(subject).data["checkpoint_id"]
    shared.agents.forget(subject)
    for told in (agent.find(subject), agent.get(saved), agent.get(saved, "/history"), agent.delete(saved)):
        assert told.error == ABSENT


# -- history ------------------------------------------------------------------------------------------------------------


def test_a_history_holds_the_versions_newest_first(agent: Agent, subject: str) -> None:
    saved = [agent.save(subject, {"n": number}, run_id=f"run-{number}").data for number in range(1, 4)]
    told = agent.get(saved[0]["checkpoint_id"], "/history")
    assert told.status == 200
    assert is_enveloped(told)
    assert list(told.data) == ["checkpoint_id", "versions", "next_before"]
    versions = told.data["versions"]
    assert [each["version"] for each in versions] == [3, 2, 1]
    assert [each["state"] for each in versions] == [{"n": 3}, {"n": 2}, {"n": 1}]
    assert [each["state_hash"] for each in versions] == [each["state_hash"] for each in reversed(saved)]
    assert told.data["next_before"] is None
    newest = dict(versions[0])
    assert newest.pop("version") == 3
    assert newest == agent.find(subject).data, "a version is told like the checkpoint that it was"


def test_a_history_is_read_in_pages(agent: Agent, subject: str) -> None:
    saved = [agent.save(subject, {"n": number}).data for number in range(1, 6)]
    seen, before = [], ""
    while True:
        page = agent.get(saved[0]["checkpoint_id"], f"/history?limit=2{before}").data
        seen += [each["version"] for each in page["versions"]]
        if page["next_before"] is None:
            break
        before = f"&before={page['next_before']}"
    assert seen == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "name", "low", "high"),
    [*[(f"limit={value}", "limit", 1, 100) for value in ("0", "101", "-1", "x", "", "1.0", "01", "+1")],
     *[(f"before={value}", "before", 1, 10**9) for value in ("0", "x", "", "9" * 16, "9" * 400)]],
)  # fmt: skip
def test_pages_have_bounds(agent: Agent, subject: str, query: str, name: str, low: int, high: int) -> None:
    saved = agent.save(subject).data["checkpoint_id"]
    told = agent.get(saved, f"/history?{query}")
    assert told.error == (400, "VALIDATION_ERROR", f'Query "{name}" must be an integer between {low} and {high}.')


def test_a_version_that_has_expired_has_left_the_history(shared: World, agent: Agent, subject: str) -> None:
    saved = agent.save(subject, {"n": 1}, ttl_seconds=60).data["checkpoint_id"]
    agent.save(subject, {"n": 2}, ttl_seconds=600)
    shared.passed_us = 61_000_000
    assert [each["state"] for each in agent.get(saved, "/history").data["versions"]] == [{"n": 2}]
    shared.passed_us = 601_000_000
    assert agent.get(saved, "/history").error == ABSENT


def test_a_large_history_is_held_until_it_is_taken(shared: World, agent: Agent, subject: str) -> None:
    saved = [agent.save(subject, "x" * 63_000).data["checkpoint_id"] for _ in range(20)]
    told = agent.get(saved[0], "/history?limit=100")
    assert len(told.raw) > 1_000_000
    # The last byte is with the caller before the gateway has heard so.
    eventually(lambda: shared.gateway.opened.taken == 0)
    taken = shared.gateway.opened.limit
    shared.gateway.opened.take(taken)
    try:
        refused = agent.get(saved[0], "/history?limit=100")
    finally:
        shared.gateway.opened.give_back(taken)
    assert refused.error == (503, "UNAVAILABLE", "Storage is unavailable.")
