"""Bundles of a whole installation whose content is omitted, expired or erased: they verify, and their signed manifests say what is gone.

A session has one of these only: its policy is pinned at its creation, and an erasure takes all of its content.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO

import pytest

from connectors.edge.policies import PolicyAdministration
from session_streams import Client, Retries
from session_streams.bundle import Verdict, verify
from streams.clock import now_us
from streams.custody.keyring import SecretRef
from streams.custody.sealing import content_expiry_day
from streams.custody.sqlite_keyring import open_local_keyring
from tests.conftest import Broker
from tests.support.roles import WORKSPACE, Roles, installation
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
KEEPS_NOTHING = "ws_" + "e" * 32
TEXT = "what is gone afterwards"


@pytest.fixture(scope="module")
def roles(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("bundles"), custodian=True) as made:
        PolicyAdministration(made.settings).set(KEEPS_NOTHING, mode="zdr")
        yield made


@pytest.fixture
def client(roles: Roles) -> Iterator[Client]:
    with Client(roles.url, roles.key(), retries=Retries(total_s=30)) as made:
        yield made


def told(client: Client) -> str:
    """A session of three positions, two of which have content."""
    session_id = client.create_session(subject="mia_li_3668").session_id
    client.append_many(session_id, [{"type": "message.appended", "content": {"text": TEXT}}] * 2)
    return session_id


def bundled(client: Client, session_id: str) -> tuple[bytes, Verdict]:
    """A bundle that verifies and has the same bytes again."""
    first, second = BytesIO(), BytesIO()
    for file in (first, second):
        client.bundle(session_id, file)
    assert first.getvalue() == second.getvalue()
    verdict = verify(first.getvalue(), json.dumps(client.signing_keys()).encode(), session_id=session_id, end_sequence=3)
    assert verdict.ok, verdict
    return first.getvalue(), verdict


def assert_says(file: bytes, verdict: Verdict, reason: str) -> None:
    """Of the messages."""
    assert list(verdict.sections[0].gaps) == [{"reason": reason, "count": 2, "first_sequence": 2, "last_sequence": 3}]
    assert TEXT.encode() not in file


def assert_whole(file: bytes, verdict: Verdict) -> None:
    assert list(verdict.sections[0].gaps) == []
    assert file.count(TEXT.encode()) == 2


def test_content_that_was_never_kept_is_omitted(roles: Roles) -> None:
    with Client(roles.url, roles.key(workspace_id=KEEPS_NOTHING), retries=Retries(total_s=30)) as client:
        eventually(lambda: client.request("GET", "/v1/workspace/policy").json()["mode"] == "zdr", timeout_s=20)
        assert_says(*bundled(client, told(client)), "omitted")


def test_content_that_is_erased_was_in_the_bundle_before(client: Client) -> None:
    session_id = told(client)
    file, before = bundled(client, session_id)
    assert_whole(file, before)
    erasure = client.request("DELETE", f"/v1/sessions/{session_id}").json()["erasure_id"]
    eventually(lambda: client.request("GET", f"/v1/erasures/{erasure}").json()["status"] in ("enforced", "complete"), timeout_s=30)
    file, after = bundled(client, session_id)
    assert_says(file, after, "erased")
    # The history is the same one, whoever may still read of it.
    assert after.last_hash == before.last_hash


def test_content_whose_day_is_over_has_expired(roles: Roles, client: Client) -> None:
    session_id = told(client)
    file, before = bundled(client, session_id)
    assert_whole(file, before)
    # As the custodian does at the day's end. Whoever still holds the secret may show it for a lease; a gateway that comes now has none.
    days = {content_expiry_day(now_us() - ago_us, roles.settings.content_window_days) for ago_us in (0, 60_000_000)}
    with closing(open_local_keyring(roles.settings.data_dir / "keyring")) as keyring:
        keyring.destroy([SecretRef("day", WORKSPACE, day) for day in days])
    with roles.another_gateway() as url, Client(url, roles.key(), retries=Retries(total_s=30)) as another:
        file, after = bundled(another, session_id)
    assert_says(file, after, "expired")
    assert after.last_hash == before.last_hash
