"""Items of the graph <-> bytes and keys, in the topic and in the store alike.

    <session id>/<item id>                                          the item (schemas/graph/)
    ~progress/<partition>                                           how far the partition's graphs are
    ~made/<session id>/<event id>                                   the node that an event made             store only
    ~at/<session id>/<node id>/<sequence, 8 bytes><item id>         an edge or a gap at a node              store only

What is in the store only is made of the items themselves, so a restore from the topic gives the same rows.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas import codec
from streams.errors import StoreUnusable
from streams.graph.items import Edge, Gap, Head, Item, Node, item_id
from streams.graph.rows import incident, made_node

FOLD_VERSION: Final = 2
"""Rises whenever the same events would give other items: the topic is then made anew from the events."""

_SUBJECTS: Final[dict[type[Struct], str]] = {
    Node: "graph/node",
    Edge: "graph/edge",
    Gap: "graph/gap",
    Head: "graph/head",
}
_KINDS: Final[dict[str, type[Node] | type[Edge] | type[Gap] | type[Head]]] = {
    "graph/node": Node,
    "graph/edge": Edge,
    "graph/gap": Gap,
    "graph/head": Head,
}
_PROGRESS: Final = "graph/progress"
_SEQUENCE_BYTES: Final = 8

Row: TypeAlias = tuple[bytes, bytes]


class Progress(Struct, frozen=True):
    """Every command below the offset `commands` is in the graphs whole."""

    commands: int
    fold_version: int = FOLD_VERSION


def encode_item(item: Item) -> bytes:
    return codec.encode(_SUBJECTS[type(item)], msgspec.to_builtins(item))


def decode_item(value: bytes) -> Item:
    """Raises `StoreUnusable`."""
    decoded = _decoded(value)
    kind = _KINDS.get(decoded.subject)
    if kind is None:
        raise StoreUnusable(f"{decoded.subject} is no item of a graph")
    item: Item = msgspec.convert(decoded.record, kind)
    return item


def encode_progress(progress: Progress) -> bytes:
    return codec.encode(_PROGRESS, msgspec.to_builtins(progress))


def decode_progress(value: bytes) -> Progress:
    """Raises `StoreUnusable`."""
    return Progress(**_decoded(value).record)


def _decoded(value: bytes) -> Any:
    try:
        return codec.decode(value)
    except codec.Undecodable as error:
        raise StoreUnusable(f"graph: {error}") from error


# -- keys -------------------------------------------------------------------------------------------------------------


def session_prefix(session_id: str) -> bytes:
    return b"%s/" % session_id.encode()


def item_key(session_id: str, identifier: str) -> bytes:
    return session_prefix(session_id) + identifier.encode()


def progress_key(partition: int) -> bytes:
    return b"~progress/%d" % partition


def is_progress(key: bytes) -> bool:
    return key.startswith(b"~progress/")


def made_key(session_id: str, event_id: str) -> bytes:
    return b"~made/%s/%s" % (session_id.encode(), event_id.encode())


def at_prefix(session_id: str, node_id: str) -> bytes:
    return b"~at/%s/%s/" % (session_id.encode(), node_id.encode())


def item_at(prefix: bytes, key: bytes) -> str:
    """The item id of a row of `at_prefix`."""
    return key[len(prefix) + _SEQUENCE_BYTES :].decode()


def index_rows(session_id: str, item: Item) -> Iterator[Row]:
    """The rows that only the store has for an item. They never change while the item stands."""
    made = made_node(item)
    if made is not None:
        yield made_key(session_id, made[0]), made[1].encode()
    for node_id, sequence in incident(item):
        yield at_prefix(session_id, node_id) + sequence.to_bytes(_SEQUENCE_BYTES, "big") + item_id(item).encode(), b""
