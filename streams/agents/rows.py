"""What lies in the authority's store, and on its changelog `agents.checkpoints`.

    <scope>                             the head
    <scope>#<version, 10 digits>        a version that was replaced
    ~purged/<key>                       that an erased subject's row was removed; its tombstone may have to be written again
    ~nudge                              nothing: a record so that the partition begins a new segment
    ~id/<checkpoint id>                 the scope's key                                         store only
    ~over/<expires at, 8 bytes>/<key>   replaced versions by the time at which they expire      store only
    ~followed                           the order up to which erased subjects are removed       store only
    ~report/<order, 8 bytes>            what was removed for it                                 store only

What is in the store only is made of the other rows, so a restore from the changelog gives the same. A head is in no order of time:
nothing in the background deletes it (design 06).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from streams.agents.core import Head
from streams.agents.records import decode_checkpoint
from streams.errors import RecordUnreadable, StoreUnusable
from streams.loop.handler import Get
from streams.store.table import Put, Reads

OVER: Final = b"~over/"
PURGED: Final = b"~purged/"
NUDGE: Final = b"~nudge"
FOLLOWED: Final = b"~followed"
REPORTS: Final = b"~report/"
_IDS: Final = b"~id/"
_OURS: Final = b"~"
"""No scope's key begins so."""
_NUMBER_BYTES: Final = 8


def head_key(scope_key: str) -> bytes:
    return scope_key.encode()


def version_key(scope_key: str, version: int) -> bytes:
    return b"%b#%010d" % (scope_key.encode(), version)


def id_key(checkpoint_id: str) -> bytes:
    return _IDS + checkpoint_id.encode()


def is_version(key: bytes) -> bool:
    return b"#" in key


def over_key(expires_at: int, key: bytes) -> bytes:
    return b"%b%b/%b" % (OVER, expires_at.to_bytes(_NUMBER_BYTES, "big"), key)


def over_from(expires_at: int) -> bytes:
    """Where the rows of `~over/` begin that expire no sooner."""
    return OVER + max(0, expires_at).to_bytes(_NUMBER_BYTES, "big")


def over_at(row: bytes) -> int:
    """When the version expires that this row of `~over/` stands for."""
    return int.from_bytes(row[len(OVER) : len(OVER) + _NUMBER_BYTES], "big")


def version_of(row: bytes) -> bytes:
    """The key of the version that this row of `~over/` stands for."""
    return row[len(OVER) + _NUMBER_BYTES + 1 :]


def first_over(store: Reads, expires_at: int = 0) -> int | None:
    """When the next of a store's replaced versions expires, of those that do no sooner than `expires_at`; None: there is none."""
    with store.scan(OVER, start=over_from(expires_at)) as rows:
        first = next(rows, None)
    return None if first is None else over_at(first[0])


def stored(value: bytes) -> Head:
    """A row of the store. Raises `StoreUnusable`."""
    try:
        return decode_checkpoint(value)
    except RecordUnreadable as error:
        raise StoreUnusable(error.detail) from error


def local_rows(key: bytes, before: Head | None, after: Head | None) -> Iterator[Put]:
    """The rows that only the store has, where the row `key` changes."""
    if is_version(key):
        if before is not None:
            yield over_key(before.expires_at, key), None
        if after is not None:
            yield over_key(after.expires_at, key), b""
        return
    if before is not None and (after is None or after.checkpoint_id != before.checkpoint_id):
        yield id_key(before.checkpoint_id), None
    if after is not None and (before is None or after.checkpoint_id != before.checkpoint_id):
        yield id_key(after.checkpoint_id), key


def restored(get: Get, rows: Iterable[tuple[bytes | None, bytes | None]]) -> Iterator[Put]:
    """The store's puts that records of the changelog stand for, in their order. Raises `StoreUnusable`."""
    for key, value in rows:
        assert key is not None
        if key.startswith(_OURS):
            yield key, value
            continue
        before = get(key)
        yield from local_rows(key, None if before is None else stored(before), None if value is None else stored(value))
        yield key, value
