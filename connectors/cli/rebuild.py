"""`rebuild`: throws a stopped role's local stores away; at its next start it makes them anew from the topics."""

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from streams.errors import Misconfigured
from streams.log.remake import remake
from streams.log.topics import Topics
from streams.projections.graph.handler import ROLE as GRAPH
from streams.settings import Settings


def wipe_stores(settings: Settings, role: str) -> list[Path]:
    """Removes the stores of `role` of every instance. Raises `Misconfigured` while a process holds one of them open."""
    stores = list(_stores(settings.stores_path(role)))
    held = [store for store in stores if _is_held(store)]
    if held:
        raise Misconfigured(f"a {role} runs on {held[0]}: stop it (Ctrl-C in `up`) and rebuild then")
    for store in stores:
        shutil.rmtree(store)
    return stores


def remake_graphs(settings: Settings) -> list[Path]:
    """Removes the local stores of graphs, their topic and their group's offsets.

    Raises `Misconfigured` while a process of the role runs, `BrokerUnavailable`.
    """
    wiped = wipe_stores(settings, GRAPH)
    topics = Topics(settings.topic_prefix)
    remake(settings, topics.graph, group=GRAPH, reads=topics.events)
    return wiped


def _stores(folder: Path) -> Iterator[Path]:
    """`<instance>/<partition>` each."""
    for instance in sorted(folder.glob("*")):
        yield from sorted(path for path in instance.glob("*") if path.is_dir())


def _is_held(store: Path) -> bool:
    lock = store / "LOCK"
    if not lock.exists():
        return False
    with lock.open("r+b") as file:
        try:
            # RocksDB holds this kind of lock on this file for as long as a store is open.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
