"""An upload and a download in a process of their own: `python -m tests.support.upload_process MODE MIB MIB_MAX`, with settings
from the environment.

MODE `memory` sends so many MiB up and down again and prints the largest amount of memory that the process ever had, in
MiB; beyond MIB_MAX of private memory the system refuses it more. `hoard` does the same with the whole upload in memory, which
the limit must not let pass. `endless` says when it is well under way, and goes on until it is killed.
"""

import asyncio
import hashlib
import re
import resource
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streams.blobs import open_blob_store
from streams.custody.sqlite_keyring import open_local_keyring
from streams.sealed_blobs import Place, Snapshots
from streams.settings import Settings

PLACE = Place("ws_" + "1" * 32, "sess_" + "2" * 32)
UPLOAD = "snap_" + "3" * 32
_MIB = 1024 * 1024
_PIECE = 65_536


async def made_up(mib: int | None, hashed: "hashlib._Hash") -> AsyncIterator[bytes]:
    """Bytes that do not repeat, as a body of HTTP comes; without an end where none is given."""
    number = 0
    while mib is None or number < mib * _MIB // _PIECE:
        piece = hashlib.blake2b(number.to_bytes(8, "big")).digest() * (_PIECE // 64)
        hashed.update(piece)
        yield piece
        number += 1
        if mib is None and number == 400:
            print("under way", flush=True)


async def hoarded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"".join([piece async for piece in pieces])


async def go(settings: Settings, mode: str, mib: int) -> None:
    keyring = open_local_keyring(settings.data_dir / "keyring")
    snapshots = Snapshots(open_blob_store(settings), keyring, grace_s=settings.orphan_grace_s, executor=ThreadPoolExecutor(2))
    sent, came = hashlib.sha256(), hashlib.sha256()
    pieces = made_up(None if mode == "endless" else mib, sent)
    source = hoarded(pieces) if mode == "hoard" else pieces
    uploaded = await snapshots.upload(PLACE, UPLOAD, source, bytes_max=2**60)
    download = await snapshots.download(PLACE, UPLOAD, digest=uploaded.digest)
    async for chunk in download.chunks:
        came.update(chunk)
    assert came.digest() == sent.digest()
    assert uploaded.bytes == mib * _MIB
    keyring.close()


def most_memory_mib() -> float:
    (found,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found) / 1024


if __name__ == "__main__":
    mode, mib, mib_max = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_DATA, (mib_max * _MIB, mib_max * _MIB))
    asyncio.run(go(Settings.from_environment(), mode, mib))
    print(f"{most_memory_mib():.1f}")
