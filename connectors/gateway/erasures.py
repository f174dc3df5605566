"""Routes of erasures: of a person, of a session, and how one goes.

An erasure is accepted, and goes on by itself: its secrets are destroyed, then it is enforced (nothing of it can be read anywhere), then
complete (nothing of it is held). Each of the three answers for itself by a signed receipt. A person is named by the caller's own id
or by a pseudonym; the answer has the pseudonym only, and once the secrets are destroyed nothing leads from the one to the other.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Meta, Struct, structs

from connectors.edge import fields as f
from connectors.edge.erasures import Scope
from connectors.gateway import bodies
from connectors.gateway.answers import Answer, PositionText, plain
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from connectors.owner.messages import ErasureAnswer
from streams.errors import NotFound, Retriable, StreamsError
from streams.log.retention import ACCEPTED, COMPLETE, DESTROYED, ENFORCED, SUBJECT, RetentionRow, decode_retention

_SEGMENTS: Final = 5
"""Of the path of a person's erasures, the empty one in front included."""
_PERSON: Final = 3

Status = Literal["accepted", "destroyed", "enforced", "complete"]
_STATUSES: Final[dict[str, Status]] = {ACCEPTED: "accepted", DESTROYED: "destroyed", ENFORCED: "enforced", COMPLETE: "complete"}


class ErasureScope(Struct, frozen=True, forbid_unknown_fields=True):
    """What is erased: a subject, all over the workspace, by its pseudonym; or a session."""

    kind: Scope
    id: Annotated[str, Meta(pattern=r"^(subj|sess)_[0-9a-f]{32}$", max_length=37)]


class ErasureAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`status` is accepted where the erasure is new, and else how far it is. GET /v1/erasures/{erasure_id} tells more."""

    erasure_id: f.ErasureId
    status: Status
    scope: ErasureScope
    accepted_at: f.Moment
    position: PositionText


class AwaitedView(Struct, frozen=True, forbid_unknown_fields=True):
    """Who has not confirmed yet, and what."""

    holder: str
    reason: str


class SignatureView(Struct, frozen=True, forbid_unknown_fields=True):
    keyid: str
    sig: str


class EnvelopeView(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A signed receipt (DSSE): `payload` and `sig` are base64, and `session-streams receipts verify` checks it (docs/privacy.md)."""

    payload_type: str
    payload: str
    signatures: list[SignatureView]


class ErasureView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`counts`: what was removed so far. `receipts`: one for each of accepted, enforced and complete, as far as it is."""

    erasure_id: f.ErasureId
    status: Status
    scope: ErasureScope
    counts: dict[str, f.Count]
    accepted_at: f.Moment
    destroyed_at: f.Moment | None
    enforced_at: f.Moment | None
    complete_at: f.Moment | None
    awaited: list[AwaitedView]
    receipts: list[EnvelopeView]


async def erase_subject(gateway: Gateway, call: Call, _: bodies.EraseSubject) -> Answer:
    principal, key = call.principal, call.idempotency_key()
    return await _erase(gateway, call, "subject", await gateway.erasures.subject(principal, _person(call), key))


async def erase_session(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    session = await gateway.session(call, call.path["session_id"])
    return await _erase(gateway, call, "session", session.session_id)


async def read(gateway: Gateway, call: Call, _: bodies.NoQuery) -> Answer:
    erasure_id = call.path["erasure_id"]
    found = await gateway.erasure_owners.erasure(call.principal.workspace_id, erasure_id)
    if found is None:
        raise _absent(erasure_id)
    row = decode_retention(found.row)
    await _require_sight(gateway, call, row)
    return plain(_view(row, found))


async def _erase(gateway: Gateway, call: Call, scope: Scope, target_id: str) -> Answer:
    asked = await gateway.erasures.erase(call.principal, scope, target_id)
    status, accepted_at = ACCEPTED, asked.accepted_at
    if asked.known:
        found = await gateway.erasure_owners.erasure(call.principal.workspace_id, asked.erasure_id)
        if found is None:
            raise Retriable(f"{asked.erasure_id} is accepted and cannot be read yet")
        row = decode_retention(found.row)
        status, accepted_at = row.state, row.ended_at
    told = ErasureAsked(
        erasure_id=asked.erasure_id,
        status=_status(status),
        scope=ErasureScope(scope, target_id),
        accepted_at=f.when(accepted_at),
        position=asked.position,
    )
    return plain(told, 200 if asked.known else 202)


def _person(call: Call) -> str:
    """Whom the path names, as it was sent: an id may hold what separates a path. Raises `NotFound`."""
    raw: bytes = call.scope.get("raw_path") or call.scope["path"].encode()
    segments = raw.partition(b"?")[0].split(b"/")
    try:
        named = unquote_to_bytes(segments[_PERSON]).decode() if len(segments) == _SEGMENTS else ""
    except UnicodeDecodeError:
        named = ""
    if not 1 <= len(named) <= f.OUTSIDE_ID_MAX:
        raise NotFound("no such subject")
    return named


async def _require_sight(gateway: Gateway, call: Call, row: RetentionRow) -> None:
    """A key that is restricted to a subject is told of that one's erasures only. Raises `NotFound`."""
    only, erasure = call.principal.subject_id, row.erasure
    if only is None or erasure is None or (erasure.scope == SUBJECT and erasure.scope_id == only):
        return
    if erasure.scope == SUBJECT:
        raise _absent(row.id)
    try:
        await gateway.session(call, erasure.scope_id)
    except NotFound:
        raise _absent(row.id) from None


def _view(row: RetentionRow, found: ErasureAnswer) -> ErasureView:
    erasure = row.erasure
    if erasure is None:
        raise _absent(row.id)
    return ErasureView(
        erasure_id=row.id,
        status=_status(row.state),
        scope=ErasureScope("subject" if erasure.scope == SUBJECT else "session", erasure.scope_id),
        counts=erasure.counts,
        accepted_at=f.when(row.ended_at),
        destroyed_at=_moment(row.destroyed_at),
        enforced_at=_moment(erasure.enforced_at),
        complete_at=_moment(erasure.completed_at),
        awaited=[AwaitedView(each.holder, each.reason) for each in found.awaited],
        receipts=[msgspec.json.decode(receipt, type=EnvelopeView) for receipt in erasure.receipts],
    )


def _status(state: str) -> Status:
    """Raises `StreamsError` for one that is not known here."""
    if state not in _STATUSES:
        raise StreamsError("an erasure is in a state that is not known here")
    return _STATUSES[state]


def _moment(microseconds: int | None) -> f.Moment | None:
    return None if microseconds is None else f.when(microseconds)


def _absent(erasure_id: str) -> NotFound:
    return NotFound(f"no erasure {erasure_id}")


_EXAMPLE_SUBJECT: Final = "subj_2f4e6a8c0b1d3f5a7c9e0b2d4f6a8c1e"
_EXAMPLE_ID: Final = "ers_9f86d081884c7d659a2feaa0c55ad015"
_BEGUN: Final = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
_ASKED_EXAMPLE: Final = ErasureAsked(
    erasure_id=_EXAMPLE_ID, status="accepted", scope=ErasureScope("subject", _EXAMPLE_SUBJECT), accepted_at=_BEGUN,
    position="workspaces.commands:0:1042",
)  # fmt: skip
_EXAMPLE: Final = ErasureView(
    erasure_id=_EXAMPLE_ID,
    status="enforced",
    scope=ErasureScope("subject", _EXAMPLE_SUBJECT),
    counts={"checkpoints": 2, "sessions": 3},
    accepted_at=_BEGUN,
    destroyed_at=_BEGUN + timedelta(seconds=1),
    enforced_at=_BEGUN + timedelta(seconds=2),
    complete_at=None,
    awaited=[AwaitedView("custodian/3", "has not said that it holds nothing of it")],
    receipts=[
        EnvelopeView(
            "application/vnd.session-streams.receipt+json", "eyJjb3VudHMiOnt9fQ==", [SignatureView("3b1e509d6d2a7c41", "c2lnbmF0dXJl")]
        )
    ],
)

_UNDECIDED: Final = ("request.expired", "service.outcome_unknown")
ROUTES = (
    Route(
        method="POST", path="/v1/subjects/{subject}/erasures", name="erase_subject",
        summary="Erase a person all over the workspace: by the caller's own id, or by pseudonym", handler=erase_subject,
        scope="erasure:write", body=bodies.EraseSubject, answer=ErasureAsked, status=202, known_status=200, change=True, command=False,
        position=False, refusals=_UNDECIDED, example=_ASKED_EXAMPLE, body_example=bodies.EraseSubject(),
    ),
    Route(
        method="DELETE", path="/v1/sessions/{session_id}", name="erase_session", summary="Erase a session", handler=erase_session,
        scope="erasure:write", answer=ErasureAsked, status=202, known_status=200, change=True, command=False, refusals=_UNDECIDED,
        example=structs.replace(_ASKED_EXAMPLE, scope=ErasureScope("session", "sess_0d2f4b6a8c1e3f5a7c9e0b2d4f6a8c1e")),
    ),
    Route(
        method="GET", path="/v1/erasures/{erasure_id}", name="read_erasure",
        summary="How an erasure goes: its times, who is awaited, its receipts", handler=read, scope="erasure:write", answer=ErasureView,
        position=False, example=_EXAMPLE,
    ),
)  # fmt: skip
