"""The small record that makes an upload one: which attempt's bytes it is, and what they are.

It lies in clear beside them. What could tell the content (the plaintext's digest) stands in it under a key that goes with the
secret. It needs no seal: the bytes open only as what they are, and who reads them says which digest is expected.
"""

import hashlib
import hmac
from typing import Final

import msgspec
from msgspec import Struct

from streams.errors import ContentUnavailable
from streams.session.ids import is_id

RECEIPT_BYTES_MAX: Final = 4096
_TAG_INFO: Final = b"session-streams/upload/v1"


class Receipt(Struct, frozen=True):
    """`bytes` of plaintext; `digest` is sha256:<hex> of the sealed bytes; `plaintext_tag` tells a repeat from another upload; `made_at`
    in microseconds since the epoch."""

    secret_id: str
    bytes: int
    digest: str
    plaintext_tag: str
    made_at: int


def plaintext_tag(secret: bytes, plaintext_sha256: bytes) -> str:
    return hmac.digest(secret, _TAG_INFO + plaintext_sha256, hashlib.sha256).hex()


def is_fresh(made_at: int, *, now_us: int, grace_s: float) -> bool:
    """Whether an upload (made then, in microseconds) may still come to be named: the sweeper comes no earlier than as long again."""
    return now_us - made_at < grace_s * 1_000_000 / 2


def encode_receipt(receipt: Receipt) -> bytes:
    return msgspec.json.encode(receipt)


def decode_receipt(content: bytes, name: str) -> Receipt:
    """Raises `ContentUnavailable` (content.unreadable)."""
    try:
        receipt = msgspec.json.decode(content, type=Receipt)
    except msgspec.DecodeError as error:
        raise ContentUnavailable(f"{name}: no receipt of an upload") from error
    if not is_id(receipt.secret_id, "snap"):
        raise ContentUnavailable(f"{name}: names no secret")
    return receipt
