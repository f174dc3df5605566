"""A workspace's policy, set by the command line and followed by a gateway: what it leaves in the log of later sessions."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.sources.direct import direct_transport
from connectors.sources.ingest import IngestReport, run_ingest
from connectors.sources.samples import FOLDER as SAMPLES
from session_streams import Client, Retries
from streams.settings import Settings
from tests.kafka.test_up import REPOSITORY, clean_environment
from tests.support.roles import WORKSPACE, Roles, running_roles
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
DAY_S = 86_400


@pytest.fixture
def roles(settings: Settings) -> Iterator[Roles]:
    with running_roles(settings) as running:
        yield running


@pytest.fixture
def client(roles: Roles) -> Iterator[Client]:
    with Client(roles.url, roles.key(), retries=Retries(total_s=30)) as made:
        yield made


def policy(settings: Settings, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "connectors.cli", "policy", *arguments, "--workspace", WORKSPACE],
        capture_output=True, text=True, cwd=REPOSITORY, env={**clean_environment(), **settings.environment()}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done


def in_force(client: Client) -> dict[str, Any]:
    shown: dict[str, Any] = client.request("GET", "/v1/workspace/policy").json()
    return shown


def test_a_policy_holds_for_sessions_created_after_it_and_not_for_those_before(client: Client, settings: Settings) -> None:
    message = {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": "hello"}}
    before = client.create_session(subject="mia_li_3668", metadata={"purpose": "test"})
    assert json.loads(policy(settings, "show", "--json").stdout)["source"] == "installation"

    told = json.loads(policy(settings, "set", "--mode", "zdr", "--checkpoint-window", str(DAY_S), "--json").stdout)
    assert (told["mode"], told["checkpoint_window_s"], told["content_window_days"]) == ("zdr", DAY_S, settings.content_window_days)
    assert told["effective_within_s"] == settings.lease_s
    eventually(lambda: in_force(client)["mode"] == "zdr", timeout_s=20)

    after = client.request("POST", "/v1/sessions", {"metadata": {"purpose": "test"}}).json()
    assert after["policy"] == {"mode": "zdr", "content_window_days": settings.content_window_days, "checkpoint_window_s": DAY_S}
    for session_id in (before.session_id, after["session_id"]):
        client.append(session_id, message)
    kept, dropped = (list(client.events(session_id)) for session_id in (before.session_id, after["session_id"]))
    assert [event.content for event in kept] == [{"purpose": "test"}, {"text": "hello"}]
    assert [event.content for event in dropped] == [None, None]
    assert client.request("GET", f"/v1/sessions/{before.session_id}").json()["policy"]["mode"] == "standard"
    created = client.request("GET", f"/v1/sessions/{after['session_id']}/events").json()["events"][0]
    assert (created["attributes"]["policy_mode"], created["attributes"]["checkpoint_window_s"]) == ("zdr", DAY_S)


def test_an_import_past_the_gateway_keeps_to_the_policy_too(roles: Roles, client: Client, settings: Settings) -> None:
    policy(settings, "set", "--mode", "zdr")
    key = roles.key()

    async def scenario() -> IngestReport:
        async with direct_transport(settings, key) as transport:
            return await run_ingest([SAMPLES / "tide-tables.jsonl"], transport, check=False, patience_s=30)

    assert asyncio.run(scenario()).ok
    (session,) = client.sessions()
    assert client.request("GET", f"/v1/sessions/{session.session_id}").json()["policy"]["mode"] == "zdr"
    events = list(client.events(session.session_id))
    assert len(events) > 10
    assert {event.content for event in events} == {None}


def test_a_window_beyond_its_limit_is_refused_with_field_and_limit(settings: Settings) -> None:
    refused = policy(settings, "set", "--checkpoint-window", str(31 * DAY_S), status=1)
    assert "checkpoint_window_s: from 1 to 2592000" in refused.stderr
    assert json.loads(policy(settings, "show", "--json").stdout)["source"] == "installation"
