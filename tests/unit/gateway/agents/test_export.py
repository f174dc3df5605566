"""All that an agent keeps of a subject in one answer: additive to the contract, private like everything else there (design 06)."""

from typing import Any

import httpx

from tests.support.gateway import World

KINDS = ["task_state", "conversation", "workflow", "cursor"]


def save(client: httpx.Client, subject: str, kind: str, state: Any) -> str:
    body = {"subject_id": subject, "kind": kind, "state": state, "ttl_seconds": 600}
    answer = client.post("/v1/checkpoints", json=body)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["data"]["checkpoint_id"])


def exported(client: httpx.Client, subject: str) -> dict[str, Any]:
    answer = client.get("/v1/checkpoints/export", params={"subject_id": subject})
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


def test_every_kind_and_version_is_in_it_newest_first(shared: World) -> None:
    client = shared.client()
    ids = {kind: save(client, "export-1", kind, {"step": 1}) for kind in KINDS}
    save(client, "export-1", "cursor", {"step": 2})
    data = exported(client, "export-1")
    assert {row["kind"]: row["checkpoint_id"] for row in data["checkpoints"]} == ids
    states = {row["kind"]: [version["state"] for version in row["versions"]] for row in data["checkpoints"]}
    assert states == {**{kind: [{"step": 1}] for kind in KINDS}, "cursor": [{"step": 2}, {"step": 1}]}


def test_another_agents_states_and_another_subjects_are_not(shared: World) -> None:
    client, other = shared.client(), shared.client()
    save(other, "export-2", "cursor", "not yours")
    save(client, "export-3", "cursor", "another person's")
    assert exported(client, "export-2")["checkpoints"] == []
    assert exported(client, "nobody at all")["checkpoints"] == []


def test_what_is_erased_is_not(shared: World) -> None:
    client = shared.client()
    save(client, "export-4", "cursor", "gone")
    shared.agents.forget("export-4")
    assert exported(client, "export-4")["checkpoints"] == []


def test_a_subject_is_named_and_the_scope_is_that_of_reads(shared: World) -> None:
    assert shared.client().get("/v1/checkpoints/export").status_code == 400
    assert shared.client("agent-checkpoints:write").get("/v1/checkpoints/export?subject_id=x").status_code == 403


def test_other_methods_there_are_those_of_an_id_that_is_none(shared: World) -> None:
    client = shared.client()
    assert client.post("/v1/checkpoints/export").status_code == 405
