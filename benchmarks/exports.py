"""A whole session as a file: its export and its bundle over HTTP, beside zstd over the same bytes, and how fast both are checked offline.

The session is of messages made of the words of the sample transcripts, drawn anew for each, since zstd would find the same texts again
and again; every tenth event records an artifact of its own, so that a section of the bundle grows with it. Nothing is timed against a
bound. A file that does not verify ends the bench.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import zstandard

from benchmarks import transfers
from benchmarks.bench import MB, Bench, Cost
from benchmarks.results import Result, ratios
from benchmarks.serving import Installation, running
from benchmarks.transfers import Transfer
from connectors.sources.samples import FOLDER
from session_streams import Client, Retries

BOUND_MB: Final = 300
_BATCH: Final = 500
_CALLERS: Final = 4
_WORDS: Final = (10, 100)
_WARMING: Final = 1000
_LEVEL: Final = 3
_LOOK_S: Final = 0.05
_CHECKER: Final = "checker"
_EXPORT: Final = "export"
_BUNDLE: Final = "bundle"

_CHECK: Final = """
import sys, time
from session_streams import bundle, export
begun = time.perf_counter()
verdict = export.verify(sys.argv[2]) if sys.argv[1] == "export" else bundle.verify(sys.argv[2], sys.argv[3])
assert verdict.ok, verdict
print(time.perf_counter() - begun)
"""
"""As somebody who has the client distribution does it, in a process of its own."""


def measure(bench: Bench) -> Iterator[Result]:
    """export_*, bundle_*: MB/s of the answers with ratios to zstd, and events a second that are verified."""
    yield from _told(bench, bench.options.export_events, "")


def grown(bench: Bench, events: int) -> Iterator[Result]:
    """export_at_<events>_*, bundle_at_<events>_*: the memory of gateway and verifier with them."""
    yield from _told(bench, events, f"at_{events}_")


def _told(bench: Bench, events: int, at: str) -> Iterator[Result]:
    with running(bench) as installation:
        (session_id,) = installation.create_sessions(1)
        begun = time.monotonic()
        _fill(installation, session_id, events - 1)
        bench.say(f"{events:,} events appended in {time.monotonic() - begun:.0f} s")
        for kind in (_EXPORT, _BUNDLE):
            _fetched(installation, session_id, f"{kind}?end_sequence={min(events, _WARMING)}", Path(os.devnull))
        for kind in (_EXPORT, _BUNDLE):
            yield from _of_kind(bench, installation, session_id, kind, events, at)


def _of_kind(
    bench: Bench, installation: Installation, session_id: str, kind: str, events: int, at: str
) -> Iterator[Result]:  # fmt: skip
    file = bench.folder / f"a.{kind}"
    installation.cpu_s()
    before_mb = installation.rss("gateway") / MB
    got = _fetched(installation, session_id, kind, file)
    rate, packed, packing = got.size / MB / got.seconds, *_packed(file)
    export_rate = bench.known(f"{_EXPORT}_{at}mb_per_s") if kind == _BUNDLE else None
    details = {
        "mb": got.size / MB, "events_per_s": events / got.seconds, "zstd_mb_per_s": packing, "zstd_size": packed / got.size,
        "gateway_cores": got.gateway_cores, "gateway_rss_before_mb": before_mb, "gateway_rss_max_mb": got.rss_mb,
    }  # fmt: skip
    yield Result(
        name=f"{kind}_{at}mb_per_s", value=rate, unit="MB/s", ratios=ratios(rate, zstd=packing, export=export_rate),
        details=details, settings={"events": events},
    )  # fmt: skip
    if at:
        yield Result(
            name=f"{kind}_{at}gateway_rss_mb", value=got.rss_mb, unit="MB", ratios=ratios(got.rss_mb, bound=BOUND_MB),
            details={"before_mb": before_mb, "grown_mb": got.rss_mb - before_mb}, settings={"events": events},
        )  # fmt: skip
    trust = bench.folder / "trust.json"
    with _client(installation) as client:
        # Behind the bundle: the first one makes the key that signs it.
        trust.write_bytes(msgspec.json.encode(client.signing_keys()))
    seconds, rss_mb = _checked(kind, file, trust)
    yield Result(
        name=f"{kind}_{at}verified_events_per_s", value=events / seconds, unit="events/s",
        details={"mb_per_s": got.size / MB / seconds, "rss_max_mb": rss_mb}, settings={"events": events},
    )  # fmt: skip
    file.unlink()


def _fill(installation: Installation, session_id: str, events: int) -> None:
    """So many behind the one that made it."""
    words = [word for path in sorted(FOLDER.glob("*.jsonl")) for word in path.read_text().split()]
    batches = [range(at, min(at + _BATCH, events)) for at in range(0, events, _BATCH)]
    with _client(installation) as client, ThreadPoolExecutor(_CALLERS) as pool:
        for _ in pool.map(partial(_append, client, session_id, words), batches):
            pass


def _append(client: Client, session_id: str, words: list[str], numbers: range) -> None:
    client.append_many(session_id, [_event(number, words) for number in numbers])


def _event(number: int, words: list[str]) -> bytes:
    if number % 10 == 9:
        return b'{"type":"artifact.recorded","attributes":{"artifact_id":"art_%032x","byte_count":%d}}' % (number, number)
    drawn = Random(number)
    text = " ".join(drawn.choices(words, k=drawn.randint(*_WORDS)))
    role = "user" if number % 2 else "assistant"
    return msgspec.json.encode({"type": "message.appended", "attributes": {"role": role}, "content": {"number": number, "text": text}})


def _client(installation: Installation) -> Client:
    return Client(installation.up.gateway, installation.up.api_key, retries=Retries(total_s=120))


def _fetched(installation: Installation, session_id: str, asked: str, file: Path) -> Transfer:
    with file.open("wb") as into:
        return transfers.received(installation, f"/v1/sessions/{session_id}/{asked}", into=into)


def _packed(file: Path) -> tuple[int, float]:
    """Bytes that are left of a file, and MB/s of one thread that reads and compresses it."""
    packer, left, size = zstandard.ZstdCompressor(level=_LEVEL).compressobj(), 0, 0
    begun = time.perf_counter()
    with file.open("rb") as reading:
        while piece := reading.read(MB):
            size += len(piece)
            left += len(packer.compress(piece))
    left += len(packer.flush())
    return left, size / MB / (time.perf_counter() - begun)


def _checked(kind: str, file: Path, trust: Path) -> tuple[float, float]:
    """Seconds and MB. Raises where it does not verify."""
    argv = [sys.executable, "-c", _CHECK, kind, str(file), str(trust)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as checking:
        cost = Cost({_CHECKER: checking.pid})
        while True:
            try:
                said, wrong = checking.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                # From outside: what a process says of its own peak may be that of whoever started it.
                cost.cpu_s()
    if checking.returncode != 0:
        raise AssertionError(f"the {kind} does not verify: {wrong[-1000:]}")
    return float(said), cost.rss_max[_CHECKER] / MB
