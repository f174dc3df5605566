"""A store in memory, for what needs no disk: simulations, tests, a look at a topic. It forgets when it is dropped."""

import bisect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from streams.errors import NotOwner
from streams.store.table import Pair, Put, digest_of


class MemoryStore:
    """As `store.Store` behaves, without identity: `tests/contract/store_contract.py` holds for both."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._offsets: dict[str, int] = {}
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._rows.get(key)

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        self._check_open()
        return [self._rows.get(key) for key in keys]

    @contextmanager
    def scan(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Iterator[Pair]]:
        self._check_open()
        keys = sorted(key for key in self._rows if key.startswith(prefix))
        if start is not None:
            keys = keys[: bisect.bisect_right(keys, start)] if reverse else keys[bisect.bisect_left(keys, start) :]
        yield self._live([(key, self._rows[key]) for key in (reversed(keys) if reverse else keys)])

    def _live(self, pairs: list[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            self._check_open()
            yield pair

    def write(self, puts: Iterable[Put], offsets: Mapping[str, int]) -> None:
        self._check_open()
        for key, value in puts:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        self._offsets = {**self._offsets, **offsets}

    def begin_filling(self) -> None:
        """Writes are cheap as they are."""

    def end_filling(self) -> None:
        """Nothing here is durable."""

    def offsets(self) -> dict[str, int]:
        return dict(self._offsets)

    def digest(self) -> str:
        return digest_of((key, self._rows[key]) for key in sorted(self._rows))

    def close(self) -> None:
        self._closed = True

    def wipe(self) -> None:
        self.close()
        self._rows, self._offsets = {}, {}

    def _check_open(self) -> None:
        if self._closed:
            raise NotOwner("store in memory is closed")
