"""What a worker retains, through the gateway to the local blob store and back, beside a copy of the same bytes that seals them.

The copy is one thread that reads a megabyte, seals or opens it with AES-256-GCM, writes it, and syncs the file in the end: the
work that nobody can leave out. Neither needs a broker, so R is not what they are compared with.
"""

import os
import secrets
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks import transfers, workers
from benchmarks.bench import MB, Bench
from benchmarks.httpload import Ask
from benchmarks.results import Result, ratios
from benchmarks.serving import Installation, running
from benchmarks.transfers import Transfer
from benchmarks.workers import Held

_ROUNDS: Final = 5
_TAG_BYTES: Final = 16
_HEADER: Final = b"bench"


def measure(bench: Bench) -> Iterator[Result]:
    """snapshot_seal_and_copy_*, snapshot_up_*, snapshot_down_mb_per_s: medians of five rounds, each with a copy beside it."""
    size = bench.options.snapshot_mb * MB
    data = secrets.token_bytes(size)
    source = bench.folder / "snapshot"
    source.write_bytes(data)
    ups: list[Transfer] = []
    downs: list[Transfer] = []
    copies: list[tuple[float, float]] = []
    with running(bench) as installation:
        (session_id,) = installation.create_sessions(1)
        before_mb = _rss_mb(installation)
        for _ in range(_ROUNDS):
            copies.append(_copied(source))
            up, down = _round(installation, session_id, data)
            ups.append(up)
            downs.append(down)
    mb = bench.options.snapshot_mb
    sealed, opened = (mb / statistics.median(times) for times in zip(*copies, strict=True))
    yield Result(name="snapshot_seal_and_copy_mb_per_s", value=sealed, unit="MB/s", details={"mb": mb})
    yield Result(name="snapshot_open_and_copy_mb_per_s", value=opened, unit="MB/s", details={"mb": mb})
    for name, rounds, base in (("up", ups, sealed), ("down", downs, opened)):
        rate = mb / statistics.median(each.seconds for each in rounds)
        details = {
            "gateway_rss_before_mb": before_mb,
            "gateway_rss_max_mb": max(each.rss_mb for each in rounds),
            "gateway_cores": statistics.median(each.gateway_cores for each in rounds),
        }
        yield Result(name=f"snapshot_{name}_mb_per_s", value=rate, unit="MB/s", ratios=ratios(rate, copy=base), details=details)


def _rss_mb(installation: Installation) -> float:
    installation.cpu_s()
    return installation.rss("gateway") / MB


def _round(installation: Installation, session_id: str, data: bytes) -> tuple[Transfer, Transfer]:
    """One up and one down of the same bytes. Raises AssertionError where others come back."""
    (run,) = workers.open_runs(installation, [session_id], "snapshots", 1)
    (attempt,) = workers.held(installation.ask([workers.claim_of(*run)], 1).outcome.bodies)
    pieces = (data[at : at + MB] for at in range(0, len(data), MB))
    headers = {**installation.authorization(), "session-streams-report": attempt.report}
    up = transfers.sent(installation, f"/v1/sessions/{session_id}/snapshots", pieces, len(data), headers)
    checkpoint_id = _checkpoint(installation, attempt, msgspec.json.decode(up.body)["upload_id"])
    down = transfers.received(installation, f"/v1/sessions/{session_id}/checkpoints/{checkpoint_id}/content")
    if (down.size, down.digest) != (up.size, up.digest):
        raise AssertionError("what came back is not what was uploaded")
    return up, down


def _checkpoint(installation: Installation, attempt: Held, upload_id: str) -> str:
    path = f"/v1/sessions/{attempt.session_id}"
    (page,) = workers.decoded(installation.ask([Ask(path=f"{path}/events?limit=1")], 1).outcome.bodies)
    body = {
        "through_sequence": 1, "through_event_id": page["events"][0]["event_id"], "continuation": {"kind": "event_log_rebuild"},
        "snapshot": {"upload_id": upload_id},
    }  # fmt: skip
    ask = Ask(path=f"{path}/checkpoints", body=msgspec.json.encode(body).decode(), report=attempt.report)
    (created,) = workers.decoded(installation.ask([ask], 1).outcome.bodies)
    return str(created["checkpoint_id"])


def _copied(source: Path) -> tuple[float, float]:
    """Seconds to seal a file into another one, and to open that into a third."""
    sealed, opened = source.with_suffix(".sealed"), source.with_suffix(".opened")
    cipher = AESGCM(AESGCM.generate_key(256))

    def sealing(number: int, piece: bytes) -> bytes:
        return cipher.encrypt(number.to_bytes(12, "big"), piece, _HEADER)

    def opening(number: int, piece: bytes) -> bytes:
        return cipher.decrypt(number.to_bytes(12, "big"), piece, _HEADER)

    seconds = []
    for from_, to, change, step in ((source, sealed, sealing, MB), (sealed, opened, opening, MB + _TAG_BYTES)):
        begun = time.perf_counter()
        with from_.open("rb") as reading, to.open("wb") as writing:
            number = 0
            while piece := reading.read(step):
                writing.write(change(number, piece))
                number += 1
            writing.flush()
            os.fsync(writing.fileno())
        seconds.append(time.perf_counter() - begun)
    sealed.unlink()
    opened.unlink()
    return seconds[0], seconds[1]
