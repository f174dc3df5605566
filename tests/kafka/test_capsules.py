"""Capsules on a real broker: made by one gateway, imported by another, by several at once, exported with their session."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from session_streams.export import verify
from tests.conftest import Broker
from tests.support.capsule_world import Idle, compatible, idle_session
from tests.support.capsules import Document
from tests.support.journeys import Journey, journey_of
from tests.support.qualifying import builtins, proven, qualified
from tests.support.roles import Roles, installation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def roles(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("capsules")) as made:
        yield made


@pytest.fixture(scope="module")
def client(roles: Roles) -> Iterator[httpx.Client]:
    with reading_its_own_writes(roles.url, roles.key()) as made:
        yield made


@pytest.fixture
def journey(request: pytest.FixtureRequest) -> Journey:
    return journey_of(request.config.getoption("--support"), request.node.nodeid)


@pytest.fixture(scope="module")
def target(roles: Roles) -> Document:
    """One that the catalogue of this installation has qualified."""
    proven(roles.settings)
    return builtins(qualified(roles.settings))


def reading_its_own_writes(url: str, secret: str) -> httpx.Client:
    """Names in each request of a session the position of the last change that was answered."""
    positions: dict[str, str] = {}

    def session_of(url: httpx.URL) -> str:
        return url.path.removeprefix("/v1/sessions/").partition("/")[0]

    def send(request: httpx.Request) -> None:
        position = positions.get(session_of(request.url))
        if position is not None:
            request.headers["session-streams-position"] = position

    def received(response: httpx.Response) -> None:
        position = response.headers.get("session-streams-position")
        if position is not None:
            name = session_of(response.request.url) or (response.read() and response.json().get("session_id", ""))
            positions[str(name)] = position

    return httpx.Client(
        base_url=url, headers={"authorization": f"Bearer {secret}"}, timeout=20, event_hooks={"request": [send], "response": [received]}
    )


def test_a_session_turn_ends_in_a_capsule_that_another_gateway_imports(
    roles: Roles, client: httpx.Client, target: Document, journey: Journey
) -> None:
    with journey("capsule_import") as observed, roles.another_gateway() as url:
        idle = idle_session(client, subject="mia")
        observed.session_id = idle.session_id
        made = idle.created(compatible_importers=[compatible(target)])
        body = idle.import_of(made["transfer"], target=target)
        with httpx.Client(base_url=url, headers=client.headers, timeout=20) as other:
            # Nobody tells it of a position: a capsule that was answered is there.
            told = idle.imports(body, client=other)
            observed.position = told.headers["session-streams-position"]
        assert told.json()["outcome"] == "imported", told.text
        assert idle.imports(body).json() == told.json()
        assert client.get(f"{idle.path}/imports/{told.json()['import_id']}").json() == told.json()
        types = _check_export(client, idle)
        assert types.count("capsule.imported") == 1
        assert types[-1] == "capsule.decided"


def _check_export(client: httpx.Client, idle: Idle) -> list[str]:
    """The types of its events, once the whole of it is verified."""
    text = client.get(f"/v1/sessions/{idle.session_id}/export").content
    assert verify(text.splitlines(keepends=True)).ok
    return [json.loads(line)["type"] for line in text.splitlines() if json.loads(line)["kind"] == "event"]


def test_the_same_key_is_answered_the_same_by_whichever_gateway(roles: Roles, client: httpx.Client, target: Document) -> None:
    idle = idle_session(client)
    made = idle.created(compatible_importers=[compatible(target)])
    body = idle.import_of(made["transfer"], target=target)
    refused = idle.import_of({**made["transfer"], "format": "other"}, target=target)
    with roles.another_gateway() as url, httpx.Client(base_url=url, headers=client.headers, timeout=20) as other:
        for number, each in enumerate((body, refused)):
            headers = {"idempotency_key": f"{idle.session_id}-{number}"}
            first, again = idle.imports(each, **headers), idle.imports(each, client=other, **headers)
            assert (again.status_code, again.json()) == (200, first.json())
            assert again.headers["session-streams-repeated"] == "true"


def test_imports_at_once_are_one_custody(client: httpx.Client, target: Document) -> None:
    idle = idle_session(client)
    made = idle.created(compatible_importers=[compatible(target)])
    body = idle.import_of(made["transfer"], target=target)
    with ThreadPoolExecutor(4) as pool:
        told = [each.json() for each in pool.map(lambda _: idle.imports(body), range(4))]
    assert {each["outcome"] for each in told} == {"imported"}
    assert len({json.dumps(each, sort_keys=True) for each in told}) == 1
    assert _check_export(client, idle).count("capsule.imported") == 1
