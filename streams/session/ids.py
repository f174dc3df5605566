"""Identifiers: a prefix and 32 lower-case hex digits, most of them derived so that a retry lands on the same thing.

Nothing that comes from outside stands in an identifier in clear: what is derived from outside text goes through
HMAC-SHA256 under the workspace's identity key, which only the keyring holds.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NewType

WorkspaceId = NewType("WorkspaceId", str)
SessionId = NewType("SessionId", str)
CommandId = NewType("CommandId", str)
EventId = NewType("EventId", str)

PREFIXES: Final = (
    "ws", "sess", "sthr", "run", "turn", "evt", "cmd", "ckpt", "art", "cap", "eff", "wait",
    "appr", "fork", "subj", "actr", "key", "ers", "task", "call", "chld", "snap", "cimp",
)  # fmt: skip

_PATTERN: Final = re.compile(f"({'|'.join(PREFIXES)})_[0-9a-f]{{32}}")


def is_id(text: str, prefix: str | None = None) -> bool:
    """Whether `text` is an identifier (of kind `prefix`, where given)."""
    return _PATTERN.fullmatch(text) is not None and (prefix is None or text.startswith(prefix + "_"))


def _fields(*parts: bytes) -> bytes:
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def derive_keyed(prefix: str, identity_key: bytes, *parts: str) -> str:
    """An identifier from outside text: HMAC-SHA256 over the prefix and the length-prefixed parts, first 16 bytes."""
    message = _fields(prefix.encode(), *(part.encode() for part in parts))
    return f"{prefix}_{hmac.digest(identity_key, message, 'sha256')[:16].hex()}"


def derive_session_id(identity_key: bytes, workspace_id: str, principal_id: str, idempotency_key: str) -> SessionId:
    return SessionId(derive_keyed("sess", identity_key, workspace_id, principal_id, idempotency_key))


def derive_command_id(identity_key: bytes, workspace_id: str, session_id: str, idempotency_key: str) -> CommandId:
    return CommandId(derive_keyed("cmd", identity_key, workspace_id, session_id, idempotency_key))


def derive_from_command(prefix: str, command_id: str, index: int) -> str:
    """An identifier of the `index`-th thing that a command makes (event, run, turn, wait ...): plain SHA-256."""
    message = _fields(prefix.encode(), command_id.encode(), str(index).encode())
    return f"{prefix}_{hashlib.sha256(message).digest()[:16].hex()}"


def derive_event_id(command_id: str, index: int) -> EventId:
    return EventId(derive_from_command("evt", command_id, index))


def event_ids(command_id: str) -> Callable[[int], EventId]:
    """`derive_event_id` for one command, with what all its ids share computed once."""
    encoded = command_id.encode()
    # As `_fields` lays out "evt", the command's id and the index.
    shared = b"\x00\x00\x00\x03evt%b%b" % (len(encoded).to_bytes(4, "big"), encoded)

    def at(index: int) -> EventId:
        digits = b"%d" % index
        return EventId("evt_" + hashlib.sha256(b"%b\x00\x00\x00%c%b" % (shared, len(digits), digits)).hexdigest()[:32])

    return at


def request_digest(identity_key: bytes, method: str, path: str, body: bytes, *worker: str) -> bytes:
    """What a repeat of a request is compared by (32 bytes): keyed, since the plaintext is personal. `worker` says who asks, of what only
    the same worker may repeat."""
    return hmac.digest(identity_key, _fields(method.encode(), path.encode(), body, *(part.encode() for part in worker)), "sha256")
