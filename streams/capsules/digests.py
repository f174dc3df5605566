"""Which bytes each digest is of, and each signature: RFC 8785 canonical JSON of a statement without its digest and signature.

    target_digest       the target without `qualification_receipt`
    receipt_digest      the receipt, its `target_digest` included, without itself and `signature`
    statement_digest    the retention statement, without itself and `signature`
    projection          {format, schema_version, capsule, exported_at}

A signature is over the ASCII of the digest (design 05).
"""

import binascii
import hashlib
from typing import Any, Final

import msgspec
import rfc8785
from msgspec import Struct

from streams.capsules.model import Capsule, Policy, QualificationReceipt, Retention, Target, Transfer

_SIGNATURE_BYTES: Final = 64


def canonical(statement: dict[str, Any]) -> bytes:
    return rfc8785.dumps(statement)


def digest_of(statement: dict[str, Any]) -> str:
    return digest_of_bytes(canonical(statement))


def digest_of_bytes(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def target_digest(target: Target) -> str:
    return digest_of(_without(target, "qualification_receipt"))


def receipt_digest(receipt: QualificationReceipt) -> str:
    return digest_of(_without(receipt, "receipt_digest", "signature"))


def retention_digest(retention: Retention) -> str:
    return digest_of(_without(retention, "statement_digest", "signature"))


def policy_digest(policy: Policy) -> str:
    return digest_of(_without(policy))


def projection_digest(transfer: Transfer) -> str:
    return capsule_digest(transfer.format, transfer.schema_version, transfer.capsule, transfer.exported_at)


def capsule_digest(format_: str, schema_version: int, capsule: Capsule, exported_at: str) -> str:
    return digest_of(
        {"format": format_, "schema_version": schema_version, "capsule": _without(capsule), "exported_at": exported_at}
    )  # fmt: skip


def signature_bytes(text: str) -> bytes | None:
    """The 64 bytes that a signature's text stands for; None where it is none. Of two texts only one stands for the same bytes."""
    try:
        found = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    same = binascii.b2a_base64(found, newline=False) == text.encode("ascii")
    return found if same and len(found) == _SIGNATURE_BYTES else None


def _without(statement: Struct, *names: str) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(statement)
    return {name: value for name, value in whole.items() if name not in names}
