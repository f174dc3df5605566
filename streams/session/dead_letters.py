"""A dead letter: what could not be read or accepted, sealed, with the reason; never dropped silently."""

from msgspec import Struct


class DeadLetter(Struct, frozen=True, kw_only=True):
    """As `schemas/dead-letter.v1.avsc`. `origin` is a topic or a source kind; `detail` never holds content."""

    origin: str
    partition: int | None = None
    offset: int | None = None
    session_id: str | None = None
    workspace_id: str | None = None
    reason: str
    detail: str
    recorded_at: int
    key_day: str
    ciphertext: bytes
    digest: bytes
