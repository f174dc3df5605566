"""zstd for files of any length, a piece at a time; what comes out is bounded, whatever the frame says of itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import zstandard

_PIECE_BYTES: Final = 256 * 1024
_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""What a frame may have us keep in memory; level 3 asks for 2 MiB."""


@contextmanager
def compressing(file: BinaryIO) -> Iterator[BinaryIO]:
    """What is written comes out as one frame in `file`, whole when the block ends. `file` stays open."""
    with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(file, closefd=False) as writer:
        yield writer


def decompressing(file: BinaryIO, bytes_max: int) -> Iterator[bytes]:
    """The pieces of what was compressed, none empty and none large. What is cut just ends: whoever reads has to know what it expects.

    Raises ValueError where it is no frame, or holds more than `bytes_max`.
    """
    total = 0
    try:
        with zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).stream_reader(file, closefd=False) as reader:
            while piece := reader.read(_PIECE_BYTES):
                total += len(piece)
                if total > bytes_max:
                    raise ValueError(f"more than {bytes_max} bytes")
                yield piece
    except zstandard.ZstdError as error:
        raise ValueError("no zstd frame") from error
