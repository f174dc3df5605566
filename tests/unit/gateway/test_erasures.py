"""Erasures over HTTP: who may ask for which, that asking twice is asking once, and what is told of how one goes."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from connectors.edge.erased import Erased
from streams.errors import BrokerUnavailable, KeyringUnavailable, NotOwner
from streams.log.retention import COMPLETE, DESTROYED, ENFORCED
from tests.support.commands import new_id
from tests.support.gateway import OTHER_WORKSPACE, World, key, message, new_session, post

ABSENT = "0" * 32


def created(client: httpx.Client, subject: str | None = None, text: str = "hello") -> tuple[str, str]:
    """A session with one sealed event, and its subject's pseudonym."""
    made = post(client, "/v1/sessions", {"subject": subject or new_id("customer")}, status=201)
    post(client, f"/v1/sessions/{made['session_id']}/events", message(text))
    return made["session_id"], made["subject_id"]


def erase(client: httpx.Client, subject: str, **headers: str) -> httpx.Response:
    given = {**key(), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post(f"/v1/subjects/{quote(subject, safe='')}/erasures", json={}, headers=given)


def delete(client: httpx.Client, session: str) -> httpx.Response:
    return client.delete(f"/v1/sessions/{session}", headers=key())


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def shown(client: httpx.Client, erasure_id: str) -> Any:
    response = client.get(f"/v1/erasures/{erasure_id}")
    assert response.status_code == 200, response.text
    return response.json()


class TestAsking:
    def test_a_person_is_erased_under_the_pseudonym(self, shared: World, client: httpx.Client) -> None:
        outside = f"mia-{new_id('c')}@example.com"
        _, subject = created(client, outside)
        response = erase(client, outside)
        told = response.json()
        assert response.status_code == 202
        assert (told["status"], told["scope"]) == ("accepted", {"kind": "subject", "id": subject})
        assert outside not in response.text
        assert told["position"].startswith("workspaces.commands:0:")
        row = shown(client, told["erasure_id"])
        assert (row["status"], row["scope"], row["accepted_at"]) == ("accepted", told["scope"], told["accepted_at"])
        assert (row["destroyed_at"], row["enforced_at"], row["complete_at"]) == (None, None, None)

    @pytest.mark.parametrize("outside", ["a/b", "jo@example.com", "Zoë Ødegård 東", "100%", "x/erasures", "..%2f", "?q=#"])
    def test_an_outside_id_may_hold_anything(self, client: httpx.Client, outside: str) -> None:
        outside = f"{outside}{new_id('c')}/{outside}"
        _, subject = created(client, outside)
        response = erase(client, outside)
        assert (response.status_code, response.json()["scope"]["id"]) == (202, subject)

    def test_a_session_is_erased(self, client: httpx.Client) -> None:
        session, _ = created(client)
        response = delete(client, session)
        assert response.status_code == 202
        assert response.json()["scope"] == {"kind": "session", "id": session}

    def test_asking_twice_is_asking_once(self, shared: World, client: httpx.Client) -> None:
        session, subject = created(client)
        for ask, argument in ((erase, subject), (delete, session)):
            first, again = ask(client, argument), ask(client, argument)
            assert (first.status_code, again.status_code) == (202, 200)
            assert {**again.json(), "position": ""} == {**first.json(), "position": ""}

    def test_asking_again_tells_how_far_it_is(self, shared: World, client: httpx.Client) -> None:
        _, subject = created(client)
        erasure = erase(client, subject).json()["erasure_id"]
        for state in (DESTROYED, ENFORCED, COMPLETE):
            shared.custodian.goes_on(erasure, state)
            again = erase(client, subject)
            assert (again.status_code, again.json()["status"]) == (200, state)

    def test_once_the_mapping_is_forgotten_only_the_pseudonym_leads_to_the_erasure(self, shared: World, client: httpx.Client) -> None:
        outside = new_id("customer")
        _, subject = created(client, outside)
        erasure = erase(client, outside).json()["erasure_id"]
        shared.custodian.goes_on(erasure)
        assert code_of(erase(client, outside)) == (404, "resource.not_found")
        assert erase(client, subject).json()["erasure_id"] == erasure

    def test_a_repeated_request_is_led_by_its_key_also_where_the_person_has_returned(self, shared: World, client: httpx.Client) -> None:
        outside = new_id("customer")
        created(client, outside)
        once = new_id("key")
        erasure = erase(client, outside, idempotency_key=once).json()["erasure_id"]
        shared.custodian.goes_on(erasure)
        assert erase(client, outside, idempotency_key=once).json()["erasure_id"] == erasure
        _, returned = created(client, outside)
        assert erase(client, outside, idempotency_key=once).json()["erasure_id"] == erasure
        assert erase(client, outside).json()["scope"]["id"] == returned


class TestNothingThere:
    @pytest.mark.parametrize("named", ["nobody", "subj_" + ABSENT, "subj_" + "0" * 31, "%", "a" * 513])
    def test_who_is_not_known_is_not_found(self, client: httpx.Client, named: str) -> None:
        response = erase(client, named)
        assert code_of(response) == (404, "resource.not_found")
        assert response.json()["detail"] == "no such subject"

    @pytest.mark.parametrize("path", ["/v1/subjects//erasures", "/v1/subjects/a/b/erasures", "/v1/subjects/%ff/erasures"])
    def test_what_names_nobody_is_not_found(self, client: httpx.Client, path: str) -> None:
        created(client, "a/b") if path.endswith("a/b/erasures") else None
        assert client.post(path, json={}, headers=key()).status_code == 404

    def test_another_workspace_sees_neither_person_nor_session_nor_erasure(self, shared: World, client: httpx.Client) -> None:
        outside = new_id("customer")
        session, subject = created(client, outside)
        erasure = erase(client, subject).json()["erasure_id"]
        other = shared.client(workspace_id=OTHER_WORKSPACE)
        for response in (erase(other, outside), erase(other, subject), delete(other, session), other.get(f"/v1/erasures/{erasure}")):
            assert code_of(response) == (404, "resource.not_found")

    @pytest.mark.parametrize("erasure", ["ers_" + ABSENT, "ers_1", "sess_" + ABSENT])
    def test_an_erasure_that_is_none_is_not_found(self, client: httpx.Client, erasure: str) -> None:
        assert code_of(client.get(f"/v1/erasures/{erasure}")) == (404, "resource.not_found")

    def test_a_restricted_key_erases_and_sees_its_own_subject_only(self, shared: World, client: httpx.Client) -> None:
        hers, subject = created(client)
        his, other = created(client)
        his_session, theirs = delete(client, his).json()["erasure_id"], erase(client, other).json()["erasure_id"]
        restricted = shared.client("erasure:write", "sessions:read", subject_id=subject)
        for response in (
            erase(restricted, other), delete(restricted, his), restricted.get(f"/v1/erasures/{theirs}"),
            restricted.get(f"/v1/erasures/{his_session}"),
        ):  # fmt: skip
            assert code_of(response) == (404, "resource.not_found")
        hers_session = delete(restricted, hers).json()["erasure_id"]
        assert shown(restricted, hers_session)["scope"]["id"] == hers
        mine = erase(restricted, subject).json()["erasure_id"]
        assert shown(restricted, mine)["scope"]["id"] == subject
        shared.custodian.goes_on(mine, DESTROYED)
        assert code_of(restricted.get(f"/v1/erasures/{mine}")) == (401, "auth.revoked")

    def test_a_body_that_says_more_is_refused(self, client: httpx.Client) -> None:
        _, subject = created(client)
        response = client.post(f"/v1/subjects/{subject}/erasures", json={"reason": "x"}, headers=key())
        assert code_of(response) == (422, "request.invalid")

    @pytest.mark.parametrize("method", ["POST", "DELETE"])
    def test_without_an_idempotency_key_nothing_is_erased(self, shared: World, client: httpx.Client, method: str) -> None:
        session, subject = created(client)
        asked = len(shared.custodian.commands)
        path = f"/v1/subjects/{subject}/erasures" if method == "POST" else f"/v1/sessions/{session}"
        assert code_of(client.request(method, path)) == (400, "request.malformed")
        assert len(shared.custodian.commands) == asked


class TestFaults:
    def test_an_outcome_that_is_lost_is_unknown_and_the_same_request_finds_it(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, subject = created(client)
        shared.custodian.undeliverable = BrokerUnavailable("away")
        try:
            unknown = erase(client, subject)
        finally:
            shared.custodian.undeliverable = None
        assert code_of(unknown) == (503, "service.outcome_unknown")
        assert int(unknown.headers["retry-after"]) >= 1
        asked = erase(client, subject).json()
        assert asked["erasure_id"] in unknown.json()["detail"]

    def test_while_the_owner_is_away_a_new_erasure_is_accepted_and_none_is_told_of(self, shared: World, client: httpx.Client) -> None:
        _, subject = created(client)
        shared.custodian.failure = NotOwner("away")
        try:
            first, again = erase(client, subject), erase(client, subject)
            read = client.get(f"/v1/erasures/{first.json()['erasure_id']}")
        finally:
            shared.custodian.failure = None
        assert first.status_code == 202
        assert code_of(again) == code_of(read) == (503, "service.not_owner")

    def test_without_the_keyring_nobody_is_erased(self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(*_: object, **__: object) -> None:
            raise KeyringUnavailable("away")

        outside = new_id("customer")
        created(client, outside)
        asked = len(shared.custodian.commands)
        monkeypatch.setattr(shared.keyring, "pseudonym", away)
        assert code_of(erase(client, outside)) == (503, "service.keyring_unavailable")
        assert len(shared.custodian.commands) == asked

    def test_a_request_that_is_decided_too_late_comes_to_nothing(
        self, shared: World, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, subject = created(client)
        monkeypatch.setattr(shared.custodian, "_clock", lambda: 2**60)
        assert code_of(erase(client, subject)) == (503, "request.expired")
        monkeypatch.undo()
        assert erase(client, subject).status_code == 202


class TestTelling:
    def test_progress_names_who_is_awaited_and_receipts_come_with_each_step(self, shared: World, client: httpx.Client) -> None:
        _, subject = created(client)
        erasure = erase(client, subject).json()["erasure_id"]
        accepted = shown(client, erasure)
        assert [each["holder"] for each in accepted["awaited"]] == ["custodian/0"]
        assert len(accepted["receipts"]) == 1
        shared.custodian.goes_on(erasure, ENFORCED)
        assert len(shown(client, erasure)["receipts"]) == 2
        shared.custodian.goes_on(erasure)
        done = shown(client, erasure)
        assert (done["status"], done["awaited"], len(done["receipts"])) == ("complete", [], 3)
        assert done["accepted_at"] <= done["destroyed_at"] <= done["enforced_at"] <= done["complete_at"]
        assert set(done["receipts"][0]) == {"payloadType", "payload", "signatures"}

    def test_an_outside_id_stands_in_no_answer_log_or_metric(
        self, shared: World, client: httpx.Client, capsys: pytest.CaptureFixture[str]
    ) -> None:
        outside = f"needle-{new_id('customer')}"
        created(client, outside)
        answers = [erase(client, outside)]
        shared.custodian.undeliverable = BrokerUnavailable("away")
        answers.append(erase(client, outside))
        shared.custodian.undeliverable = None
        for named in (f"{outside}-unknown", f"{outside}\x00", f"subj_{outside}"):
            answers.append(erase(client, named))
        crashed = shared.gateway.erasures
        shared.gateway.erasures = None  # type: ignore[assignment]
        try:
            answers.append(erase(client, outside))
        finally:
            shared.gateway.erasures = crashed
        assert [answer.status_code for answer in answers] == [202, 503, 404, 404, 404, 500]
        told = [answer.text + str(answer.headers) for answer in answers]
        told += [client.get("/metrics").text, *capsys.readouterr()]
        told.append(json.dumps([command.target_id for command in shared.custodian.commands]))
        assert all(outside not in each for each in told)


class TestWhatIsErased:
    def test_a_new_session_of_who_returns_is_somebody_elses(self, shared: World, client: httpx.Client) -> None:
        outside = new_id("customer")
        _, before = created(client, outside)
        shared.custodian.goes_on(erase(client, outside).json()["erasure_id"], DESTROYED)
        session, after = created(client, outside)
        assert before != after
        assert client.get(f"/v1/sessions/{session}/events").json()["events"][1]["content"] == {"text": "hello"}

    @pytest.mark.parametrize("scope", ["subject", "session"])
    def test_writes_are_refused_with_content_and_without(self, shared: World, client: httpx.Client, scope: str) -> None:
        session, subject = created(client)
        asked = erase(client, subject) if scope == "subject" else delete(client, session)
        shared.custodian.goes_on(asked.json()["erasure_id"], DESTROYED)
        path = f"/v1/sessions/{session}"
        for route, body in (("events", message()), ("events", {"type": "message.appended"}), ("threads", {}), ("close", {})):
            assert code_of(client.post(f"{path}/{route}", json=body, headers=key())) == (409, "content.erased")
        letter = {"source_kind": "claude-code", "reason": "malformed", "place": "1", "record": "ew=="}
        assert code_of(client.post(f"{path}/dead-letters", json=letter, headers=key())) == (409, "content.erased")

    def test_a_gateway_that_was_not_there_when_it_happened_asks_the_keyring(self, shared: World, client: httpx.Client) -> None:
        session, subject = created(client)
        restricted = shared.client(subject_id=subject)
        assert restricted.get("/v1/sessions").status_code == 200
        shared.custodian.goes_on(erase(client, subject).json()["erasure_id"], DESTROYED)
        shared.gateway.erased = Erased(shared.keyring)
        try:
            assert code_of(restricted.get("/v1/sessions")) == (401, "auth.revoked")
            shared.gateway.erased = Erased(shared.keyring)
            assert code_of(client.post(f"/v1/sessions/{session}/threads", json={}, headers=key())) == (409, "content.erased")
        finally:
            shared.gateway.erased = shared.erased


def test_a_session_without_a_subject_is_erased_like_any_other(shared: World, client: httpx.Client) -> None:
    session = new_session(client)
    post(client, f"/v1/sessions/{session}/events", message("secret"))
    shared.custodian.goes_on(delete(client, session).json()["erasure_id"], DESTROYED)
    events = client.get(f"/v1/sessions/{session}/events").json()["events"]
    assert [event.get("gap") for event in events] == [None, {"reason": "erased"}]
