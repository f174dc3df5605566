"""What has to be removed for a row, as a job: of a session that is erased, and of a checkpoint or capsule whose time is over."""

from collections.abc import Iterator
from typing import Final

from streams.custodian.removing import Job
from streams.custodian.rows import Erasing, Expiring, NamedUpload, decode, expiry_key, found, upload_key
from streams.custody.capsules import capsule_secret
from streams.custody.keyring import SecretRef
from streams.sealed_blobs import Discard, Place
from streams.session.commands import Kind
from streams.session.ids import is_id
from streams.store.table import Reads

CHECKPOINTS_AT_ONCE: Final = 500
"""Of one session, capsules among them; the others come with the next look at it."""


def erasure_job(partition: int, store: Reads, key: bytes) -> Job:
    session_id = key.partition(b"/")[0].decode()
    erasing = found(store.get, key, Erasing)
    if erasing is None or erasing.through is None:
        # It was taken for due by a row that is gone meanwhile; nothing is done for it.
        return Job(partition, key, expired=False, discards=())
    place = Place(erasing.workspace_id, session_id)
    through = None if erasing.kind == Kind.ERASE else erasing.through
    checkpoints, uploads, secrets, whole = list[bytes](), set[str](), list[SecretRef](), True
    for checkpoint, expiring in _checkpoints(store, session_id, through):
        if len(checkpoints) == CHECKPOINTS_AT_ONCE:
            whole = False
            break
        checkpoints.append(checkpoint)
        uploads.update(_ending(store, session_id, expiring))
        secrets += _secrets(checkpoint, expiring)
    discards = (Discard(place),) if through is None else tuple([Discard(place, each) for each in sorted(uploads)])
    return Job(
        partition, key, expired=False, discards=discards, checkpoints=tuple(checkpoints), secrets=tuple(secrets), whole=whole
    )  # fmt: skip


def expiry_job(partition: int, store: Reads, key: bytes) -> Job:
    session_id, expiring = key.partition(b"/")[0].decode(), found(store.get, key, Expiring)
    if expiring is None:
        return Job(partition, key, expired=True, discards=())
    place = Place(expiring.workspace_id, session_id)
    discards = tuple([Discard(place, each) for each in _ending(store, session_id, expiring)])
    return Job(partition, key, expired=True, discards=discards, secrets=_secrets(key, expiring))


def capsule_of(key: bytes) -> str | None:
    """Of an expiry; None: it is a checkpoint's."""
    identifier = key.decode().rpartition("/")[2]
    return identifier if is_id(identifier, "cap") else None


def _secrets(key: bytes, expiring: Expiring) -> tuple[SecretRef, ...]:
    capsule_id = capsule_of(key)
    return () if capsule_id is None else (capsule_secret(expiring.workspace_id, capsule_id),)


def _checkpoints(store: Reads, session_id: str, through: int | None) -> Iterator[tuple[bytes, Expiring]]:
    """Those of a session that are still there, capsules among them, up to a position or all."""
    with store.scan(expiry_key(session_id, "")) as rows:
        for key, value in rows:
            expiring = decode(Expiring, value)
            if through is None or expiring.sequence <= through:
                yield key, expiring


def _ending(store: Reads, session_id: str, expiring: Expiring) -> list[str]:
    """Those uploads of a checkpoint that none names which ends later."""
    named = [(each, found(store.get, upload_key(session_id, each), NamedUpload)) for each in expiring.uploads]
    return [upload_id for upload_id, row in named if row is None or (row.expires_at or 0) <= expiring.expires_at]
