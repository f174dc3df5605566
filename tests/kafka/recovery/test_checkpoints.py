"""Rows of "Recovery" on a real broker, through HTTP: what a checkpoint shows, when it ends, and what it gives nobody.

Seed *Checkpoints*, "They expire after 30 days" and "Credential boundary"; design 02, "Resource" and "Credential boundary".
"""

from datetime import datetime

import pytest

from connectors.edge.keys import KeyAdministration
from connectors.edge.policies import PolicyAdministration
from session_streams import Client, Retries
from streams.errors import Invalid
from tests.support.recovery_rows import (
    CHANGED,
    SHORT_WINDOW_S,
    STANDARD,
    Installation,
    Worker,
    at_work,
    listed,
    material,
    message,
    new_session,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_a_listing_is_secret_free_metadata_newest_first_and_never_contents(installed: Installation) -> None:
    worker = at_work(installed.client())
    worker.say("the conversation")
    first = worker.checkpoint(snapshot=b"secret disk", native=b"secret signature")
    second = worker.checkpoint()
    answer = worker.client.request("GET", f"{worker.session}/checkpoints")
    rows = answer.json()["checkpoints"]
    assert [row["id"] for row in rows] == [second["checkpoint_id"], first["checkpoint_id"]]
    assert set(rows[0]) == {
        "id", "session_id", "origin_session_id", "run_id", "through_sequence", "through_event_id", "harness_revision",
        "environment_revision", "continuation_kind", "created_at", "expires_at",
    }  # fmt: skip
    for secret in (*first["uploads"], *second["uploads"], "snap_", "secret", "blobs", str(installed.settings.data_dir), "key", "sha256"):
        assert secret not in answer.body.decode()
    page = worker.client.request("GET", f"{worker.session}/checkpoints", params={"limit": "1"}).json()
    rest = worker.client.request("GET", f"{worker.session}/checkpoints", params={"limit": "1", "cursor": page["next_cursor"]}).json()
    assert (page["checkpoints"] + rest["checkpoints"], rest["next_cursor"]) == (rows, None)


def test_expires_at_is_thirty_days_after_creation_a_policy_may_shorten_it_and_no_later_policy_moves_it(installed: Installation) -> None:
    policies, client = PolicyAdministration(installed.settings), installed.client(CHANGED)
    worker = at_work(client)
    checkpoint = worker.checkpoint()
    (before,) = listed(client, worker.session_id)
    assert seconds(before) == SHORT_WINDOW_S
    with pytest.raises(Invalid):
        policies.set(CHANGED, checkpoint_window_s=31 * 86_400)
    policies.set(CHANGED, mode="zdr", checkpoint_window_s=86_400)
    eventually(lambda: client.request("GET", "/v1/workspace/policy").json()["checkpoint_window_s"] == 86_400, timeout_s=20)
    assert worker.checkpoint()["expires_at"] > checkpoint["expires_at"]
    newer, older = listed(client, worker.session_id)
    assert older == before
    assert seconds(newer) == SHORT_WINDOW_S
    standard = at_work(installed.client())
    standard.checkpoint()
    assert [seconds(row) for row in listed(standard.client, standard.session_id)] == [30 * 86_400]


def seconds(row: dict[str, str]) -> float:
    return (datetime.fromisoformat(row["expires_at"]) - datetime.fromisoformat(row["created_at"])).total_seconds()


def test_retained_state_is_encrypted_where_it_lies_and_only_a_worker_may_take_it(installed: Installation) -> None:
    worker = at_work(installed.client())
    secret = b"an opaque replay signature " * 1000
    checkpoint = worker.checkpoint(native=secret, snapshot=secret)
    blobs = [path.read_bytes() for path in (installed.settings.data_dir / "blobs").rglob("*") if path.is_file()]
    assert blobs
    assert all(secret[:40] not in blob for blob in blobs)
    reader = key(installed, "sessions:read", "checkpoints:read")
    with reader:
        with installed.refused(worker.session_id, "auth.scope", 403):
            material(reader, worker.session_id, checkpoint["checkpoint_id"], "native")
        assert reader.request("GET", f"{worker.session}/checkpoints").status == 200
    assert material(worker.client, worker.session_id, checkpoint["checkpoint_id"], "native") == secret


def test_retained_state_grants_no_fresh_execution_authority(installed: Installation) -> None:
    """Who may read all of it, and holds its bytes, has neither the right to claim nor an attempt to report with."""
    worker = at_work(installed.client())
    worker.checkpoint(native=b"native")
    reader = key(installed, "sessions:read", "checkpoints:read")
    with reader:
        other = Worker(reader, worker.session_id, worker.run_id).granted(worker.grant)
        with installed.refused(worker.session_id, "auth.scope", 403):
            other.claim()
        with installed.refused(worker.session_id, "auth.scope", 403):
            other.say("with what it holds")
        with installed.refused(worker.session_id, "auth.scope", 403):
            other.conversation()
    writer = Worker(installed.client(number=1), worker.session_id, worker.run_id).granted(worker.grant)
    with installed.refused(worker.session_id, "runtime.attempt_fenced"):
        writer.conversation()


def key(installed: Installation, *scopes: str) -> Client:
    """A client whose key may do this much, once the gateway knows it."""
    secret = KeyAdministration(installed.settings).create(STANDARD, scopes)[1]
    client = Client(installed.url, secret, retries=Retries(total_s=30))

    def known() -> bool:
        try:
            client.request("GET", "/v1/sessions")
        except Exception as error:
            if getattr(error, "status", None) == 401:
                return False
            raise
        return True

    eventually(known, timeout_s=20)
    return client


def test_content_of_twelve_mebibytes_goes_in_and_comes_back(installed: Installation) -> None:
    client = installed.client(STANDARD)
    session_id, text = new_session(client), "0123456789abcdef" * (12 * 1024 * 1024 // 16)
    client.append(session_id, message(text))
    client.append(session_id, message("small"))
    events = list(client.events(session_id))
    assert [len(event.content["text"]) for event in events[1:]] == [len(text), len("small")]
    assert events[1].content == {"text": text}
