"""A text too large for a record lies in the blob store, and the event carries a claim check for it.

The event's sealed bytes (`sealed_bytes.py`) say so with a flag and hold, instead of the text,

    body = id of the blob (16 random bytes) | bytes of the text (8, big-endian)

The text lies there as a sealed stream (`sealed_stream.py`) whose secret is the event's content key: what shreds the event's content
shreds it, too. The event's digest is that of salt and text as ever, so nobody who checks chain, export or content sees a
difference.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from streams.custody.sealed_stream import StreamPlace
from streams.errors import ContentUnavailable
from streams.session.ids import is_id

LARGE_TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one text; whoever opens one has it in memory."""
BLOB_ID_BYTES: Final = 16

_PART: Final = "content"
_BODY_BYTES: Final = BLOB_ID_BYTES + 8


class ClaimCheck(Struct, frozen=True, kw_only=True):
    """Where a text lies and what opens it. `size` in bytes; `key` is the event's content key."""

    workspace_id: str
    session_id: str
    event_id: str
    expiry_day: str
    blob_id: str
    size: int
    key: bytes

    @property
    def place(self) -> StreamPlace:
        return StreamPlace(self.workspace_id, self.session_id, f"{self.event_id}/{self.blob_id}", _PART)


class LargeText(Struct, frozen=True):
    """A text that is to be stored before the event that claims it is sent."""

    claim: ClaimCheck
    json_text: bytes


FetchText = Callable[[ClaimCheck], bytes]
"""Gets a text. Blocks; raises `ContentUnavailable` where it is gone or damaged, `BlobStoreUnavailable`."""


def claim_body(claim: ClaimCheck) -> bytes:
    return bytes.fromhex(claim.blob_id) + claim.size.to_bytes(8, "big")


def read_claim_body(body: bytes, *, event_id: str) -> tuple[str, int]:
    """The blob's id (32 hex digits) and the text's size. Raises `ContentUnavailable`."""
    size = int.from_bytes(body[BLOB_ID_BYTES:], "big")
    if len(body) != _BODY_BYTES or size > LARGE_TEXT_BYTES_MAX or not is_id(event_id, "evt"):
        raise ContentUnavailable("claim check: not one of ours")
    return body[:BLOB_ID_BYTES].hex(), size
