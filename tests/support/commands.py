"""Commands made without a gateway: content is a marker in the place of ciphertext, so that a test finds it again."""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from streams.clock import now_us
from streams.session.commands import Command, Kind, Report
from streams.session.events import Attributes, Content, Draft, KeyReference, MessageAttributes, SessionAttributes
from streams.session.ids import derive_event_id

WORKSPACE = "ws_" + "a" * 32
PRINCIPAL = "key_" + "b" * 32
WINDOW_DAYS = 30


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def new_marker() -> bytes:
    return b"marker:" + secrets.token_hex(24).encode()


def sealed(session_id: str, marker: bytes) -> Content:
    day = (datetime.now(UTC) + timedelta(days=WINDOW_DAYS + 1)).strftime("%Y-%m-%d")
    return Content("sealed", KeyReference(None, session_id, day), marker, hashlib.sha256(marker).digest())


def draft(
    session_id: str,
    command_id: str,
    index: int,
    event_type: str,
    attributes: Attributes | None,
    content: Content | None = None,
    **more: object,
) -> Draft:
    fields = {"content": content} if content is not None else {}
    return Draft(
        event_id=derive_event_id(command_id, index), session_id=session_id, type=event_type, workspace_id=WORKSPACE,
        command_id=command_id, attributes=attributes, **fields, **more,
    )  # fmt: skip


def command(
    session_id: str, drafts: tuple[Draft, ...], *, command_id: str, kind: Kind = Kind.APPEND, timeout_s: float = 60, **more: object
) -> Command:
    """`request_digest` follows the drafts unless given, so that another body is another digest."""
    digest = hashlib.sha256(repr([(item.type, item.content.ciphertext) for item in drafts]).encode()).digest()
    fields = {
        "principal_id": PRINCIPAL, "request_digest": digest, "issued_at": now_us(),
        "not_after": now_us() + int(timeout_s * 1_000_000), **more,
    }  # fmt: skip
    return Command(command_id=command_id, session_id=session_id, workspace_id=WORKSPACE, kind=kind, drafts=drafts, **fields)  # type: ignore[arg-type]


def create_session(session_id: str, **more: object) -> Command:
    command_id = new_id("cmd")
    attributes = SessionAttributes(origin="live", policy_mode="standard", content_window_days=WINDOW_DAYS)
    return command(session_id, (draft(session_id, command_id, 0, "session.created", attributes),), command_id=command_id, **more)


def append_messages(session_id: str, markers: tuple[bytes, ...], **more: object) -> Command:
    command_id = new_id("cmd")
    drafts = tuple(
        draft(session_id, command_id, index, "message.appended", MessageAttributes(role="user"), sealed(session_id, marker))
        for index, marker in enumerate(markers)
    )
    return command(session_id, drafts, command_id=command_id, **more)


__all__ = ["Kind", "Report"]
