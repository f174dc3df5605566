"""What a gateway says it supports: to whoever has a key, on which evidence, and `unobserved` for all the rest."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from msgspec import structs

from connectors.edge.principal import SCOPES
from connectors.gateway import support
from connectors.support.capabilities import CAPABILITIES, REPLACEMENT
from connectors.support.statement import ExactTuple
from streams.custody.signing import SigningKey
from tests.support.gateway import World
from tests.support.journeys import LANE, SupportFolder

PATH = "/v1/support/capabilities"


@pytest.fixture
def folder(shared: World) -> Iterator[SupportFolder]:
    made = SupportFolder(shared.settings.support_path)
    yield made
    made.statements.unlink(missing_ok=True)
    made.trusted.unlink(missing_ok=True)


@pytest.fixture
def lane(shared: World) -> ExactTuple:
    return structs.replace(LANE, release=shared.gateway.support.release)


def observe(folder: SupportFolder, lane: ExactTuple, capability: str = REPLACEMENT, **more: Any) -> str:
    return folder.observe(capability, lane, noon=datetime.now(UTC), **more)


def rows(client: httpx.Client, **query: str | None) -> dict[str, dict[str, Any]]:
    response = client.get(PATH, params={name: value for name, value in query.items() if value is not None})
    assert response.status_code == 200, response.text
    return {row["capability"]: row for row in response.json()["capabilities"]}


def asked(lane: ExactTuple) -> dict[str, str | None]:
    return structs.asdict(lane)


def test_whoever_has_a_key_may_ask_whatever_it_is_for(shared: World) -> None:
    for scope in SCOPES:
        assert shared.client(scope).get(PATH).status_code == 200


def test_every_capability_reads_unobserved_where_nothing_was_proven(client: httpx.Client) -> None:
    told = rows(client)
    for name, capability in CAPABILITIES.items():
        row = told[name]
        assert (row["posture"], row["evidence"], row["tuple"], row["journey"]) == ("unobserved", None, None, capability.journey)
        assert row["readiness"] == {"ready": False, "missing": ["evidence_missing"]}


def test_what_is_not_offered_is_told_with_its_refusal(client: httpx.Client) -> None:
    told = rows(client)
    assert (told["handoff"]["posture"], told["handoff"]["refusal"]) == ("not_offered", "runtime.handoff_unavailable")
    assert told["unsupported_steering"]["refusal"] == "runtime.steering_unavailable"
    assert (told["capsule_import"]["declared"], told["capsule_import"]["hosting"]) == ("alpha", "hosted")


def test_a_proven_lane_is_told_with_journey_release_time_and_digest(
    client: httpx.Client, shared: World, folder: SupportFolder, lane: ExactTuple
) -> None:
    digest = observe(folder, lane)
    row = rows(client, **asked(lane))[REPLACEMENT]
    assert (row["posture"], row["readiness"], row["tuple"]) == ("supported", {"ready": True, "missing": []}, asked(lane))
    evidence = row["evidence"]
    assert (evidence["journey"], evidence["release"], evidence["statement"]) == ("post-ready-replacement", lane.release, digest)
    assert evidence["key_id"] == folder.key.public.key_id
    assert row["latest_proven_release"] == lane.release
    assert rows(client)[REPLACEMENT]["tuple"] == asked(lane)
    found = shared.gateway.support.verification_for(lane)
    assert found is not None
    assert found[0] == digest


def test_a_lane_that_nobody_looked_at_is_unobserved(client: httpx.Client, folder: SupportFolder, lane: ExactTuple) -> None:
    observe(folder, lane)
    for coordinate in ("driver", "sandbox_provider_revision", "policy", "execution_target", "harness_revision", "release"):
        row = rows(client, **{**asked(lane), coordinate: "another"})[REPLACEMENT]
        assert (row["posture"], row["evidence"]) == ("unobserved", None)
        assert "evidence_missing" in row["readiness"]["missing"]


def test_the_release_that_is_asked_about_is_by_default_the_one_that_answers(
    client: httpx.Client, folder: SupportFolder, lane: ExactTuple
) -> None:
    observe(folder, lane)
    assert rows(client, **{**asked(lane), "release": None})[REPLACEMENT]["posture"] == "supported"


def test_a_feature_list_beside_the_evidence_changes_nothing(client: httpx.Client, folder: SupportFolder, lane: ExactTuple) -> None:
    before = rows(client, **asked(lane))
    observe(folder, lane, key=SigningKey.generate())
    with folder.statements.open("ab") as file:
        file.write(b'{"capability": "post_ready_replacement", "posture": "supported"}\n')
    assert rows(client, **asked(lane)) == before


def test_one_capability_may_be_asked_for(client: httpx.Client) -> None:
    assert list(rows(client, capability="steering")) == ["steering"]
    assert list(rows(client, capability="handoff")) == ["handoff"]


def test_a_capability_that_there_is_not_is_refused_and_the_others_named(client: httpx.Client) -> None:
    response = client.get(PATH, params={"capability": "telepathy"})
    assert (response.status_code, response.json()["code"]) == (422, "request.invalid")
    assert "steering" in response.json()["detail"]


def test_a_part_of_a_tuple_is_refused(client: httpx.Client) -> None:
    for query in ({"driver": "d"}, {"release": "1"}, {"harness_revision": "h"}):
        response = client.get(PATH, params=query)
        assert (response.status_code, response.json()["code"]) == (422, "request.invalid")


def test_an_answer_is_bounded_and_says_so(
    client: httpx.Client, folder: SupportFolder, lane: ExactTuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "ROWS_MAX", 3)
    observe(folder, lane)
    told = client.get(PATH).json()
    assert (len(told["capabilities"]), told["complete"]) == (3, False)
