"""Bundles made without a service, and taken apart and put together again by hand: what an attacker does to one, with or without the key."""

import base64
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import rfc8785

from streams.custody.signers import Trust, TrustedKey
from streams.custody.signing import SigningKey
from streams.exports.bundle import PAYLOAD_TYPE, Bundle
from streams.session.events import (
    ApprovalAttributes,
    ArtifactAttributes,
    CapsuleAttributes,
    CheckpointAttributes,
    ContextAttributes,
    Link,
    RunAttributes,
    SessionAttributes,
    ToolAttributes,
    WaitAttributes,
)
from tests.support.examples import SUBJECT, made_up_id
from tests.support.exports import History

NOON = "2027-01-01T12:00:00Z"
MANIFEST = "manifest"
NAMES = ("events", "actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules", MANIFEST)


def bundle_of(lines: Iterable[bytes], key: SigningKey) -> bytes:
    """The bundle that the service makes of these lines of an export."""
    told = list(lines)
    with closing(Bundle(json.loads(told[0])["session_id"], Path(tempfile.gettempdir()))) as made:
        for line in told:
            made.add(line)
        return b"".join([*told, *made.behind(key.sign)])


def trust_of(*keys: SigningKey, revoked: bool = False, purpose: Any = "bundles") -> bytes:
    """The trust document that has these keys."""
    trusted = tuple(
        TrustedKey(
            key_id=key.public.key_id,
            purpose=purpose,
            keyval=key.public.keyval,
            created_at=NOON,
            revoked_at=NOON if revoked else None,
        )
        for key in keys
    )
    return msgspec.json.encode(Trust(keys=trusted))


def history(session_id: str | None = None, *, messages: int = 1) -> History:
    """A session with something in every section, and content that is gone for each reason."""
    told = History() if session_id is None else History(session_id)
    actor, run, turn = made_up_id("actr"), made_up_id("run"), made_up_id("turn")
    told.tell("session.created", SessionAttributes(origin="live"), subject_id=SUBJECT)
    told.tell("turn.started", turn_id=turn, actor_id=actor, subject_id=SUBJECT)
    told.tell("run.accepted", RunAttributes(lane="a", claimable=True), run_id=run, turn_id=turn, actor_id=actor)
    told.tell("attempt.started", run_id=run, attempt_generation=1)
    told.tell("context.pinned", ContextAttributes(pin_kind="policy", revision="7", digest="sha256:" + "a" * 64), run_id=run)
    for number in range(messages):
        told.tell(text=f'{{"n": {number}, "text": "h\\u00e9llo \u2028 é"}}', actor_id=actor, run_id=run)
    told.tell("wait.opened", WaitAttributes(wait_id=made_up_id("wait"), kind="human"), run_id=run, text='"which?"', gone="erased")
    told.tell("wait.answered", WaitAttributes(wait_id=made_up_id("wait")), run_id=run, text='"this"', gone="erased")
    told.tell("approval.requested", ApprovalAttributes(approval_id=made_up_id("appr"), expires_at=2**52), run_id=run)
    told.tell("artifact.recorded", ArtifactAttributes(artifact_id=made_up_id("art"), byte_count=2**60, media_type="text/plain"))
    told.tell("artifact.recorded", ArtifactAttributes(media_type="image/svg+xml"), links=(Link("artifact", made_up_id("art")),))
    told.tell("checkpoint.created", CheckpointAttributes(checkpoint_id=made_up_id("ckpt"), through_sequence=3), run_id=run)
    told.tell("capsule.created", CapsuleAttributes(capsule_id=made_up_id("cap"), byte_count=10))
    told.tell("capsule.imported", CapsuleAttributes(capsule_id=made_up_id("cap"), import_id=made_up_id("cimp"), outcome="imported"))
    told.tell("tool.returned", ToolAttributes(name="a_tool", is_error=True), text='"expired"', gone="expired")
    told.tell(gone="omitted").tell(text="{}", gone="unreadable")
    return told.tell("run.completed", RunAttributes(reward=0.1, outcome="done"), run_id=run, turn_id=turn)


# -- taken apart, and put together again


def parts_of(file: bytes) -> dict[str, bytes]:
    """By name, of a file as the service makes it; the last one is the envelope without its line end."""
    body, _, envelope = file.removesuffix(b"\n").rpartition(b"\n")
    found, place = {}, 0
    for section in json.loads(base64.b64decode(json.loads(envelope)["payload"]))["sections"]:
        found[section["name"]] = (body + b"\n")[place : place + section["bytes"]]
        place += section["bytes"]
    return {**found, MANIFEST: envelope}


def assembled(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts) + b"\n"


def with_part(file: bytes, name: str, data: bytes) -> bytes:
    return assembled({**parts_of(file), name: data}.values())


def envelope_of(payload: bytes, key: SigningKey, payload_type: str = PAYLOAD_TYPE) -> bytes:
    return msgspec.json.encode(key.sign(payload_type, payload), order="sorted")


def payload_of(file: bytes) -> bytes:
    return base64.b64decode(json.loads(parts_of(file)[MANIFEST])["payload"])


def resigned(file: bytes, key: SigningKey, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Its manifest changed, and signed by somebody who lies."""
    told = json.loads(payload_of(file))
    change(told)
    return with_part(file, MANIFEST, envelope_of(rfc8785.dumps(told), key))


def resealed(file: bytes, key: SigningKey, name: str, data: bytes) -> bytes:
    """A section changed, and what the manifest says of its bytes with it."""

    def change(told: dict[str, Any]) -> None:
        section = next(each for each in told["sections"] if each["name"] == name)
        section |= {"bytes": len(data), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "items": data.count(b"\n")}
        if name == "events":
            section["items"] = max(0, section["items"] - 2)

    changed = resigned(file, key, change)
    envelope = changed.removesuffix(b"\n").rpartition(b"\n")[2]
    return assembled({**parts_of(file), name: data, MANIFEST: envelope}.values())
