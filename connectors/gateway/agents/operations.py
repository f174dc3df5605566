"""What may be done with checkpoints, without HTTP: the routes and the tools do exactly this (page 06, 1.5 to 1.8).

What is missing, expired, erased or somebody else's is the same 404 everywhere.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from connectors.edge.agents import Caller, Checkpoint, Conflict, NewState, Written
from connectors.edge.principal import Principal
from connectors.gateway.agents import fields
from connectors.gateway.agents.failures import Failure, invalid, keeps_no_content, not_found
from connectors.gateway.service import Gateway
from streams.agents.core import KINDS
from streams.session.ids import is_id
from streams.session.words import ZDR

VERSIONS_MAX: Final = 100
"""In one page of a history."""
_VERSIONS: Final = 20
_NUMBER_MAX: Final = 10**9


def new_state(body: dict[str, Any], agent_id: str, if_match: str | None = None) -> NewState:
    """What a body asks to be saved by `agent_id`. Raises `Failure` for the first thing that is wrong."""
    subject_id = fields.required_string(body, "subject_id", fields.NAME_MAX)
    if is_id(subject_id, "subj"):
        raise invalid('Field "subject_id" is a pseudonym, not an id of yours.')
    if fields.optional_string(body, "agent_id", fields.NAME_MAX) not in (None, agent_id):
        raise not_found()
    run_id = fields.optional_string(body, "run_id", fields.NAME_MAX)
    kind = fields.kind(body)
    state = fields.state(body)
    return NewState(
        subject_id=subject_id,
        kind=kind,
        run_id=run_id,
        state=state,
        state_hash=hashlib.sha256(state.encode()).hexdigest(),
        ttl_seconds=fields.ttl_seconds(body),
        expected_state_hash=fields.expected_state_hash(body, if_match),
    )


async def save(
    gateway: Gateway, principal: Principal, body: dict[str, Any], *, if_match: str | None = None, large: bool = False
) -> tuple[Written, dict[str, Any]]:
    """What came of it, and the data to be told. `large`: looking at the body takes long enough to do it away from the event loop.

    Raises `Failure` (400, 403, 404, 409) and `Retriable`, also where the workspace's policy of now is not known.
    """
    if gateway.policies.of(principal.workspace_id).mode == ZDR:
        raise keeps_no_content()
    look = partial(new_state, body, principal.agent_id, if_match)
    new = await gateway.in_thread(look) if large else look()
    written = await gateway.agents.save(_caller(principal), new)
    if written is None:
        raise not_found()
    if isinstance(written, Conflict):
        meta = {"actual_state_hash": written.actual_state_hash}
        raise Failure(409, "CONFLICT", "Write conflicted with an existing record.", meta=meta)
    return written, {
        "checkpoint_id": written.checkpoint_id,
        "subject_id": new.subject_id,
        "agent_id": principal.agent_id,
        "kind": new.kind,
        "state_hash": written.state_hash,
        "expires_at": fields.when_us(written.expires_at),
        "updated": written.updated,
    }


async def get(gateway: Gateway, principal: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """The one of the caller's at (subject, kind). Raises `Failure` (400, 404) and `Retriable`."""
    for name in ("subject_id", "kind"):
        if not query.get(name):
            raise invalid(f'Query "{name}" is required.')
    if query.get("agent_id", principal.agent_id) != principal.agent_id:
        raise not_found()
    return _told(await gateway.agents.at(_caller(principal), query["subject_id"], query["kind"]))


async def get_by_id(gateway: Gateway, principal: Principal, checkpoint_id: str) -> dict[str, Any]:
    """Raises `Failure` (404) and `Retriable`."""
    return _told(await gateway.agents.by_id(_caller(principal), checkpoint_id))


async def delete(gateway: Gateway, principal: Principal, checkpoint_id: str) -> dict[str, Any]:
    """Expired or not. Raises `Failure` (404) and `Retriable`."""
    if not await gateway.agents.delete(_caller(principal), checkpoint_id):
        raise not_found()
    return {"checkpoint_id": checkpoint_id, "deleted": True}


async def history(gateway: Gateway, principal: Principal, checkpoint_id: str, query: dict[str, str]) -> dict[str, Any]:
    """Its versions within retention, newest first. Raises `Failure` (400, 404) and `Retriable`."""
    limit = fields.query_integer(query, "limit", 1, VERSIONS_MAX, _VERSIONS)
    before = fields.query_integer(query, "before", 1, _NUMBER_MAX, None)
    found = await gateway.agents.history(_caller(principal), checkpoint_id, limit=limit or _VERSIONS, before=before)
    if found is None:
        raise not_found()
    versions = [{"version": version.version, **_told(version)} for version in found.versions]
    return {"checkpoint_id": checkpoint_id, "versions": versions, "next_before": found.next_before}


async def export(gateway: Gateway, principal: Principal, query: Mapping[str, str]) -> dict[str, Any]:
    """All that the caller keeps of a subject, each kind with its versions within retention, newest first (design 06: "checkpoints obey ...
    export"). What is expired or erased is not in it. Raises `Failure` (400) and `Retriable`."""
    if not query.get("subject_id"):
        raise invalid('Query "subject_id" is required.')
    caller, checkpoints = _caller(principal), []
    for kind in KINDS:
        head = await gateway.agents.at(caller, query["subject_id"], kind)
        found = None if head is None else await gateway.agents.history(caller, head.checkpoint_id, limit=VERSIONS_MAX, before=None)
        if head is None or found is None:
            continue
        versions = [{"version": version.version, **_told(version)} for version in found.versions]
        checkpoints.append({"checkpoint_id": head.checkpoint_id, "kind": kind, "versions": versions})
    return {"subject_id": query["subject_id"], "agent_id": principal.agent_id, "checkpoints": checkpoints}


def _caller(principal: Principal) -> Caller:
    return Caller(workspace_id=principal.workspace_id, agent_id=principal.agent_id, only_subject=principal.subject_id)


def _told(found: Checkpoint | None) -> dict[str, Any]:
    if found is None:
        raise not_found()
    return {
        "checkpoint_id": found.checkpoint_id,
        "subject_id": found.subject_id,
        "agent_id": found.agent_id,
        "run_id": found.run_id,
        "kind": found.kind,
        "state": msgspec.Raw(found.state.encode()),
        "state_hash": found.state_hash,
        "ttl_seconds": found.ttl_seconds,
        "expires_at": fields.when_us(found.expires_at),
        "created_at": fields.when_us(found.created_at),
        "updated_at": fields.when_us(found.updated_at),
    }
