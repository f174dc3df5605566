"""Sessions: created once, listed and read by who may see them, as far as they are projected."""

import httpx
import pytest

from streams.errors import ProjectionBehind
from tests.support.gateway import OTHER_WORKSPACE, WORKSPACE, World, key, message, new_session, post


def test_a_session_is_created_listed_and_read(client: httpx.Client) -> None:
    created = post(client, "/v1/sessions", {"subject": "ava_9", "metadata": {"k": "v"}}, status=201)
    policy = {"mode": "standard", "content_window_days": 30, "checkpoint_window_s": 2_592_000}
    assert (created["sequence"], created["origin"], created["policy"]) == (1, "live", policy)
    read = client.get(f"/v1/sessions/{created['session_id']}").json()
    assert read["workspace_id"] == WORKSPACE
    assert read["counts"] == {"session.created": 1}
    assert (read["status"], read["source"], read["position"]) == ("open", None, created["position"])
    assert created["session_id"] in [row["session_id"] for row in client.get("/v1/sessions?limit=500").json()["sessions"]]


def test_creating_again_under_the_same_key_gives_the_same_session(client: httpx.Client, shared: World) -> None:
    headers = key()
    answers = [client.post("/v1/sessions", json={"subject": "ava_9"}, headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["session-streams-repeated"] == "true"
    assert len(shared.log.events[answers[0].json()["session_id"]]) == 1


def test_another_principals_key_makes_another_session(client: httpx.Client, shared: World) -> None:
    headers = key()
    ids = {each.post("/v1/sessions", json={}, headers=headers).json()["session_id"] for each in (client, shared.client())}
    assert len(ids) == 2


def test_an_empty_body_stands_for_an_empty_object(client: httpx.Client) -> None:
    assert client.post("/v1/sessions", headers=key()).status_code == 201


def test_a_listing_goes_on_by_its_cursor(shared: World) -> None:
    client = shared.client(subject_id="subj_" + "7" * 32)
    made = [new_session(client) for _ in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = client.get(f"/v1/sessions?limit=2{cursor}").json()
        seen += [row["session_id"] for row in page["sessions"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert seen == made[::-1]


def test_an_importers_session_tells_how_far_its_source_was_taken_in(client: httpx.Client) -> None:
    session = new_session(client, origin="imported")
    attributes = {"source_kind": "tau-bench", "source_record_kind": "user", "source_index": 41, "source_digest": "sha256:" + "a" * 64}
    post(client, f"/v1/sessions/{session}/events", {"type": "source.recorded", "attributes": attributes, "content": {}})
    read = client.get(f"/v1/sessions/{session}").json()
    assert read["source"] == {"kind": "tau-bench", "index": 41, "digest": "sha256:" + "a" * 64}
    assert read["origin"] == "imported"


@pytest.fixture(scope="module")
def mia(client: httpx.Client) -> tuple[str, str]:
    created = post(client, "/v1/sessions", {"subject": "mia_li_3668"}, status=201)
    return created["session_id"], created["subject_id"]


@pytest.fixture(scope="module")
def restricted(shared: World, mia: tuple[str, str]) -> httpx.Client:
    return shared.client(subject_id=mia[1])


class TestAKeyRestrictedToASubject:
    def test_reads_sessions_of_that_subject(self, restricted: httpx.Client, mia: tuple[str, str]) -> None:
        assert restricted.get(f"/v1/sessions/{mia[0]}").status_code == 200
        assert restricted.get(f"/v1/sessions/{mia[0]}/events").status_code == 200

    def test_finds_no_other(self, client: httpx.Client, restricted: httpx.Client) -> None:
        for other in (new_session(client, subject="noah_1"), new_session(client)):
            assert restricted.get(f"/v1/sessions/{other}").status_code == 404
            assert restricted.get(f"/v1/sessions/{other}/events").status_code == 404
            post(restricted, f"/v1/sessions/{other}/events", message(), status=404)

    def test_lists_only_those(self, restricted: httpx.Client, mia: tuple[str, str]) -> None:
        assert {row["subject_id"] for row in restricted.get("/v1/sessions").json()["sessions"]} == {mia[1]}
        assert restricted.get(f"/v1/sessions?subject_id=subj_{'0' * 32}").json() == {"sessions": [], "cursor": None}

    def test_creates_sessions_of_that_subject_named_or_not(self, restricted: httpx.Client, mia: tuple[str, str]) -> None:
        for body in ({}, {"subject": "mia_li_3668"}):
            assert post(restricted, "/v1/sessions", body, status=201)["subject_id"] == mia[1]

    def test_creates_none_of_another_and_makes_no_pseudonym_for_it(self, restricted: httpx.Client, shared: World) -> None:
        assert post(restricted, "/v1/sessions", {"subject": "stranger_1"}, status=403)["code"] == "auth.subject"
        assert shared.keyring.pseudonym(WORKSPACE, "subject", "stranger_1", create=False) is None


def test_workspaces_do_not_see_each_others_sessions(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    stranger = shared.client(workspace_id=OTHER_WORKSPACE)
    assert session not in stranger.get("/v1/sessions").text


def test_a_position_given_to_a_read_is_handed_to_the_owner(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    client.get(f"/v1/sessions/{session}", headers={"session-streams-position": "sessions.commands:0:5"})
    assert str(shared.owners.positions[-1]) == "sessions.commands:0:5"


def test_a_read_that_is_not_far_enough_is_asked_to_come_again(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    shared.owners.failure = ProjectionBehind("behind", retry_after_s=2)
    try:
        response = client.get(f"/v1/sessions/{session}")
    finally:
        shared.owners.failure = None
    assert (response.status_code, response.json()["code"]) == (503, "service.projection_behind")
    assert int(response.headers["retry-after"]) == response.json()["retry_after"] >= 2


def test_a_gateway_that_does_not_know_a_sessions_policy_asks_the_owner_first(client: httpx.Client, shared: World) -> None:
    session = new_session(client)
    shared.gateway.facts = type(shared.gateway.facts)(10)
    shared.owners.failure = ProjectionBehind("behind")
    try:
        problem = post(client, f"/v1/sessions/{session}/events", message(), status=503)
    finally:
        shared.owners.failure = None
    assert problem["code"] == "service.projection_behind"
    post(client, f"/v1/sessions/{session}/events", message())
