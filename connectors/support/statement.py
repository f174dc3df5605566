"""One observation of a journey: what was tried, on which exact tuple, how it ended, when, and where that can be looked up.

It is kept as one line: an envelope (`streams.custody.signing`) around its JSON with sorted keys and no spaces. The bytes that
were signed are the bytes that are kept.
"""

import hashlib
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from streams.custody.signing import Envelope, SigningKey
from streams.session.vocabulary import NAME_PATTERN

PAYLOAD_TYPE: Final = "application/vnd.session-streams.journey.v1+json"
_encoder: Final = msgspec.json.Encoder(order="sorted")

Coordinate = Annotated[str, Meta(pattern=rf"^{NAME_PATTERN}$(?!\n)", min_length=1, max_length=128)]
Code = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,63}$(?!\n)")]


class ExactTuple(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a journey ran on, and what its evidence holds for: these coordinates and no others. `release` is that of this
    software. The last two matter to what brings a harness's own state back (`capabilities.py`)."""

    release: Coordinate
    driver: Coordinate
    sandbox_provider_revision: Coordinate
    policy: Coordinate
    execution_target: Coordinate
    harness_revision: Coordinate | None = None
    environment_revision: Coordinate | None = None


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where it can be looked up: the test, and the session and log position that it ended at."""

    test: Annotated[str, Meta(min_length=1, max_length=512)]
    session_id: Annotated[str, Meta(pattern=r"^sess_[0-9a-f]{32}$(?!\n)")] | None = None
    position: Annotated[str, Meta(max_length=280)] | None = None


class Statement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    capability: Code
    journey: Code
    outcome: Literal["passed", "failed"]
    tuple: ExactTuple
    observed_at: Annotated[datetime, Meta(tz=True)]
    evidence: Evidence


class Unreadable(Exception):
    """Signed bytes that are no statement of this form."""


def signed_line(statement: Statement, key: SigningKey) -> tuple[bytes, str]:
    """The line to keep, with its line break, and the digest of what was signed."""
    payload = _encoder.encode(statement)
    envelope: Envelope = key.sign(PAYLOAD_TYPE, payload)
    return _encoder.encode(envelope) + b"\n", digest_of(payload)


def statement_of(payload: bytes) -> Statement:
    """Of a payload that was verified. Raises `Unreadable`."""
    try:
        return msgspec.json.decode(payload, type=Statement)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from error


def digest_of(payload: bytes) -> str:
    return "sha256:" + hashlib.sha256(payload).hexdigest()


def checked(statement: Statement) -> Statement:
    """Raises `Unreadable` where a reader would refuse what was made here."""
    return statement_of(_encoder.encode(statement))
