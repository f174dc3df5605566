"""What a store costs its caller: microseconds of one thread's processor time a row, by what an authority does with it.

One store as an authority fills it: headers of sessions, and outcomes under the random ids of their commands. Thread time,
so that neither RocksDB's own threads nor other processes are in it; of reads the best of several rounds, since everything
that disturbs only adds.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from benchmarks.bench import Bench
from benchmarks.results import Result
from streams.authority.encoding import encode_state
from streams.session.items import SessionState
from streams.store.store import SharedMemory, Store
from streams.store.table import Put, StoreIdentity

_WRITE_ROWS: Final = 1000
"""Of one batch: a partition's share of a transaction under load."""
_LOOK_UPS: Final = 500
"""Of one call of `get_many`."""
_ROUNDS: Final = 7
_NOW_US: Final = 1_764_000_000_000_000


def measure(bench: Bench) -> Iterator[Result]:
    """store_write_us, store_fill_us, store_get_*_us."""
    count = bench.options.store_sessions
    sessions = [f"sess_{secrets.token_hex(16)}" for _ in range(count)]
    for filling, name in ((True, "store_fill_us"), (False, "store_write_us")):
        path, memory = bench.folder / name, SharedMemory()
        store = Store.open(path, StoreIdentity("bench", 1, "bench", "bench", 0), memory)
        try:
            yield _written(name, store, sessions, filling)
            if not filling:
                yield from _read(store, sessions)
        finally:
            store.wipe()


def _written(name: str, store: Store, sessions: list[str], filling: bool) -> Result:
    """`filling`: as a restore writes."""
    if filling:
        store.begin_filling()
    seconds = 0.0
    for start in range(0, len(sessions), _WRITE_ROWS // 2):
        puts = [put for session_id in sessions[start : start + _WRITE_ROWS // 2] for put in _rows(session_id)]
        begun = time.thread_time()
        store.write(puts, {"input": start})
        seconds += time.thread_time() - begun
    if filling:
        store.end_filling()
    rows = 2 * len(sessions)
    return Result(name=name, value=seconds / rows * 1e6, unit="us/row", details={"rows": rows})


def _read(store: Store, sessions: list[str]) -> Iterator[Result]:
    random, hot = Random(1), sessions[: max(1, len(sessions) // 100)]
    keys: dict[str, Callable[[], bytes]] = {
        "absent": lambda: b"~command/" + random.randbytes(16),
        "hot": lambda: _state_key(random.choice(hot)),
        "any": lambda: _state_key(random.choice(sessions)),
    }
    for what, key in keys.items():
        rounds = [[key() for _ in range(4 * _LOOK_UPS)] for _ in range(_ROUNDS)]
        yield Result(name=f"store_get_{what}_us", value=min(_single(store, each) for each in rounds), unit="us/row")
        yield Result(name=f"store_get_many_{what}_us", value=min(_many(store, each) for each in rounds), unit="us/row")


def _single(store: Store, keys: list[bytes]) -> float:
    begun = time.thread_time()
    for key in keys:
        store.get(key)
    return (time.thread_time() - begun) / len(keys) * 1e6


def _many(store: Store, keys: list[bytes]) -> float:
    begun = time.thread_time()
    for start in range(0, len(keys), _LOOK_UPS):
        store.get_many(keys[start : start + _LOOK_UPS])
    return (time.thread_time() - begun) / len(keys) * 1e6


def _state_key(session_id: str) -> bytes:
    return b"%s/session/" % session_id.encode()


def _rows(session_id: str) -> tuple[Put, Put]:
    header = SessionState(
        session_id=session_id, workspace_id="ws_" + "b" * 32, status="active", origin="live", policy_mode="standard",
        content_window_days=365, created_at=_NOW_US, sequence=1, last_hash=secrets.token_bytes(32), last_accepted_at=_NOW_US,
        last_command_offset=1,
    )  # fmt: skip
    # As large as a request's digest and a recorded outcome, and as hard to compress.
    outcome = secrets.token_bytes(50) + session_id.encode() + b"accepted" + bytes(12)
    return (_state_key(session_id), encode_state("session", header)), (b"~command/" + secrets.token_bytes(16), outcome)
