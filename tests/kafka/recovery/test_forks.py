"""Rows of "Recovery" on a real broker, through HTTP: forks by checkpoint and at an event, and what they read of their ancestors.

Seed *Checkpoints*, "Expiry can fall back to a retained log"; design 02, the table's second and third row and "A fork is by reference".
"""

import json
import secrets
from typing import Any

import pytest

from session_streams import Client
from tests.support.commands import new_id
from tests.support.recovery_rows import (
    SHORT,
    Installation,
    Worker,
    at_work,
    event_at,
    last_event,
    listed,
    material,
    message,
    new_session,
    past,
    texts,
    types_of,
    worker_at,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
EXPIRED, HISTORY = "runtime.checkpoint_expired", "runtime.session_history_unavailable"


def fork(client: Client, session_id: str, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.request("POST", f"/v1/sessions/{session_id}/forks", body).json()
    return answer


def lineage(client: Client, session_id: str, **params: str) -> list[dict[str, Any]]:
    """All events of the ancestors and of the session, page by page."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.request("GET", f"/v1/sessions/{session_id}/events", params={"lineage": "true", **params, **cursor}).json()
        found += page["events"]
        if page.get("next_cursor") is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def test_forking_by_a_fresh_checkpoint_brings_disk_and_native_state_along_byte_for_byte(installed: Installation) -> None:
    worker = at_work(installed.client())
    worker.say("before")
    disk, native = secrets.token_bytes(3_000_000), secrets.token_bytes(70_000)
    checkpoint = worker.checkpoint(snapshot=disk, native=native)
    worker.say("after the checkpoint")
    before = installed.ledger.hashes(worker.session_id)
    forked = fork(worker.client, worker.session_id, checkpoint_id=checkpoint["checkpoint_id"])
    child = forked["session_id"]
    assert (forked["source_session_id"], forked["through_sequence"]) == (worker.session_id, checkpoint["through"]["sequence"])
    assert forked["restores"] == {"history": None, "files": True, "native_continuation": True, "live_processes": False}
    assert material(worker.client, child, checkpoint["checkpoint_id"]) == disk
    assert material(worker.client, child, checkpoint["checkpoint_id"], "native") == native
    (brought,), (own,) = listed(worker.client, child), listed(worker.client, worker.session_id)
    assert (brought["expires_at"], brought["origin_session_id"]) == (own["expires_at"], worker.session_id)
    second = worker_at(worker.client, child).claim()
    assert (second.recovery["mode"], second.recovery["checkpoint_id"]) == ("checkpoint_restore", checkpoint["checkpoint_id"])
    assert second.recovery["checkpoint_session_id"] == worker.session_id
    assert texts(second.conversation()) == ["before"]
    # What was accepted in the source stays where it is; that it was forked, and its checkpoint consumed, is told behind it.
    assert installed.ledger.hashes(worker.session_id)[: len(before)] == before
    assert types_of(installed, worker.session_id)[len(before) :] == ["session.forked", "checkpoint.consumed"]


def test_explicitly_forking_against_an_expired_checkpoint_is_refused_and_never_reinterpreted_as_a_log_only_fork(
    installed: Installation,
) -> None:
    worker = at_work(installed.client(SHORT))
    worker.say("readable")
    checkpoint = worker.checkpoint(native=b"native")
    past(checkpoint["expires_at"])
    with installed.refused(worker.session_id, EXPIRED):
        fork(worker.client, worker.session_id, checkpoint_id=checkpoint["checkpoint_id"])

    # Who kept its through_event_id asks for the conversation alone, and is given it.
    forked = fork(worker.client, worker.session_id, at_event=checkpoint["through"]["event_id"])
    assert forked["restores"] == {"history": True, "files": False, "native_continuation": False, "live_processes": False}
    second = worker_at(worker.client, forked["session_id"]).claim()
    assert (second.recovery["mode"], second.recovery["reason"]) == ("event_log_rebuild", "no_checkpoint")
    assert texts(second.conversation()) == ["readable"]


def test_forking_against_an_erased_checkpoint_counts_as_expired_and_an_unknown_one_is_not_found(installed: Installation) -> None:
    worker = at_work(installed.client())
    worker.say("gone soon")
    checkpoint = worker.checkpoint(native=b"native")
    installed.erase(worker.session_id, *checkpoint["uploads"])
    with installed.refused(worker.session_id, EXPIRED):
        fork(worker.client, worker.session_id, checkpoint_id=checkpoint["checkpoint_id"])
    with installed.refused(worker.session_id, "resource.not_found", 404):
        fork(worker.client, worker.session_id, checkpoint_id=new_id("ckpt"))
    with installed.refused(worker.session_id, "resource.not_found", 404):
        fork(worker.client, worker.session_id, at_event=new_id("evt"))


def test_a_fresh_checkpoint_that_needs_an_unreadable_history_does_not_fork(installed: Installation) -> None:
    worker = at_work(installed.client())
    lost = worker.say("erased")
    installed.tell_erased(worker.session_id)
    worker.say("kept")
    rebuilt = worker.checkpoint()
    with installed.refused(worker.session_id, HISTORY) as refusal:
        fork(worker.client, worker.session_id, checkpoint_id=rebuilt["checkpoint_id"])
    assert refusal.error.missing[0].endswith("content.erased")
    native = worker.checkpoint(native=b"native")
    forked = fork(worker.client, worker.session_id, checkpoint_id=native["checkpoint_id"])
    assert forked["restores"]["native_continuation"]
    # At an event, the first position that cannot be read is named.
    with installed.refused(worker.session_id, HISTORY) as refusal:
        fork(worker.client, worker.session_id, at_event=native["through"]["event_id"])
    first = int(refusal.error.missing[0].split("-")[0])
    assert first <= lost["sequence"]
    assert f"{first}-" in refusal.error.detail
    readable = event_at(worker.client, worker.session_id, first)
    assert readable["sequence"] == first


def test_a_fork_at_an_event_restores_conversational_state_only_and_says_so(installed: Installation) -> None:
    worker = at_work(installed.client())
    at = worker.say("mine")
    worker.checkpoint(snapshot=b"disk", native=b"native")
    worker.say("not mine")
    forked = fork(worker.client, worker.session_id, at_event=at["event_id"])
    assert (forked["through_sequence"], forked["through_event_id"]) == (at["sequence"], at["event_id"])
    assert forked["restores"] == {"history": True, "files": False, "native_continuation": False, "live_processes": False}
    assert listed(worker.client, forked["session_id"]) == []
    second = worker_at(worker.client, forked["session_id"]).claim()
    assert second.recovery["restores"] == {"history": True, "files": False, "native_continuation": False, "live_processes": False}
    assert texts(second.conversation()) == ["mine"]
    with installed.refused(worker.session_id, "runtime.checkpoint_boundary"):
        fork(worker.client, worker.session_id, at_event=at["event_id"], through_sequence=at["sequence"] + 1)


def test_a_childs_sequence_starts_at_one_and_with_lineage_its_ancestors_come_first(installed: Installation) -> None:
    client = installed.client()
    grandparent = new_session(client)
    for text in ("a", "b", "not mine"):
        client.append(grandparent, message(text))
    parent = fork(client, grandparent, at_event=event_at(client, grandparent, 3)["event_id"])["session_id"]
    client.append(parent, message("c"))
    at = last_event(client, parent)
    child = fork(client, parent, at_event=at["event_id"])["session_id"]
    client.append(child, message("d"))
    own = list(client.events(child))
    assert [event.sequence for event in own] == list(range(1, len(own) + 1))
    created = installed.ledger.events(child)[0]
    source_hash = dict(installed.ledger.hashes(parent))[at["sequence"]].hex()
    assert (created.attributes.source_session_id, created.attributes.source_hash) == (parent, source_hash)  # type: ignore[union-attr]

    lines = [json.loads(line) for line in client.export(child, lineage=True)]
    headers = [line["session_id"] for line in lines if line["kind"] == "header"]
    assert headers == [grandparent, parent, child]
    plain = [json.loads(line) for line in client.export(child)]
    assert lines[-len(plain) :] == plain

    assert texts(lineage(client, child)) == ["a", "b", "c", "d"]
    assert lineage(client, child, limit="2") == lineage(client, child)


def test_what_is_erased_in_the_source_is_erased_in_every_fork(installed: Installation) -> None:
    client = installed.client()
    source = new_session(client)
    client.append(source, message("gone soon"))
    child = fork(client, source, at_event=last_event(client, source)["event_id"])["session_id"]
    client.append(child, message("the child's own"))
    worker = worker_at(client, child)
    installed.erase(source)
    installed.tell_erased(child)
    client.append(child, message("after"))
    with installed.refused(child, HISTORY) as refusal:
        worker.claim()
    assert refusal.error.missing[0].startswith(f"{source} ")
    worker.claim(incomplete_ok=True)
    assert source in [each.get("session_id") for each in worker.recovery["unavailable"]]
    eventually(lambda: "gone soon" not in texts(worker.conversation()), timeout_s=30)
    gaps = [(line["session_id"], line["reason"]) for line in worker.conversation() if line["kind"] == "gap"]
    assert (source, "content.erased") in gaps


def test_a_repeated_fork_is_the_same_child_and_a_fork_grants_no_execution(installed: Installation) -> None:
    """Neither retained state nor a fork of it grants fresh execution authority: who works there claims a Run of its own."""
    worker = at_work(installed.client())
    checkpoint = worker.checkpoint(native=b"native")
    path, body = f"{worker.session}/forks", {"checkpoint_id": checkpoint["checkpoint_id"]}
    first, again = (worker.client.request("POST", path, body, key=f"fork-{worker.run_id}").json() for _ in range(2))
    assert first == again
    child = Worker(worker.client, first["session_id"], worker.run_id).granted(worker.grant)
    with installed.refused(child.session_id, "resource.not_found", 404):
        child.say("with the source's grant")
    assert types_of(installed, child.session_id) == ["session.created", "checkpoint.created"]
