"""What the driver keeps for itself, as rows of `custody.state` and of its store.

erasure/<ers id>      the erasure's row of `sessions.retention`
orders/-              how many orders there were
broker/<id>           when a broker was last seen
sink/<holder id>      who is waited for until it is taken off the list
day/<secret's name>   a day that is over, until it is destroyed and told of
~pending/<ers id>     erasures that are not complete, in short (`UnderWay`)        store only
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas import codec
from streams.custody.keyring import SecretRef
from streams.errors import StoreUnusable
from streams.log.retention import COMPLETE, RetentionRow, decode_retention, encode_retention
from streams.store.table import Put

ORDERS: Final = b"orders/-"
BROKERS: Final = b"broker/"
SINKS: Final = b"sink/"
DAYS: Final = b"day/"
PENDING: Final = b"~pending/"
_ERASURES: Final = b"erasure/"
_ENTRY: Final = "custody/entry"


class UnderWay(Struct, frozen=True, array_like=True):
    """What has to be known of every erasure that is not complete: 300 bytes of memory. `order` is 0 while nothing is destroyed;
    `accepted_at` in microseconds since the epoch."""

    id: str
    state: str
    order: int
    accepted_at: int


def erasure_key(erasure_id: str) -> bytes:
    return _ERASURES + erasure_id.encode()


def under_way(row: RetentionRow) -> UnderWay:
    return UnderWay(row.id, row.state, 0 if row.erasure is None else row.erasure.order, row.ended_at)


def pending_put(each: UnderWay) -> Put:
    return PENDING + each.id.encode(), None if each.state == COMPLETE else _encoded(each)


def pending_in(value: bytes) -> UnderWay:
    """Raises `StoreUnusable`."""
    try:
        return _pending(value)
    except msgspec.MsgspecError as error:
        raise StoreUnusable(f"a pending erasure: {error}") from error


def broker_key(broker_id: int) -> bytes:
    return b"%b%d" % (BROKERS, broker_id)


def sink_key(holder_id: str) -> bytes:
    return SINKS + holder_id.encode()


def day_key(ref: SecretRef) -> bytes:
    return DAYS + ref.name.encode()


def day_of_key(key: bytes) -> SecretRef:
    return SecretRef.named(key[len(DAYS) :].decode())


def erasure_entry(row: RetentionRow) -> bytes:
    return codec.encode(_ENTRY, {"kind": "erasure", "number": 0, "at": None, "row": encode_retention(row)})


def number_entry(kind: str, number: int, at: int | None = None) -> bytes:
    """`at` in microseconds since the epoch."""
    return codec.encode(_ENTRY, {"kind": kind, "number": number, "at": at, "row": None})


def erasure_in(value: bytes) -> RetentionRow:
    """Raises `StoreUnusable`."""
    row = _record(value)["row"]
    if row is None:
        raise StoreUnusable("custody/entry: an erasure without its row")
    return decode_retention(row)


def number_in(value: bytes | None) -> int:
    """0 where there is no entry. Raises `StoreUnusable`."""
    return 0 if value is None else int(_record(value)["number"])


def at_in(value: bytes) -> int | None:
    """Raises `StoreUnusable`."""
    at = _record(value)["at"]
    return None if at is None else int(at)


def restored(key: bytes, value: bytes | None) -> list[Put]:
    """The puts that a record of the changelog stands for."""
    puts: list[Put] = [(key, value)]
    if key.startswith(_ERASURES) and value is not None:
        puts.append(pending_put(under_way(erasure_in(value))))
    return puts


def _record(value: bytes) -> Any:
    try:
        return codec.decode_as(_ENTRY, value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"{_ENTRY}: {error}") from error


_encoded = msgspec.msgpack.Encoder().encode
_pending = msgspec.msgpack.Decoder(UnderWay).decode
